"""The machine that the broker of a simulation runs on: it starts, is killed, loses its power, and starts again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import PurePath
from random import Random
from typing import Any, TypeVar

import attrs
import trio

from trio_broker.broker import Broker
from trio_broker.config.broker_config import BrokerConfig, load_broker_config
from trio_broker.network.errors import CloseConnection
from trio_broker.runtime.cpu_clock import ManualCpuClock
from trio_broker.runtime.runtime import Runtime
from trio_broker.runtime.simulated_clock import SimulatedClock
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_network import SimulatedHost
from trio_broker.runtime.simulated_volume import ProcessEnded
from trio_broker.runtime.simulated_workers import SimulatedWorkers

T = TypeVar("T")

RESTART_SECONDS = 0.5
"""Between two attempts to start a broker whose disk does not let it."""


REPORT_SECONDS = 5.0
"""Longer than the slowest sync takes to be reported."""


@attrs.define(eq=False)
class Life:
    """One process, from its start to its end."""

    broker: Broker
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    serves: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)
    failure: Exception | None = None
    killed: bool = False
    nursery: trio.Nursery | None = None
    """What serves requests that come over no network, while the broker serves."""


@attrs.define(eq=False)
class Machine:
    """``run`` owns the processes; the other methods are called while it runs."""

    host: SimulatedHost
    random: Random
    port: int
    durability: str
    clock: SimulatedClock
    report_passes: int = 0
    """See ``SimulatedWorkers``."""
    disk: SimulatedDisk = attrs.field(init=False)
    life: Life | None = None
    starts: int = 0
    _nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self.disk = SimulatedDisk(self.clock, self.random.randrange(1 << 32))
        self.disk.faults.cold_reads = self.random.choice((0.0, 0.1))
        self.disk.faults.short_writes = self.random.choice((0.0, 0.1))
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def start(self) -> None:
        """Start the broker, again and again until it serves.

        Raises:
            Exception: it has ended by itself although nothing is wrong with its disk.
        """
        while True:
            life = self.begin_life()
            await life.serves.wait()
            if life.failure is None:
                return
            if not self.is_disk_full:
                raise life.failure
            self.disk = self.disk.crash()
            await trio.sleep(RESTART_SECONDS)

    def begin_life(self) -> Life:
        """Start a process, which serves later or never."""
        assert self._nursery is not None, "the machine runs"
        life = self.life = Life(self.new_broker())
        self._nursery.start_soon(self._live, life, name=f"life {self.starts}")
        self.starts += 1
        return life

    def new_broker(self) -> Broker:
        """The broker of the next process."""
        return Broker(self.config(), runtime=self.runtime())

    async def live(self, life: Life) -> None:
        """Be the process."""
        async with trio.open_nursery() as nursery:
            await nursery.start(life.broker.run)
            async with trio.open_nursery() as life.nursery:
                life.serves.set()
                try:
                    await life.broker.stopped.wait()
                    life.nursery.cancel_scope.cancel()
                finally:
                    # Nothing can be started in it any more.
                    life.nursery = None

    async def _live(self, life: Life) -> None:
        try:
            with life.scope:
                await self.live(life)
        except (Exception, BaseExceptionGroup) as error:
            if not life.killed:
                life.failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
        except ProcessEnded:
            assert life.killed, "a process that was not killed has lost its disk"
        finally:
            life.serves.set()
            life.ended.set()

    def config(self) -> BrokerConfig:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "admin.listener": "",
            "log.dirs": "/data",
            "log.durability": self.durability,
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "100",
        }
        return load_broker_config(None, settings, {})

    def new_random(self) -> Random:
        """What a part of the machine draws from."""
        return Random(self.random.randrange(1 << 64))

    def runtime(self) -> Runtime:
        of_broker, of_workers = self.new_random(), self.new_random()
        return Runtime(
            clock=self.clock,
            random=of_broker,
            disk=self.disk,
            workers=SimulatedWorkers(of_workers, self.disk.seconds_taken, report_passes=self.report_passes),
            network=self.host,
            cpu_clock=ManualCpuClock(),
        )

    # ---- its tasks

    def start_soon(self, function: Callable[..., Awaitable[object]], *arguments: Any) -> None:
        """Run something that may outlive the process."""
        assert self._nursery is not None, "the machine runs"
        self._nursery.start_soon(function, *arguments)

    async def in_broker(self, work: Callable[[Broker], Awaitable[T]]) -> T | None:
        """Run ``work`` in a task of the broker; None if there is none, or it ends before."""
        life = self.life
        if life is None or life.nursery is None or life.killed:
            return None
        done: list[T] = []
        ended = trio.Event()

        async def run() -> None:
            try:
                done.append(await work(life.broker))
            except CloseConnection:
                pass
            finally:
                ended.set()

        life.nursery.start_soon(run)
        await ended.wait()
        return done[0] if done and not life.killed else None

    # ---- its end

    async def kill(self) -> None:
        """Kill the process: what it has written stays."""
        await self._end(self.disk.crash)

    async def cut_power(self) -> None:
        """Cut the power: what was not synced may be gone, in part or as a whole."""
        await self._end(self.disk.power_cut)

    async def _end(self, end: Callable[[], SimulatedDisk]) -> None:
        life = self.life
        assert life is not None, "the broker was started"
        # All three before the broker's next step.
        life.killed = True
        self.disk = end()
        self.host.reset()
        life.scope.cancel()
        await life.ended.wait()

    async def stop(self) -> None:
        """Stop the broker cleanly.

        Raises:
            Exception: it has ended by itself before.
        """
        life = self.life
        assert life is not None, "the broker was started"
        life.broker.stop()
        await life.ended.wait()
        self.disk = self.disk.crash()
        if life.failure is not None:
            raise life.failure

    # ---- its disk, and its settings

    @property
    def is_disk_full(self) -> bool:
        return self.disk.faults.total_bytes < ROOMY_BYTES

    def fill_disk(self, usable_bytes: int) -> None:
        """Leave so many bytes of the volume."""
        space = self.disk.space(PurePath("/"))
        self.disk.faults.total_bytes = space.total_bytes - space.usable_bytes + usable_bytes

    def empty_disk(self) -> None:
        """Make room again."""
        self.disk.faults.total_bytes = ROOMY_BYTES

    def slow_syncs(self, share: float, seconds: float) -> None:
        self.disk.faults.slow_syncs, self.disk.faults.slow_sync_seconds = share, seconds

    def fail_syncs(self, share: float) -> None:
        self.disk.faults.failing_syncs = share

    async def heal(self) -> None:
        """End all faults; a broker that met one that is final is started anew."""
        self.empty_disk()
        self.slow_syncs(0.0, 0.0)
        self.fail_syncs(0.0)
        # What failed before now may not have been reported.
        await trio.sleep(REPORT_SECONDS)
        life = self.life
        assert life is not None, "the broker was started"
        # The last fault may have been cut short in the middle of a start or a stop.
        await life.serves.wait()
        if life.killed:
            await life.ended.wait()
        elif not life.ended.is_set() and (life.broker.is_stopping or has_failed_disk(life.broker)):
            await self.kill()
        if life.ended.is_set():
            await self.start()

    def resize(self, network_threads: int, io_threads: int) -> None:
        assert self.life is not None, "the broker was started"
        self.life.broker.server.resize_network_threads(network_threads)
        self.life.broker.server.resize_io_threads(io_threads)


ROOMY_BYTES = 1 << 40
"""Of a volume that is not full."""


def has_failed_disk(broker: Broker) -> bool:
    """Whether a log directory went offline, which only a start mends."""
    return any(directory.failure is not None for directory in broker.services.replicas.log_manager.directories)
