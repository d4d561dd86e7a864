"""The transactions of a running broker, as the admin app and the metrics see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_admin.views.cluster.messages import BatchOutcome
from broker_admin.views.cluster.transactions import TransactionRefused
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.transactions import TransactionStatus
from tests.handlers.loop_rounds import counted_rounds
from tests.handlers.transaction_client import TransactionClient, running_transactions
from tests.leader_append import append_to_leader
from tests.partition.real_logs import batch
from trio_broker.broker_view.cluster.groups import LiveGroupsView
from trio_broker.broker_view.cluster.messages import LiveMessagesView
from trio_broker.broker_view.cluster.peers import LivePeersView
from trio_broker.broker_view.cluster.topics import LiveTopicsView
from trio_broker.broker_view.cluster.transactions import LiveTransactionsView
from trio_broker.changes.change import ChangeAction, ChangedResource
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency import yield_budget
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.transactions import transaction_report as reporting
from trio_broker.coordinator.transactions.transaction_report import OVERDUE_SECONDS

HANGING = ProducerIdAndEpoch(9_000, 2)
"""A producer that no coordinator knows."""


@pytest.fixture
async def client(memory_path: Path) -> AsyncIterator[TransactionClient]:
    async with running_transactions(memory_path, log_durability="page-cache") as opened:
        yield opened


@pytest.fixture
def view(client: TransactionClient) -> LiveTransactionsView:
    return LiveTransactionsView(client.wire.services, LivePeersView(client.wire.services))


async def begun(client: TransactionClient, *partitions: int, transactional_id: str = "id") -> ProducerIdAndEpoch:
    """A transaction with a record in each of ``partitions``; its producer."""
    producer = await client.begin(transactional_id)
    await client.add(producer, *partitions, transactional_id=transactional_id)
    for index in partitions:
        assert await client.produce(producer, index, transactional_id=transactional_id) == 0
    return producer


async def begin_hanging(client: TransactionClient, index: int) -> None:
    """A transactional batch of ``HANGING`` in a partition of ``t``, as a broker that verifies nothing let it in."""
    records = batch(
        b"lost",
        timestamp=client.wire.clock.now_ms() - 5_000,
        producer_id=HANGING.producer_id,
        producer_epoch=HANGING.epoch,
        base_sequence=0,
        transactional=True,
    )
    await append_to_leader(client.wire.services.replicas, client.partition(index), records)


async def write_plain(client: TransactionClient, index: int) -> None:
    records = batch(b"plain", timestamp=client.wire.clock.now_ms())
    await append_to_leader(client.wire.services.replicas, client.partition(index), records)


# --- what is open ---


async def test_an_open_transaction_is_shown_with_its_age_its_producer_and_its_client(client, view):
    producer = await begun(client, 0, 1)
    client.wire.clock.advance(12)
    [found] = (await view.report()).transactions
    assert (found.transactional_id, found.state, found.is_open, found.is_overdue) == ("id", "Ongoing", True, False)
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (found.age_seconds, found.timeout_ms, found.partition_count) == (12.0, 60_000, 2)
    assert found.started_at_ms == client.wire.clock.now_ms() - 12_000
    assert found.client_id == client.coordinator.describe("id").client_id


async def test_an_ended_transaction_is_not_open_and_has_no_age(client, view):
    producer = await begun(client, 0)
    await client.end(producer)
    await client.completed()
    [found] = (await view.report()).transactions
    assert (found.state, found.is_open, found.age_seconds, found.partition_count) == ("CompleteCommit", False, None, 0)
    assert (await view.report()).held_back == ()


async def test_a_transaction_whose_markers_are_missing_for_long_is_overdue(client, view):
    producer = await begun(client, 0)
    for shard in client.coordinator.runtime.shards.values():
        shard.machine._on_prepared = lambda transactional_id: None
    await client.end(producer)
    assert client.status() is TransactionStatus.PREPARE_COMMIT
    client.wire.clock.advance(OVERDUE_SECONDS + 1)
    [found] = (await view.report()).transactions
    assert (found.state, found.is_open, found.is_overdue, found.partition_count) == ("PrepareCommit", True, True, 1)
    assert (await view.statistics()).markers_pending == 1


# --- what is held back ---


async def test_a_partition_that_is_held_back_names_the_transaction_that_does(client, view):
    await write_plain(client, 1)
    producer = await begun(client, 1)
    await write_plain(client, 1)
    client.wire.clock.advance(7)
    [held] = (await view.report()).held_back
    assert (held.topic, held.partition, held.last_stable_offset, held.high_watermark) == ("t", 1, 1, 3)
    assert (held.held_back_records, held.first_offset, held.open_transactions) == (2, 1, 1)
    assert (held.producer_id, held.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (held.transactional_id, held.is_hanging, held.held_seconds) == ("id", False, 7.0)


async def test_a_transaction_that_no_coordinator_knows_hangs(client, view):
    await begin_hanging(client, 2)
    [held] = (await view.report()).held_back
    assert (held.partition, held.producer_id, held.producer_epoch) == (2, HANGING.producer_id, HANGING.epoch)
    assert (held.transactional_id, held.is_hanging, held.held_seconds) == (None, True, 5.0)
    statistics = await view.statistics()
    assert (statistics.partitions_held_back, statistics.hanging_transactions) == (1, 1)


async def test_the_transaction_that_began_first_is_the_one_that_holds_a_partition_back(client, view):
    first = await begun(client, 0, transactional_id="first")
    await begun(client, 0, transactional_id="second")
    [held] = (await view.report()).held_back
    assert (held.transactional_id, held.open_transactions, held.first_offset) == ("first", 2, 0)
    await client.end(first, transactional_id="first")
    await client.completed("first")
    fresh = LiveTransactionsView(client.wire.services, LivePeersView(client.wire.services))
    [held] = (await fresh.report()).held_back
    assert (held.transactional_id, held.open_transactions) == ("second", 1)


async def test_nothing_is_called_hanging_while_transactions_are_loaded(client, view, monkeypatch):
    await begin_hanging(client, 0)

    def loading() -> None:
        raise KafkaError("shards load", code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    monkeypatch.setattr(client.coordinator, "transactions", loading)
    report = await view.report()
    assert report.is_complete is False
    assert [each.is_hanging for each in report.held_back] == [None]


async def test_a_transaction_that_ends_while_the_report_is_made_is_not_called_hanging(client, view, monkeypatch):
    """Its marker is written between the look at the partition and the look at the coordinator."""
    producer = await begun(client, 0)
    look = reporting.holding_transaction
    ended = False

    def then_end(partition):
        nonlocal ended
        held = look(partition)
        if held is not None and not ended:
            ended = True
            client.coordinator.runtime.shard_for("id").machine.transactions.pop("id")
            partition.log.producers.transactions.decide(0, 1)
        return held

    monkeypatch.setattr(reporting, "holding_transaction", then_end)
    assert (await view.report()).held_back == ()
    assert producer.epoch == 0


async def test_ten_thousand_ids_do_not_hold_the_loop(client, view, monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", 0.0)
    await begun(client, 0)
    [machine] = [shard.machine for shard in client.coordinator.runtime.shards.values() if shard.machine.transactions]
    machine.transactions |= {f"id-{number}": machine.transactions["id"] for number in range(500)}
    async with counted_rounds() as rounds:
        assert len((await view.report()).transactions) == 501
    assert rounds.count > 1000


# --- one of them ---


async def test_one_transaction_has_its_partitions_and_what_it_holds_back(client, view):
    await begun(client, 0, 2)
    detail = await view.get("id")
    assert detail is not None
    assert detail.transaction.partition_count == 2
    assert [(each.topic, each.partition) for each in detail.partitions] == [("t", 0), ("t", 2)]
    assert [each.held_back.first_offset for each in detail.partitions if each.held_back] == [0, 0]
    assert await view.get("other") is None


# --- counters ---


async def test_ended_transactions_are_counted(client, view):
    for commits in (True, False, True):
        producer = await begun(client, 0)
        await client.end(producer, commits=commits)
        await client.completed()
    statistics = await view.statistics()
    assert (statistics.committed, statistics.aborted, statistics.timed_out) == (2, 1, 0)


async def test_a_timeout_is_counted_as_an_abort_too(client, view):
    await begun(client, 0)
    client.wire.clock.advance(61)
    client.coordinator.runtime.shard_for("id").on_timeout("id")
    statistics = await view.statistics()
    assert (statistics.committed, statistics.aborted, statistics.timed_out) == (0, 1, 1)


async def test_a_partition_is_late_when_no_transaction_may_be_open_for_so_long(client, view):
    await begin_hanging(client, 2)
    client.wire.clock.advance(900 + 290)
    assert (await view.statistics()).late_transactions == 0
    client.wire.clock.advance(20)
    assert (
        await LiveTransactionsView(client.wire.services, LivePeersView(client.wire.services)).statistics()
    ).late_transactions == 1


# --- aborting ---


async def test_an_abort_ends_the_transaction_everywhere_and_fences_its_producer(client, view):
    producer = await begun(client, 0, 1)
    tried = await view.abort("id", producer.producer_id, producer.epoch, dry_run=True)
    assert (tried.dry_run, tried.state, tried.partition_count) == (True, "Ongoing", 2)
    assert client.status() is TransactionStatus.ONGOING

    done = await view.abort("id", producer.producer_id, producer.epoch, dry_run=False)
    assert (done.dry_run, done.partition_count) == (False, 2)
    assert done.producer_epoch > producer.epoch
    await client.completed()
    assert client.status() is TransactionStatus.COMPLETE_ABORT
    assert [client.markers(index)[0][2] for index in (0, 1)] == [False, False]
    assert await client.produce(producer, 0, sequence=1) != 0
    change = client.wire.services.changes.changes[-1]
    assert (change.action, change.resource_type, change.resource) == (
        ChangeAction.ABORTED,
        ChangedResource.TRANSACTION,
        "id",
    )
    assert [value.name for value in change.values] == ["t-0", "t-1"]


async def test_another_transaction_than_the_named_one_is_not_aborted(client, view):
    producer = await begun(client, 0)
    for producer_id, epoch in ((producer.producer_id, producer.epoch + 1), (producer.producer_id + 1, producer.epoch)):
        with pytest.raises(TransactionRefused) as refused:
            await view.abort("id", producer_id, epoch, dry_run=False)
        assert refused.value.error == "PRODUCER_FENCED"
    assert client.status() is TransactionStatus.ONGOING
    assert ChangeAction.ABORTED not in {change.action for change in client.wire.services.changes.changes}


async def test_only_an_ongoing_transaction_is_aborted(client, view):
    producer = await begun(client, 0)
    await client.end(producer)
    await client.completed()
    with pytest.raises(TransactionRefused) as refused:
        await view.abort("id", producer.producer_id, producer.epoch, dry_run=False)
    assert refused.value.error == "INVALID_TXN_STATE"
    with pytest.raises(TransactionRefused) as refused:
        await view.abort("other", 0, 0, dry_run=False)
    assert refused.value.error == "TRANSACTIONAL_ID_NOT_FOUND"


async def test_a_hanging_transaction_is_aborted_in_its_partition(client, view):
    await begin_hanging(client, 2)
    tried = await view.abort_in_partition("t", 2, 0, dry_run=True)
    assert (tried.producer_id, tried.producer_epoch, tried.last_stable_offset) == (9_000, 2, 0)
    assert client.markers(2) == []
    done = await view.abort_in_partition("t", 2, 0, dry_run=False)
    assert (done.dry_run, done.last_stable_offset) == (False, 2)
    assert client.markers(2) == [(9_000, 2, False)]
    change = client.wire.services.changes.changes[-1]
    assert (change.resource, change.values[0].name) == ("of producer 9000", "t-2")
    with pytest.raises(TransactionRefused, match="no open transaction begins at offset 0"):
        await view.abort_in_partition("t", 2, 0, dry_run=False)


async def test_what_a_coordinator_will_end_gets_no_marker(client, view):
    await begun(client, 0)
    with pytest.raises(TransactionRefused) as refused:
        await view.abort_in_partition("t", 0, 0, dry_run=False)
    assert refused.value.error == "CONCURRENT_TRANSACTIONS"
    with pytest.raises(TransactionRefused) as refused:
        await view.abort_in_partition("t", 99, 0, dry_run=False)
    assert refused.value.error == "UNKNOWN_TOPIC_OR_PARTITION"
    assert client.markers(0) == []
    assert TopicPartition("t", 0) in client.partitions_of()


# --- records ---


async def test_records_say_what_has_become_of_their_transaction(client, view):
    committed = await begun(client, 0, transactional_id="committed")
    await client.end(committed, transactional_id="committed")
    await client.completed("committed")
    aborted = await begun(client, 0, transactional_id="aborted")
    await client.end(aborted, transactional_id="aborted", commits=False)
    await client.completed("aborted")
    await write_plain(client, 0)
    await begun(client, 0, transactional_id="open")
    services, peers = client.wire.services, LivePeersView(client.wire.services)
    topics = LiveTopicsView(services, peers, LiveGroupsView(services.groups, services.clock).report)
    messages = LiveMessagesView(services, topics.partitions)
    [fetched] = await messages.fetch_batches("t", {0: 0}, max_bytes=1 << 20)
    infos = [each.info for each in fetched.batches()]
    assert [(info.base_offset, info.control, info.outcome) for info in infos] == [
        (0, False, BatchOutcome.COMMITTED),
        (1, True, None),
        (2, False, BatchOutcome.ABORTED),
        (3, True, None),
        (4, False, None),
        (5, False, BatchOutcome.OPEN),
    ]


# --- groups ---


async def test_a_group_tells_how_many_of_its_offsets_are_pending(client, view):
    producer = await client.begin()
    assert await client.add_group(producer) == 0
    assert await client.commit_offset(producer, 7) == 0
    groups = LiveGroupsView(client.wire.services.groups, client.wire.clock)

    def pending() -> int | None:
        found = groups.get("g")
        return None if found is None else found.pending_offsets

    assert pending() == 1
    await client.end(producer)
    await client.completed()
    assert pending() == 0
