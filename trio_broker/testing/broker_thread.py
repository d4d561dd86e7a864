"""A real broker inside the running process, in a thread with an event loop of its own.

For tests of any kind, with or without an event loop: nothing here waits longer than the broker takes, some
milliseconds, so a test may call it from wherever it is. Ports are picked by the system, so any number of brokers run
side by side; the data lies in a temporary directory, unless one is given, and goes with the broker. The broker's own
clock runs as the machine's and can be advanced, and retention and all timers follow.

Whatever keeps the broker from starting is raised where ``start`` was called. A normal life logs nothing above INFO.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import attrs
import trio

from kafka_wire.errors import KafkaError
from kafka_wire.primitives import uuid_text
from trio_broker.broker import Broker
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.config.broker_config import load_broker_config
from trio_broker.config.errors import ConfigError
from trio_broker.scheduled_task import run_once
from trio_broker.testing.advancing_clock import AdvancingClock

T = TypeVar("T")
Setting = str | int | float | bool

START_SECONDS = 60.0
"""A broker that has not started after a minute never will; loaded test machines are slow."""

STOP_SECONDS = 60.0
"""Longer than any grace for requests in flight and the last flush together."""

TEST_SETTINGS: Mapping[str, str] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "admin.listener": "",
    "log.durability": "page-cache",
    # The first member of a group need not wait for others.
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    # The first group has fifty partitions created for it in the broker's defaults: a tenth of a second.
    "offsets.topic.num.partitions": "4",
    # Background tasks are due from the first moment on, so that an advanced clock finds them waiting.
    "log.initial.task.delay.ms": "0",
    # An advanced clock must not cut off clients that have been quiet for a microsecond.
    "connections.max.idle.ms": "-1",
    "shutdown.grace.ms": "1000",
}
"""What a broker in a test has instead of the built-in defaults."""

ADMIN_ON_ANY_PORT = "127.0.0.1:0"


class BrokerDoesNotRun(Exception):
    """The broker was asked for something that only a running one can do."""


@attrs.define(eq=False)
class Life:
    """One life of a broker, from its start to its stop, in a thread of its own."""

    broker: Broker
    clock: AdvancingClock
    started: Future[trio.lowlevel.TrioToken] = attrs.field(factory=Future)
    ended: Future[None] = attrs.field(factory=Future)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def begin(self) -> None:
        """Start the thread, and wait until the broker serves.

        Raises:
            StartupError: it cannot.
        """
        # A daemon: a test run that ends in confusion must not wait for a broker that nobody stopped.
        threading.Thread(target=self._run, name="trio-broker", daemon=True).start()
        self.started.result(START_SECONDS)

    def end(self, *, clean: bool) -> None:
        """Stop the broker, or just let go of everything, and wait until its thread has nothing left to do.

        Raises:
            Exception: what ended the broker before it was asked to stop.
        """
        # The broker ended by itself; why, ``ended`` raises below.
        with contextlib.suppress(trio.RunFinishedError):
            self.started.result(0).run_sync_soon(self.broker.stop if clean else self.scope.cancel)
        self.ended.result(STOP_SECONDS)

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Await ``function`` in the broker's loop, and return what it returns or raise what it raises.

        Raises:
            BrokerDoesNotRun: the broker stopped first.
        """
        outcome: Future[T] = Future()

        async def answer() -> None:
            try:
                outcome.set_result(await function())
            except Exception as error:
                outcome.set_exception(error)
            finally:
                if not outcome.done():
                    outcome.set_exception(BrokerDoesNotRun("the broker stopped"))

        try:
            self.started.result(0).run_sync_soon(trio.lowlevel.spawn_system_task, answer)
        except trio.RunFinishedError as error:
            raise BrokerDoesNotRun("the broker stopped") from error
        return outcome.result()

    def _run(self) -> None:
        try:
            trio.run(self._serve, clock=self.clock)
        # BaseException: a KeyboardInterrupt or SystemExit in this thread would otherwise leave the test waiting for
        # both futures.
        except BaseException as group:
            error = lone_error(group)
            # Nobody waits for ``ended`` while ``begin`` waits for ``started``, so the error goes to both.
            if not self.started.done():
                self.started.set_exception(error)
            self.ended.set_exception(error)
        else:
            self.ended.set_result(None)

    async def _serve(self) -> None:
        with self.scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.broker.run)
                self.started.set_result(trio.lowlevel.current_trio_token())


