"""Transactional producers, groups that move records in transactions, and readers of committed records.

Producers are of both protocols. One of the first (before KIP-890) names partitions and groups before it writes to
them, and keeps its epoch; one of the second goes on with the epoch that each end of a transaction gives it. Several may
have one transactional id at a time, of which all but the newest are fenced. They leave transactions open, and sleep in
the middle of them for longer than these may take.

What the first protocol does not promise is not asked of it: a request that comes after the next transaction has begun
is part of that. So only those requests of such a producer come late that it never sends again, and after one it begins
anew with InitProducerId (KIP-360), as Kafka's own producer does.

Source: Kafka's TransactionManager and Fetcher; KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kafka_wire.messages.produce import ProduceResponse
from kafka_wire.messages.txn_offset_commit import TxnOffsetCommitResponse
from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.control import EndTransactionMarker, read_control_record
from kafka_wire.records.record import NewRecord
from tests.checking.history import Op, Outcome, Record
from tests.compat.transaction_requests import (
    FIRST,
    NEWEST_OF_THE_FIRST_ADD,
    PROTOCOLS,
    READ_COMMITTED,
    SECOND,
    Producer,
    Protocol,
    add_offsets,
    add_partitions,
    commit_offsets,
    end,
    init,
    init_again,
    produce,
)
from tests.simulation.simulated_clients import RETRIABLE, RETRY_SECONDS, SIZES, TOPIC
from tests.simulation.simulated_members import STALE, ClassicMember, ConsumerMember, LostMembership, Member, Rebalancing
from tests.simulation.simulated_world import Connection, ConnectionLost, Draft, World

OUTPUT_TOPIC = "shipments"

TRANSACTION_SECONDS = 5.0
"""How long a transaction may be open."""

CONNECTIONS_LOST = 4
"""Losses of the connection after which a producer gives its transaction up rather than send a batch again."""

KILLED_AT_THE_END = 0.2
"""How likely it is that a producer that does not see the end of its transaction begins anew."""

AGAIN = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS}

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})

ABORTABLE = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


class Fenced(Exception):
    """Another producer has the transactional id, or the transaction has timed out."""


class MustAbort(Exception):
    """The transaction cannot be committed any more."""


@attrs.define(eq=False)
class TransactionalProducer:
    """One producer of ``transactional_id``, which writes to ``partitions`` partitions of the output."""

    world: World
    name: str
    transactional_id: str
    protocol: Protocol
    partitions: int
    producer: Producer | None = None
    is_leaving: bool = False
    _sequences: dict[int, int] = attrs.field(factory=lambda: defaultdict(int))
    _must_init: bool = False
    _connection: Connection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._connection = self.world.connection(f"{self.name} producer")

    async def run(self, until: float) -> None:
        """Write one transaction after another until ``until``; one that is fenced mostly ends."""
        chance = self.world.random
        while trio.current_time() < until and not self.is_leaving:
            await self.world.pause()
            records = [
                Record(chance.randrange(self.partitions), -1, self.world.new_value())
                for _ in range(chance.randint(1, 4))
            ]
            try:
                await self.transact(records, commits=chance.random() < 0.75)
            except Fenced:
                self.producer = None
                if chance.random() < 0.5:
                    break
        self._connection.close()

    # ---- requests

    async def begin(self) -> Producer:
        """Take the transactional id, if this producer does not have it; keep it after errors of its own.

        Raises:
            Fenced: another one has it.
        """
        if self.producer is not None and not self._must_init:
            return self.producer
        timeout_ms = round(TRANSACTION_SECONDS * 1000)
        if self.producer is None:
            await self._find_coordinator()
            request = init(self.transactional_id, timeout_ms=timeout_ms)
        else:
            request = init_again(self.producer, timeout_ms=timeout_ms)
        while True:
            code = ErrorCode.NONE
            try:
                with self.world.doing(self.name, Op.INIT_PRODUCER_ID, transactional_id=self.transactional_id) as draft:
                    response = await self._connection.ask(request, 5, may_be_late=True)
                    if code := ErrorCode(response.error_code):
                        draft.failed(code.name, Outcome.FAIL)
            except ConnectionLost:
                code = ErrorCode.REQUEST_TIMED_OUT
            if not code:
                self.producer = Producer(self.transactional_id, response.producer_id, response.producer_epoch)
                self._sequences.clear()
                self._must_init = False
                return self.producer
            if code in FENCED:
                raise Fenced
            assert code in AGAIN, code.name
            await trio.sleep(RETRY_SECONDS)

    async def _find_coordinator(self) -> None:
        while True:
            try:
                request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
                response = await self._connection.ask(request, 4)
                code = ErrorCode(response.coordinators[0].error_code)
            except ConnectionLost:
                code = ErrorCode.REQUEST_TIMED_OUT
            if not code:
                return
            assert code in RETRIABLE, code.name
            await trio.sleep(RETRY_SECONDS)

    async def _until_done(self, request: Any, version: int, *, may_be_late: bool) -> Any:
        """Send a request until its answer says more than to try again; return that answer, which is no error.

        Raises:
            Fenced, MustAbort, LostMembership, Rebalancing: it is one.
        """
        is_first, lost = self.protocol is FIRST, 0
        while True:
            try:
                response = await self._connection.ask(request, version, may_be_late=may_be_late)
            except ConnectionLost:
                lost += 1
                if (is_first and may_be_late) or lost > CONNECTIONS_LOST:
                    self._must_init = is_first
                    raise MustAbort("connections were lost") from None
            else:
                code = first_error(response)
                if not code:
                    return response
                if code in FENCED:
                    raise Fenced
                if code in STALE:
                    raise LostMembership(code.name)
                if code is ErrorCode.REBALANCE_IN_PROGRESS:
                    raise Rebalancing
                if code in ABORTABLE:
                    self._must_init = is_first
                    raise MustAbort(code.name)
                assert code in AGAIN, code.name
            await trio.sleep(RETRY_SECONDS)

    # ---- a transaction

    async def transact(
        self,
        records: Sequence[Record],
        *,
        commits: bool,
        inputs: Sequence[Record] = (),
        offsets: Mapping[int, int] | None = None,
        member: Member | None = None,
    ) -> Outcome:
        """Write ``records``, and commit ``offsets`` for the group of ``member``, in one transaction.

        Raises:
            Fenced: another has decided, or perhaps this one has committed before.
            LostMembership, Rebalancing: nothing is committed.
        """
        producer = await self.begin()
        group = member.group_id if member is not None else ""
        error: Exception | None = None
        given: dict[str, Any] = {"transactional_id": self.transactional_id, "inputs": tuple(inputs)}
        with self.world.doing(self.name, Op.TRANSACTION, group, records=tuple(records), **given) as draft:
            draft.failed("never asked to commit", Outcome.FAIL)
            try:
                await self._write(producer, records, draft)
                await self._dawdle()
                if member is None:
                    await self._end_or_leave(producer, draft, commits=commits)
                else:
                    with self._committing(member, offsets or {}) as commit:
                        await self._commit_offsets(producer, member, offsets or {})
                        await self._end_or_leave(producer, draft, commits=commits)
                        commit.outcome = draft.outcome
            except Fenced as fenced:
                # Another may have aborted it before; if it was committed, this one had asked for that.
                if draft.outcome is not Outcome.INFO:
                    draft.fields.pop("ending", None)
                error = fenced
            except (MustAbort, LostMembership, Rebalancing) as refused:
                error = await self._abort(producer, draft, refused)
        if error is not None:
            raise error
        return draft.outcome

    async def _abort(self, producer: Producer, draft: Draft, reason: Exception) -> Exception | None:
        """Abort because of ``reason``; return what is to be raised."""
        self.world.note(self.name, "aborts", str(reason))
        try:
            await self._end(producer, draft, commits=False)
        except Fenced as fenced:
            draft.fields.pop("ending", None)
            return fenced
        return None if isinstance(reason, MustAbort) else reason

    @contextmanager
    def _committing(self, member: Member, offsets: Mapping[int, int]) -> Iterator[Draft]:
        """Record the commit of offsets, which the group takes back if the transaction is not committed."""
        given: dict[str, Any] = {"offsets": dict(offsets), "member_id": member.member_id, "generation": member.epoch}
        error: Exception | None = None
        with self.world.doing(member.name, Op.COMMIT, member.group_id, **given) as draft:
            draft.failed("not committed", Outcome.FAIL)
            try:
                yield draft
            except (MustAbort, LostMembership, Rebalancing) as refused:
                error = refused
        if error is not None:
            raise error

    async def _write(self, producer: Producer, records: Sequence[Record], draft: Draft) -> None:
        by_partition: dict[int, list[Record]] = defaultdict(list)
        for record in records:
            by_partition[record.partition].append(record)
        if self.protocol is FIRST:
            added = add_partitions(producer, {OUTPUT_TOPIC: sorted(by_partition)})
            await self._until_done(added, NEWEST_OF_THE_FIRST_ADD, may_be_late=False)
        placed: list[Record] = []
        for partition, some in by_partition.items():
            batch = build_batch(
                [NewRecord(1_700_000_000_000, None, str(record.value).encode()) for record in some],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=self._sequences[partition],
                transactional=True,
            )
            request = produce(producer, OUTPUT_TOPIC, {partition: batch})
            response = await self._until_done(
                request, self.protocol.produce, may_be_late=self.protocol is SECOND or self.world.random.random() < 0.3
            )
            self._sequences[partition] += len(some)
            base_offset = response.responses[0].partition_responses[0].base_offset
            placed += [Record(partition, base_offset + at, record.value) for at, record in enumerate(some)]
            left = [record for record in records if record.value not in {each.value for each in placed}]
            draft.fields["records"] = (*placed, *left)

    async def _dawdle(self) -> None:
        """Think for a moment, now and then for longer than a transaction may take."""
        chance = self.world.random
        await trio.sleep(chance.expovariate(20))
        if self.world.faults and chance.random() < 0.04:
            with self.world.doing(self.name, Op.STALL):
                await trio.sleep(TRANSACTION_SECONDS * chance.uniform(0.3, 3))

    async def _commit_offsets(self, producer: Producer, member: Member, offsets: Mapping[int, int]) -> None:
        is_second = self.protocol is SECOND
        if not is_second:
            await self._until_done(add_offsets(producer, member.group_id), 3, may_be_late=False)
        request = commit_offsets(
            producer, member.group_id, {TOPIC: offsets}, member=member.member_id, generation=member.epoch
        )
        await self._until_done(request, self.protocol.commit_offsets, may_be_late=is_second)

    async def _end_or_leave(self, producer: Producer, draft: Draft, *, commits: bool) -> None:
        """End the transaction, or begin anew as one that was killed does."""
        if self.world.faults and self.world.random.random() < 0.04:
            self.producer = None
        else:
            await self._end(producer, draft, commits=commits)

    async def _end(self, producer: Producer, draft: Draft, *, commits: bool) -> None:
        """Commit or abort, and tell ``draft`` what is known of it.

        Raises:
            Fenced: another has decided, or this one has and did not see it.
        """
        draft.fields.setdefault("ending", self.world.now())
        request, is_second = end(producer, committed=commits), self.protocol is SECOND
        while True:
            try:
                response = await self._connection.ask(request, self.protocol.end, may_be_late=is_second)
            except ConnectionLost:
                code = ErrorCode.REQUEST_TIMED_OUT
                if self.world.random.random() < KILLED_AT_THE_END:
                    # It is killed, and its successor does not know what it had asked for.
                    self.producer = None
                    draft.failed("killed at the end", Outcome.INFO if commits else Outcome.FAIL)
                    if not commits:
                        # It may have timed out before.
                        draft.fields.pop("ending")
                    return
            else:
                code = ErrorCode(response.error_code)
            if not code:
                break
            if code in FENCED:
                raise Fenced
            if code in ABORTABLE:
                self._must_init = True
                draft.fields.pop("ending", None)
                return
            assert code in AGAIN, code.name
            if commits and code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                draft.failed(code.name, Outcome.INFO)
            await trio.sleep(RETRY_SECONDS)
        draft.failed("", Outcome.OK if commits else Outcome.FAIL)
        if is_second and not commits:
            # The coordinator may have aborted it before: an abort by time-out counts as the producer's own.
            draft.fields.pop("ending")
        if is_second:
            self.producer = Producer(self.transactional_id, response.producer_id, response.producer_epoch)
            self._sequences.clear()


def first_error(response: Any) -> ErrorCode:
    """The first error in a response, wherever it stands."""
    match response:
        case AddPartitionsToTxnResponse():
            found = [
                partition.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            ]
        case ProduceResponse():
            found = [each.error_code for topic in response.responses for each in topic.partition_responses]
        case TxnOffsetCommitResponse():
            found = [each.error_code for topic in response.topics for each in topic.partitions]
        case _:
            found = [response.error_code]
    codes = [ErrorCode(code) for code in found if code]
    # Where one partition is refused, the others are not attempted, which says nothing.
    return next((code for code in codes if code is not ErrorCode.OPERATION_NOT_ATTEMPTED), ErrorCode.NONE)


# ---- groups


class Mover(Member):
    """Writes a record for each that it reads, in transactions that commit its offsets."""

    pending: list[Record]
    """What was read and not moved yet."""
    producer: TransactionalProducer

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.pending = []
        protocol = self.world.random.choice(PROTOCOLS)
        self.producer = TransactionalProducer(self.world, self.name, self.name, protocol, self.partitions)

    def received(self, records: Sequence[Record]) -> None:
        self.pending += records

    def _drop(self, partitions: Iterable[int]) -> tuple[int, ...]:
        gone = super()._drop(partitions)
        self.pending = [record for record in self.pending if record.partition not in gone]
        return gone

    async def commit(self) -> None:
        if not self.pending:
            return
        chance, moved = self.world.random, self.pending
        self.pending = []
        written = [Record(chance.randrange(self.partitions), -1, self.world.new_value()) for _ in moved]
        offsets = {record.partition: self.reader.positions[record.partition] for record in moved}
        commits = not self.world.faults or chance.random() < 0.85
        try:
            outcome = await self.producer.transact(written, commits=commits, inputs=moved, offsets=offsets, member=self)
        except Fenced:
            self.producer.producer = None
            outcome = Outcome.INFO
        if outcome is not Outcome.OK:
            await self._rewind()

    async def _rewind(self) -> None:
        """Read again what was not moved. The transaction before is ended first: its offsets are pending."""
        with suppress(Fenced):
            await self.producer.begin()
        owned = sorted(self.owned)
        if owned:
            offsets = await self.committed_offsets(owned)
            self.reader.positions |= {partition: offsets.get(partition) or 0 for partition in owned}


class ClassicMover(Mover, ClassicMember):
    """Of the classic protocol."""


class ConsumerMover(Mover, ConsumerMember):
    """Of the consumer protocol."""


async def committed_by(world: World, group: str) -> dict[int, int | None]:
    """What ``group`` has committed for the topic that it reads, once no transaction has a commit pending."""
    connection = world.connection("accountant")
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True)
    while True:
        with suppress(ConnectionLost):
            found = (await connection.ask(request, 9)).groups[0]
            places = [each for topic in found.topics for each in topic.partitions]
            if not found.error_code and not any(each.error_code for each in places):
                connection.close()
                return {each.partition_index: each.committed_offset for each in places}
        await trio.sleep(RETRY_SECONDS)


# ---- readers


@attrs.define(eq=False)
class CommittedReader:
    """Reads the committed records of the output from the beginning, over and over."""

    world: World
    name: str
    partitions: int
    done: trio.Event = attrs.field(factory=trio.Event)

    async def run(self) -> None:
        while not self.done.is_set():
            await self._read_all(retry=False)
            await trio.sleep(self.world.random.expovariate(0.7))

    async def read_to_the_end(self) -> dict[int, list[Record]]:
        """Read everything, once no transaction holds anything back."""
        return await self._read_all(retry=True)

    async def _read_all(self, *, retry: bool) -> dict[int, list[Record]]:
        """Read from the beginning; if ``retry`` up to the high watermark, else until there is nothing or an error."""
        connection = self.world.connection(self.name)
        positions = dict.fromkeys(range(self.partitions), 0)
        found: dict[int, list[Record]] = {index: [] for index in positions}
        left = set(positions)
        while left:
            response = None
            with suppress(ConnectionLost), self.world.doing(self.name, Op.READ_COMMITTED) as draft:
                response = await connection.ask(self._fetch(positions, left), 11)
                self._note(response, positions, draft)
                for record in draft.fields["records"]:
                    found[record.partition].append(record)
            if response is not None:
                is_read = ended if retry else stopped
                left -= {each.partition_index for each in data_of(response) if is_read(each, positions)}
            elif not retry:
                break
            if retry and left:
                await trio.sleep(RETRY_SECONDS)
        connection.close()
        return found

    def _fetch(self, positions: Mapping[int, int], partitions: Iterable[int]) -> FetchRequest:
        chance = self.world.random
        wanted = [
            FetchPartition(partition=each, fetch_offset=positions[each], partition_max_bytes=chance.choice(SIZES))
            for each in sorted(partitions)
        ]
        topics = [FetchTopic(topic=OUTPUT_TOPIC, partitions=wanted)]
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1_000_000,
            isolation_level=READ_COMMITTED,
            topics=topics,
            forgotten_topics_data=[],
        )

    def _note(self, response: FetchResponse, positions: dict[int, int], draft: Draft) -> None:
        """Move ``positions`` on, and tell ``draft`` what was read."""
        records: list[Record] = []
        stable_offsets: dict[int, int] = {}
        for each in data_of(response):
            code = ErrorCode(each.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE and self.world.loses_log:
                positions[each.partition_index] = 0
                continue
            assert not code or code in RETRIABLE, f"{each.partition_index}: {code.name}"
            if not code:
                stable_offsets[each.partition_index] = each.last_stable_offset
                some, end = committed_records(each, positions[each.partition_index])
                records += some
                positions[each.partition_index] = end
        draft.fields |= {"records": tuple(records), "offsets": stable_offsets}


def data_of(response: FetchResponse) -> list[PartitionData]:
    return [each for topic in response.responses for each in topic.partitions]


def stopped(data: PartitionData, positions: Mapping[int, int]) -> bool:
    """Whether there was nothing more to read at the moment, or an error."""
    return bool(data.error_code) or positions[data.partition_index] >= data.last_stable_offset


def ended(data: PartitionData, positions: Mapping[int, int]) -> bool:
    """Whether everything is read, and nothing undecided."""
    return not data.error_code and positions[data.partition_index] == data.last_stable_offset == data.high_watermark


def committed_records(data: PartitionData, position: int) -> tuple[list[Record], int]:
    """The records from ``position`` on that were not aborted, as consumers find them, and where to go on."""
    aborted = sorted(data.aborted_transactions or (), key=lambda each: each.first_offset, reverse=True)
    aborting: set[int] = set()
    found, end = [], position
    for batch in read_batches(memoryview(data.records or b"")):
        header = batch.header
        end = max(end, header.next_offset)
        while aborted and aborted[-1].first_offset <= header.last_offset:
            aborting.add(aborted.pop().producer_id)
        if header.is_control:
            marker = read_control_record(next(iter(batch.records())))
            if isinstance(marker, EndTransactionMarker) and not marker.committed:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            for record in batch.records():
                if record.offset >= position:
                    assert record.value is not None
                    found.append(Record(data.partition_index, record.offset, int(record.value)))
    return found, end
