"""An etcd of promises: what etcd guarantees its clients, and nothing stronger, in virtual time and from a seed.

``ModelledEtcd`` is the cluster, ``ModelledEtcdClient`` what a process has in the place of ``EtcdClient``. Promised are:

* a transaction is atomic, sees the state of its own moment, and is there for ever once it was answered;
* a call that was not answered is carried out once or never, at any later time, also when its caller is gone;
* a key has its birth's revision until it is deleted, and no revision twice; a lease takes its keys with it, for good;
* a watch gives events in order, after any time.

``EtcdFaults`` has the shares of calls and leases to which something happens; ``cut``, ``stop``, ``pause``,
``lose_leader`` and ``state`` are for the test. A lease ends at any time after its time to live, and with
``early_expiry`` before it. ``is_3_4`` adds what etcd 3.4 does beyond that: stale reads, renewals of leases that are
gone, watches that lose events.

Source: etcd's documentation of its API guarantees; its issues 12528, 15247.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import Any, Final, TypeVar

import attrs
import trio

from tests.fakes.etcd_state import EtcdState
from trio_broker.cluster.etcd.client import CALL_SECONDS, Watch
from trio_broker.cluster.etcd.errors import EtcdError, EtcdUnavailable, EtcdUnknown
from trio_broker.cluster.etcd.messages import (
    Compare,
    Event,
    LeaseGrantResponse,
    LeaseKeepAliveResponse,
    RequestOp,
    StatusResponse,
    TxnRequest,
    TxnResponse,
    WatchResponse,
)
from trio_broker.runtime.simulated_volume import ProcessEnded

T = TypeVar("T")

MAX_DELAY_SECONDS: Final = 60.0
STALE_SECONDS: Final = 3.0
MIN_TTL_SECONDS: Final = 2
ELECTION_SECONDS: Final = 1.0
NO_LEADER_SECONDS: Final = 4.0
"""After which a member without a leader ends its watches."""


@attrs.frozen(kw_only=True)
class EtcdFaults:
    """Shares of what it happens to, from 0 to 1."""

    answer_lost: float = 0
    delayed: float = 0
    request_lost: float = 0
    leader_changed: float = 0
    """Of calls that fail so: carried out or not."""
    too_many_requests: float = 0
    slow: float = 0
    early_expiry: float = 0
    long_expiry: float = 0
    watch_late: float = 0
    watch_silent: float = 0
    watch_closed: float = 0
    is_3_4: bool = False
    stale: float = 0
    false_renewal: float = 0
    watch_loses: float = 0
    watch_repeats: float = 0


NO_FAULTS: Final = EtcdFaults()

SOME_FAULTS: Final = EtcdFaults(
    answer_lost=0.03,
    delayed=0.03,
    request_lost=0.03,
    leader_changed=0.02,
    too_many_requests=0.02,
    slow=0.05,
    early_expiry=0.02,
    long_expiry=0.3,
    watch_late=0.1,
    watch_silent=0.02,
    watch_closed=0.02,
    is_3_4=True,
    stale=0.1,
    false_renewal=0.5,
    watch_loses=0.05,
    watch_repeats=0.05,
)


@attrs.define
class Lease:
    ttl: int
    deadline: float


@attrs.define
class Reply:
    """The answer to a call, when there is one."""

    event: trio.Event = attrs.field(factory=trio.Event)
    result: Any = None
    error: EtcdError | None = None


class ModelledEtcd:
    """The cluster. ``run`` has to run in the background; a client is made by ``client``."""

    def __init__(self, random: Random, faults: EtcdFaults = NO_FAULTS) -> None:
        self.random, self.faults = random, faults
        self.state = EtcdState()
        self._leases: dict[int, Lease] = {}
        self._revisions: list[tuple[float, int]] = []
        self._nursery: trio.Nursery | None = None
        # Called after each revision, before anything else happens.
        self.on_change: Callable[[], object] = lambda: None
        self._changed = trio.Event()
        self.is_stopped = False
        self.is_paused = False
        self.has_leader = True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def client(self) -> ModelledEtcdClient:
        return ModelledEtcdClient(self)

    # --- What a test does to it ---

    def stop(self) -> None:
        """End the processes: connections are refused, and no lease expires."""
        self.is_stopped = True
        self.note_change()

    def start(self) -> None:
        self.is_stopped = False
        self._refresh_leases()

    def pause(self) -> None:
        """Stop the processes without ending them: nothing is answered, and leases run on."""
        self.is_paused = True
        self.note_change()

    def resume(self) -> None:
        self.is_paused = False
        self.note_change()

    def lose_leader(self) -> None:
        self.has_leader = False
        self.note_change()

    def elect_leader(self) -> None:
        self.has_leader = True
        self._refresh_leases()

    def note_change(self) -> None:
        """Wake whatever waits for another state."""
        self._changed.set()
        self._changed = trio.Event()

    def _refresh_leases(self) -> None:
        """A new leader does not know how old leases are."""
        for lease in self._leases.values():
            lease.deadline = trio.current_time() + lease.ttl + ELECTION_SECONDS
        self.note_change()

    def happens(self, share: float) -> bool:
        return self.random.random() < share

    # --- Calls ---

    def submit(self, client: ModelledEtcdClient, operation: Callable[[], Any]) -> Reply:
        """Take a call. It goes its way whatever becomes of its caller."""
        assert self._nursery is not None, "run() has to run"
        reply = Reply()
        self._nursery.start_soon(self._process, client, operation, reply)
        return reply

    async def _process(self, client: ModelledEtcdClient, operation: Callable[[], Any], reply: Reply) -> None:
        random, faults = self.random, self.faults
        await trio.sleep(self._latency())
        if self.is_stopped and not client.is_cut:
            self._answer(reply, error=EtcdUnavailable("connection refused"))
            return
        if not await self._until_served(client) or self.happens(faults.request_lost):
            return
        if self.happens(faults.delayed):
            await trio.sleep(random.random() * random.choice((2.0, 10.0, MAX_DELAY_SECONDS)))
            while self.is_stopped or self.is_paused or not self.has_leader:
                await self._changed.wait()
            self._carry_out(operation, Reply())
            return
        if self.happens(faults.too_many_requests):
            self._answer(reply, error=EtcdUnavailable("etcdserver: too many requests"))
            return
        if self.happens(faults.leader_changed):
            if self.happens(0.5):
                self._carry_out(operation, Reply())
            self._answer(reply, error=EtcdUnknown("etcdserver: leader changed"))
            return
        done = Reply()
        self._carry_out(operation, done)
        await trio.sleep(self._latency())
        if self.happens(faults.answer_lost) or client.is_cut:
            return
        reply.result, reply.error = done.result, done.error
        reply.event.set()

    async def _until_served(self, client: ModelledEtcdClient) -> bool:
        """Wait until the client is connected to a cluster that works; False if the call was lost meanwhile."""
        is_lost = False
        while client.is_cut or self.is_stopped or self.is_paused or not self.has_leader:
            is_lost = is_lost or self.happens(0.5)
            await self._changed.wait()
        return not is_lost

    def _carry_out(self, operation: Callable[[], Any], reply: Reply) -> None:
        before = self.state.revision
        try:
            reply.result = operation()
        except EtcdError as error:
            reply.error = error
        if self.state.revision != before:
            self._revisions.append((trio.current_time(), self.state.revision))
            self.on_change()
            self.note_change()

    def _answer(self, reply: Reply, *, error: EtcdError) -> None:
        reply.error = error
        reply.event.set()

    def _latency(self) -> float:
        if self.happens(self.faults.slow):
            return self.random.choice((0.1, 0.2, 0.4, 2.0))
        return self.random.uniform(0.0005, 0.003)

    def stale_revision(self) -> int | None:
        """A revision of the last seconds at which a member answers that does not know better."""
        if not (self.faults.is_3_4 and self.happens(self.faults.stale)):
            return None
        since = trio.current_time() - STALE_SECONDS
        revisions = [revision for time, revision in self._revisions if time >= since]
        older = [revision for revision in revisions if revision >= self.state.compact_revision]
        return self.random.choice(older) if older else None

    # --- Leases ---

    def grant(self, ttl: int) -> LeaseGrantResponse:
        lease_id = self.state.grant()
        lease = self._leases[lease_id] = Lease(max(ttl, MIN_TTL_SECONDS), 0)
        self._extend(lease)
        assert self._nursery is not None
        self._nursery.start_soon(self._expire, lease_id, lease)
        return LeaseGrantResponse(id=lease_id, ttl=lease.ttl)

    def keep_alive(self, lease_id: int) -> LeaseKeepAliveResponse:
        if (lease := self._leases.get(lease_id)) is None:
            renewed = self.faults.is_3_4 and self.happens(self.faults.false_renewal)
            return LeaseKeepAliveResponse(id=lease_id, ttl=MIN_TTL_SECONDS if renewed else 0)
        self._extend(lease)
        return LeaseKeepAliveResponse(id=lease_id, ttl=lease.ttl)

    def revoke(self, lease_id: int) -> None:
        self._leases.pop(lease_id, None)
        self.state.revoke(lease_id)

    def _extend(self, lease: Lease) -> None:
        life = float(lease.ttl)
        if self.happens(self.faults.early_expiry):
            life *= self.random.random()
        elif self.happens(self.faults.long_expiry):
            life += self.random.uniform(0, lease.ttl + 3)
        lease.deadline = trio.current_time() + life

    async def _expire(self, lease_id: int, lease: Lease) -> None:
        while lease_id in self._leases:
            if self.is_stopped or self.is_paused or not self.has_leader:
                await self._changed.wait()
            elif trio.current_time() < lease.deadline:
                # A later renewal may be shorter than this one.
                with trio.move_on_at(min(lease.deadline, trio.current_time() + 0.5)):
                    await self._changed.wait()
            else:
                self._carry_out(lambda: self.revoke(lease_id), Reply())

    # --- Watches ---

    async def next_events(self, client: ModelledEtcdClient, watch: ModelledWatch) -> WatchResponse:
        """Wait for events of ``watch``, and return them.

        Raises:
            EtcdError: the watch has ended.
        """
        faults = self.faults
        while True:
            if self.happens(faults.watch_silent):
                await trio.sleep_forever()
            if self.is_stopped and not client.is_cut:
                raise EtcdUnknown("the member closed the connection")
            if not client.is_cut and not self.is_paused and not self.has_leader:
                with trio.move_on_after(NO_LEADER_SECONDS):
                    await self._changed.wait()
                    continue
                raise EtcdUnknown("etcdserver: no leader")
            if client.is_cut or self.is_paused:
                await self._changed.wait()
                continue
            if watch.next_revision < self.state.compact_revision:
                raise EtcdUnavailable(f"compacted up to {self.state.compact_revision}")
            found = self.state.events_from(watch.next_revision, watch.key, watch.range_end)
            if found:
                break
            await self._changed.wait()
        if self.happens(faults.watch_closed):
            raise EtcdUnknown("the connection broke")
        await trio.sleep(self.random.uniform(0, 10) if self.happens(faults.watch_late) else self._latency())
        if not (faults.is_3_4 and self.happens(faults.watch_repeats)):
            watch.next_revision = found[-1][0] + 1
        events: list[Event] = [event for _, event in found]
        if faults.is_3_4 and self.happens(faults.watch_loses):
            events.pop(self.random.randrange(len(events)))
        return WatchResponse(header=self.state.header(), events=events)


@attrs.define
class ModelledWatch:
    """A watch that has begun."""

    etcd: ModelledEtcd
    client: ModelledEtcdClient
    key: bytes
    range_end: bytes
    next_revision: int

    async def receive(self) -> WatchResponse:
        return await self.etcd.next_events(self.client, self)


class ModelledEtcdClient:
    """A process's way to the cluster, see ``Etcd``. ``cut`` isolates it."""

    def __init__(self, etcd: ModelledEtcd) -> None:
        self._etcd = etcd
        self.is_cut = False
        # Of a process in a simulation that has ended: whatever is left of it raises ``ProcessEnded``.
        self.is_ended = False

    def cut(self) -> None:
        self.is_cut = True
        self._etcd.note_change()

    def heal(self) -> None:
        self.is_cut = False
        self._etcd.note_change()

    async def txn(
        self, compare: Sequence[Compare], success: Sequence[RequestOp], failure: Sequence[RequestOp] = ()
    ) -> TxnResponse:
        request, etcd = TxnRequest(compare=compare, success=success, failure=failure), self._etcd
        return await self._call(lambda: etcd.state.txn(request, as_of=etcd.stale_revision()))

    async def lease_grant(self, ttl_seconds: int) -> LeaseGrantResponse:
        return await self._call(lambda: self._etcd.grant(ttl_seconds))

    async def lease_keep_alive(self, lease_id: int) -> LeaseKeepAliveResponse:
        return await self._call(lambda: self._etcd.keep_alive(lease_id))

    async def lease_revoke(self, lease_id: int) -> None:
        await self._call(lambda: self._etcd.revoke(lease_id))

    async def status(self) -> StatusResponse:
        errors = ["memberID:1 alarm:NOSPACE"] if self._etcd.state.no_space else []
        size = sum(len(kv.value) for versions in self._etcd.state.versions.values() for _, kv in versions if kv)
        return await self._call(lambda: StatusResponse(version="3.4.23", db_size=size, errors=errors))

    @contextlib.asynccontextmanager
    async def watch(self, key: bytes, range_end: bytes) -> AsyncIterator[Watch]:
        revision = await self._call(lambda: self._etcd.state.revision)
        yield ModelledWatch(self._etcd, self, key, range_end, revision + 1)

    async def _call(self, operation: Callable[[], T]) -> T:
        if self.is_ended:
            raise ProcessEnded
        reply = self._etcd.submit(self, operation)
        with trio.move_on_after(CALL_SECONDS):
            await reply.event.wait()
        if not reply.event.is_set():
            raise EtcdUnknown(f"no answer within {CALL_SECONDS:g} s")
        if reply.error is not None:
            raise reply.error
        result: T = reply.result
        return result