def lone_error(error: BaseException) -> BaseException:
    """The error that is alone in a group, however deep; a group of several is returned as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class BrokerThread:
    """A broker in a thread. Use it as a context manager, or call ``start`` and ``stop``.

    It can be started again after a stop: with the same data, and at the same port, so that clients find it.
    """

    def __init__(self, data_directory: Path | None = None, *, admin: bool = False, **settings: Setting) -> None:
        """Take the settings, Kafka's keys with ``_`` for the dots: ``num_partitions=3``. Nothing runs yet.

        Without ``data_directory`` the data lies in a temporary one, which is removed at the end of the ``with`` block,
        or when this object goes. ``TMPDIR`` says where that is; on a tmpfs no start waits for a disk. ``admin`` turns
        on the admin page and HTTP API, which makes the start slower.
        """
        self.clock = AdvancingClock()
        self.data_directory = data_directory or self._temporary_directory()
        self._settings = {name.replace("_", "."): setting_text(value) for name, value in settings.items()}
        if admin:
            self._settings.setdefault("admin.listener", ADMIN_ON_ANY_PORT)
        self._bootstrap_servers = ""
        self._life: Life | None = None

    def _temporary_directory(self) -> Path:
        path = tempfile.mkdtemp(prefix="trio-broker-")
        self._remove_data = weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
        return Path(path)

    _remove_data: Callable[[], object] | None = None

    # ---- what clients need

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, as clients take it; the first listener's where there are several."""
        assert self._bootstrap_servers, "the broker was not started"
        return self._bootstrap_servers

    @property
    def admin_url(self) -> str | None:
        """Where the admin page is; None where it is off."""
        return self.broker.admin_url

    @property
    def broker(self) -> Broker:
        """The broker itself. It belongs to its thread: read it with care, and change it only inside ``call``."""
        return self._living.broker

    @property
    def is_running(self) -> bool:
        return self._life is not None and not self._life.ended.done()

    @property
    def _living(self) -> Life:
        if self._life is None:
            raise BrokerDoesNotRun("the broker was not started, or was stopped")
        return self._life

    # ---- starting and stopping

    def start(self) -> BrokerThread:
        """Start the broker, and return when clients are served.

        Raises:
            ConfigError: a setting is unknown or not valid.
            StartupError: a port is taken, or the data directory cannot be used.
        """
        assert self._life is None, "the broker runs"
        config = load_broker_config(None, self._all_settings(), {})
        # A warning is an unknown key, here most likely a misspelt one: a test must not pass without its setting.
        if config.warnings:
            raise ConfigError("; ".join(config.warnings))
        life = Life(Broker(config, clock=self.clock), self.clock)
        life.begin()
        self._life = life
        endpoint = life.broker.bound_endpoints[0]
        self._bootstrap_servers = f"{endpoint.host}:{endpoint.port}"
        return self

    def _all_settings(self) -> dict[str, str]:
        settings = {**TEST_SETTINGS, "log.dirs": str(self.data_directory), **self._settings}
        if self._bootstrap_servers and "listeners" not in self._settings:
            # The port of the first start, which the system picked: clients of before find the broker again.
            settings["listeners"] = f"PLAINTEXT://{self._bootstrap_servers}"
        return settings

    def stop(self) -> None:
        """Stop cleanly, as an operator would. Does nothing when the broker does not run.

        Raises:
            Exception: what ended the broker earlier.
        """
        self._end(clean=True)

    def kill(self) -> None:
        """Stop without finishing or closing anything: the next start has to recover the logs, as after a crash."""
        self._end(clean=False)

    def _end(self, *, clean: bool) -> None:
        # Forgotten first: after an error of ``end`` the broker can be started again all the same.
        life, self._life = self._life, None
        if life is not None:
            life.end(clean=clean)

    def restart(self) -> None:
        """Stop cleanly and start again, with the same data and at the same port."""
        self.stop()
        self.start()

    def __enter__(self) -> BrokerThread:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Data that goes anyway need not be closed properly, which is most of the work of a stop.
        try:
            self._end(clean=self._remove_data is None)
        finally:
            if self._remove_data is not None:
                self._remove_data()

    # ---- what tests need

    def call(self, function: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Await ``function(*arguments)`` in the broker's own loop; from any thread but that one."""
        return self._living.call(lambda: function(*arguments))

    def advance_clock(self, seconds: float) -> None:
        """Let ``seconds`` pass for the broker at once, and return when what came due by it is done.

        That is: retention, removal of deleted files, expiry of producers, checkpoints. Sleeping tasks and deadlines
        follow as well. Clients have clocks of their own, which this does not move.
        """

        async def advance() -> None:
            self.clock.advance(seconds)
            # The duties' own tasks are due now too; done here, they are over when this returns.
            for task in self.broker.services.replicas.log_maintenance.tasks():
                await run_once(task)

        self.call(advance)

    def create_topic(self, name: str, partitions: int = 1, **configs: Setting) -> str:
        """Create a topic, with topic settings written as ``cleanup_policy="compact"``; returns its id as text.

        Raises:
            KafkaError: it exists, or its name or a setting is refused.
        """
        texts = {key.replace("_", "."): setting_text(value) for key, value in configs.items()}
        wanted = NewTopic(name=name, num_partitions=partitions, configs=texts)

        async def create() -> str:
            [outcome] = await self.broker.services.controller.create_topics([wanted])
            if isinstance(outcome, KafkaError):
                raise outcome
            return uuid_text(outcome.topic_id)

        return self.call(create)


def broker_in_thread(data_directory: Path | None = None, *, admin: bool = False, **settings: Setting) -> BrokerThread:
    """A started ``BrokerThread``, to be used in a ``with`` statement, which stops it and removes its data.

    Raises:
        ConfigError, StartupError: as ``BrokerThread.start``.
    """
    return BrokerThread(data_directory, admin=admin, **settings).start()


def setting_text(value: Setting) -> str:
    """The text of a setting as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
