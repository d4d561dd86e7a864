"""Conversations about transactions: getting a producer id, writing, committing offsets, ending, reading, inspecting."""

from __future__ import annotations

from typing import Any

from kafka_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.list_transactions import ListTransactionsRequest
from kafka_wire.messages.produce import ProduceRequest
from kafka_wire.messages.write_txn_markers import WriteTxnMarkersRequest
from kafka_wire.records.batch import build_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.transactions import TRANSACTION_LOG_VALUE_VERSION, TransactionStatus
from tests.compat.group_requests import (
    LEAVE,
    beat,
    commit,
    fetch_offsets,
    first_beat,
    settled,
    topic_for_consumers,
    with_partitions,
)
from tests.compat.scenario_client import ScenarioClient
from tests.compat.transaction_log import transaction_records
from tests.compat.transaction_requests import (
    EARLIEST,
    FIRST,
    LATEST,
    MAX_TIMESTAMP,
    NEWEST_OF_THE_FIRST_ADD,
    PROTOCOLS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RECORD_TIMESTAMP_MS,
    SECOND,
    Producer,
    add_offsets,
    add_partitions,
    batch,
    begun,
    commit_offsets,
    describe,
    describe_producers,
    end,
    ended,
    fetch,
    init,
    init_again,
    list_offsets,
    marker,
    produce,
    started,
    transaction,
    wait_for_state,
    wait_for_the_end,
    written,
)

ANOTHER_PRODUCER_ID = 987_654_321
"""That no producer of these conversations has."""

SHORT_TIMEOUT_MS = 1000

LONGEST_TIMEOUT_MS = 900_000
"""``transaction.max.timeout.ms`` of both brokers."""

LAST_EPOCH = 2**15 - 2
"""Of a producer id: Kafka keeps the one after it for fencing."""

LONGEST_STRING = 2**15 - 1
"""Characters of a string on the wire."""


# --- Coordinators and producer ids ---


def finding_the_transaction_coordinator(client: ScenarioClient) -> None:
    name = f"{client.name}-producer"
    for version in (1, 2, 3):
        client.ask(FindCoordinatorRequest(key=name, key_type=1), version)
        client.ask(FindCoordinatorRequest(key="", key_type=1), version)
    for version in (4, 5, 6):
        client.ask(FindCoordinatorRequest(coordinator_keys=[name, f"{client.name}-other", ""], key_type=1), version)
        client.ask(FindCoordinatorRequest(coordinator_keys=[], key_type=1), version)
        client.ask(FindCoordinatorRequest(coordinator_keys=[name, name], key_type=1), version)


def getting_a_producer_id(client: ScenarioClient) -> None:
    for version in range(6):
        name = f"{client.name}-producer-{version}"
        client.note(f"version {version}: for the first time, and again")
        for _ in range(3):
            client.ask(init(name), version)
    client.note("an id that is there already, in every version")
    for version in range(6):
        client.ask(init(f"{client.name}-producer-0"), version)
    client.note("an empty transactional id; none")
    for version in range(6):
        client.ask(init(""), version)
    for version in range(6):
        client.ask(init(None), version)
    client.note("with a producer id and an epoch, and no transactional id")
    for version in (3, 4, 5):
        client.ask(init("", producer_id=ANOTHER_PRODUCER_ID, producer_epoch=0), version)
        client.ask(init(None, producer_id=ANOTHER_PRODUCER_ID, producer_epoch=0), version)
        client.ask(init(None, producer_id=ANOTHER_PRODUCER_ID), version)
        client.ask(init(None, producer_epoch=3), version)


def timeouts_of_a_producer(client: ScenarioClient) -> None:
    for version in (0, 3, 5):
        for timeout_ms in (0, -1, LONGEST_TIMEOUT_MS + 1, 2**31 - 1):
            client.ask(init(f"{client.name}-refused", timeout_ms=timeout_ms), version)
        for timeout_ms in (1, LONGEST_TIMEOUT_MS):
            client.ask(init(f"{client.name}-{version}-{timeout_ms}", timeout_ms=timeout_ms), version)
        client.ask(init(None, timeout_ms=0), version)
        client.ask(init("", timeout_ms=0), version)
    client.ask(describe(*(f"{client.name}-5-{timeout_ms}" for timeout_ms in (1, LONGEST_TIMEOUT_MS))), 0)
    client.note("the newest one counts, unless its request is refused")
    name = f"{client.name}-changing"
    producer = started(client, name)
    client.ask(init_again(producer, timeout_ms=1234), 5)
    client.ask(describe(name), 0)
    client.ask(init_again(producer.at_epoch(77), timeout_ms=4321), 5)
    client.ask(describe(name), 0)


def names_of_the_greatest_length(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic)
    name, group = (f"{client.name}-{what}-".ljust(LONGEST_STRING, "x") for what in ("producer", "group"))
    client.ask(FindCoordinatorRequest(key=name, key_type=1), 3)
    client.ask(FindCoordinatorRequest(coordinator_keys=[name], key_type=1), 6)
    for version in range(6):
        client.ask(init(name), version)
    for protocol in PROTOCOLS:
        client.note(f"a transaction of {protocol}")
        producer = begun(client, protocol, name, topic)
        if not protocol.adds_by_itself:
            client.ask(add_offsets(producer, group), 4)
        client.ask(commit_offsets(producer, group, {topic: {0: 1}}), protocol.commit_offsets)
        client.ask(describe(name), 0)
        client.ask(end(producer, committed=True), protocol.end)
        wait_for_the_end(client, producer)
        client.ask(fetch_offsets(group, {topic: [0]}, 8, require_stable=True), 8)
    client.ask(describe(name), 0)


def getting_a_producer_id_again(client: ScenarioClient) -> None:
    """KIP-360: a producer that names its id and epoch has them raised; one that is older than that is fenced."""
    for version in (3, 4, 5):
        client.note(f"version {version}")
        name = f"{client.name}-producer-{version}"
        client.ask(init(name, producer_id=ANOTHER_PRODUCER_ID, producer_epoch=3), version)
        producer = started(client, f"{name}-known")
        client.ask(init_again(producer), version)
        client.note("the same again: the answer may have been lost")
        client.ask(init_again(producer), version)
        client.ask(init_again(producer.next()), version)
        client.note("an epoch before the last one, one that has not been given yet, another id")
        client.ask(init_again(producer), version)
        client.ask(init_again(producer.next(5)), version)
        client.ask(init_again(producer.with_id(ANOTHER_PRODUCER_ID)), version)
        client.ask(init_again(producer.with_id(-1)), version)
        client.ask(init_again(producer.at_epoch(-1)), version)
        client.note("after somebody else has started under this transactional id")
        client.ask(init(f"{name}-known"), version)
        client.ask(init_again(producer.next(2)), version)
        client.ask(init_again(producer.next(3)), version)
        client.ask(init_again(producer.next(3)), version)


def getting_a_producer_id_during_a_transaction(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic)
    for number, protocol in enumerate(PROTOCOLS):
        client.note(f"{protocol}: without the id")
        name = f"{client.name}-without-{number}"
        producer = begun(client, protocol, name, topic)
        client.ask(init(name), 4)
        client.ask_in_turn(init(name), 4)
        client.ask(describe(name), 0)
        client.ask(produce(producer, topic, batch(producer, 1)), protocol.produce)
        client.ask(end(producer, committed=True), protocol.end)
        client.note(f"{protocol}: with the id and the epoch")
        name = f"{client.name}-with-{number}"
        producer = begun(client, protocol, name, topic)
        client.ask(init_again(producer), 4)
        client.ask_in_turn(init_again(producer), 4)
        client.ask(describe(name), 0)
        client.note(f"{protocol}: with another epoch")
        name = f"{client.name}-epoch-{number}"
        producer = begun(client, protocol, name, topic)
        client.ask(init_again(producer.next(3)), 4)
        wait_for_the_end(client, producer)
        client.ask(describe(name), 0)
        client.ask(init_again(producer.next(3)), 4)
        client.ask(end(producer, committed=False), protocol.end)
        client.note(f"{protocol}: with another id")
        name = f"{client.name}-id-{number}"
        producer = begun(client, protocol, name, topic)
        client.ask(init_again(producer.with_id(ANOTHER_PRODUCER_ID)), 4)
        client.ask(describe(name), 0)
        client.ask(end(producer, committed=False), protocol.end)
        client.note(f"{protocol}: with the epoch of the transaction before")
        name = f"{client.name}-before-{number}"
        producer = ended(client, protocol, begun(client, protocol, name, topic), committed=True)
        client.ask(init_again(producer), 4)
        written(client, protocol, producer.next(), topic)
        client.ask(init_again(producer), 4)
        wait_for_state(client, name, "Ongoing", "CompleteAbort")
        client.ask(describe(name), 0)


# --- Adding ---


def adding_partitions(client: ScenarioClient) -> None:
    topic, other = f"{client.name}-t", f"{client.name}-other"
    client.create_topic(topic, 3)
    client.create_topic(other)
    for version in range(4):
        client.note(f"version {version}")
        name = f"{client.name}-producer-{version}"
        producer = started(client, name)
        client.ask(add_partitions(producer, {topic: [0, 1]}), version)
        client.ask(add_partitions(producer, {topic: [0, 1], other: [0]}), version)
        client.ask(add_partitions(producer, {topic: [2, 2]}), version)
        client.ask(add_partitions(producer, {}), version)
        client.ask(add_partitions(producer, {topic: []}), version)
        client.ask(describe(name), 0)
        client.note("topics and partitions that do not exist, alone and beside others")
        client.ask(add_partitions(producer, {"no-such-topic": [0]}), version)
        client.ask(add_partitions(producer, {topic: [0, 3], "no-such-topic": [0, 1], other: [0]}), version)
        client.ask(add_partitions(producer, {"no/such topic": [0], "": [0]}), version)
        client.ask(add_partitions(producer, {"__consumer_offsets": [0]}), version)
        client.ask(add_partitions(producer, {"__transaction_state": [0], topic: [0]}), version)
        client.note("another producer id, other epochs, another transactional id")
        client.ask(add_partitions(producer.with_id(ANOTHER_PRODUCER_ID), {topic: [0]}), version)
        client.ask(add_partitions(producer.with_id(-1), {topic: [0]}), version)
        client.ask(add_partitions(producer.next(), {topic: [0]}), version)
        client.ask(add_partitions(producer.at_epoch(-1), {topic: [0]}), version)
        client.ask(add_partitions(producer.called(f"{client.name}-unknown"), {topic: [0]}), version)
        client.ask(add_partitions(producer.called(""), {topic: [0]}), version)
        client.ask(add_partitions(producer.called("").with_id(-1).at_epoch(-1), {}), version)
        client.note("after a newer producer, and an older one, and after the end")
        newer = started(client, name)
        client.ask(add_partitions(producer, {topic: [0]}), version)
        client.ask(add_partitions(newer, {topic: [0]}), version)
        newer = ended(client, FIRST, newer, committed=True)
        client.ask(add_partitions(newer, {topic: [0]}), version)
        client.ask(describe(name), 0)
        ended(client, FIRST, newer, committed=False)


def adding_partitions_of_many(client: ScenarioClient) -> None:
    """Without any transaction the request is not made: Kafka never answers it."""
    topic = f"{client.name}-t"
    client.create_topic(topic, 3)
    for version in (4, 5):
        client.note(f"version {version}: one, several")
        one = started(client, f"{client.name}-one-{version}")
        two = started(client, f"{client.name}-two-{version}")

        def ask(*transactions: object, version: int = version) -> None:
            client.ask(AddPartitionsToTxnRequest(transactions=list(transactions)), version)  # type: ignore[arg-type]

        ask(transaction(one, {topic: [0, 1]}))
        ask(transaction(one, {topic: [2]}), transaction(two, {topic: [2]}))
        client.note("verified alone: what is there, what is not, and beside each other")
        ask(transaction(one, {topic: [0, 1]}, verify_only=True))
        ask(transaction(two, {topic: [0]}, verify_only=True))
        ask(transaction(two, {topic: [0, 2]}, verify_only=True))
        ask(transaction(one, {topic: [0]}, verify_only=True), transaction(two, {topic: [1]}))
        client.note("topics that do not exist; added, verified")
        for verify_only in (False, True):
            ask(transaction(one, {topic: [0, 3], "no-such-topic": [0]}, verify_only=verify_only))
            ask(transaction(one, {}, verify_only=verify_only))
            ask(
                transaction(one, {"no-such-topic": [0]}, verify_only=verify_only),
                transaction(two, {topic: [0]}, verify_only=verify_only),
            )
        client.note("ids and epochs that are not the producer's; added, verified")
        for verify_only in (False, True):
            ask(transaction(one.with_id(ANOTHER_PRODUCER_ID), {topic: [0]}, verify_only=verify_only))
            ask(transaction(one.next(), {topic: [0]}, verify_only=verify_only))
            ask(transaction(one.at_epoch(-1), {topic: [0]}, verify_only=verify_only))
            ask(transaction(one.called(f"{client.name}-unknown"), {topic: [0]}, verify_only=verify_only))
            ask(transaction(one.called(""), {topic: [0]}, verify_only=verify_only))
        client.note("verified after the end, and of a producer that has not begun")
        ended(client, FIRST, one, committed=True)
        ended(client, FIRST, two, committed=False)
        ask(transaction(one, {topic: [0]}, verify_only=True))
        ask(transaction(two, {topic: [0]}, verify_only=True))
        idle = started(client, f"{client.name}-idle-{version}")
        ask(transaction(idle, {topic: [0]}, verify_only=True))


def adding_offsets(client: ScenarioClient) -> None:
    for version in range(5):
        client.note(f"version {version}")
        name, group = f"{client.name}-producer-{version}", f"{client.name}-group"
        producer = started(client, name)
        client.ask(add_offsets(producer, group), version)
        client.ask(add_offsets(producer, group), version)
        client.ask(add_offsets(producer, ""), version)
        client.ask(describe(name), 0)
        client.ask(add_offsets(producer.with_id(ANOTHER_PRODUCER_ID), group), version)
        client.ask(add_offsets(producer.next(), group), version)
        client.ask(add_offsets(producer.at_epoch(-1), group), version)
        client.ask(add_offsets(producer.called(f"{client.name}-unknown"), group), version)
        client.ask(add_offsets(producer.called(""), group), version)
        newer = started(client, name)
        client.ask(add_offsets(producer, group), version)
        client.ask(add_offsets(newer, group), version)
        ended(client, FIRST, newer, committed=True)


# --- Writing ---

PRODUCE_VERSIONS = (3, 8, 9, 11, 12)


def writing_what_was_not_added(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    topic_id = client.create_topic(topic, 2)
    for version in (*PRODUCE_VERSIONS, 13):
        name = f"{client.name}-producer-{version}"
        target = topic_id if version == 13 else topic
        client.note(f"version {version}: no transaction at all")
        producer = started(client, name)
        client.ask(produce(producer, target, batch(producer)), version)
        client.ask(describe(name), 0)
        client.note("another partition was added, another was not")
        client.quietly_in_turn(add_partitions(producer, {topic: [1]}), NEWEST_OF_THE_FIRST_ADD)
        client.ask(produce(producer, target, {0: batch(producer), 1: batch(producer)}), version)
        client.ask(produce(producer, target, {0: batch(producer), 7: batch(producer)}), version)
        client.ask(describe(name), 0)
        client.ask(end(producer, committed=True), 4 if version < 12 else 5)
    client.note("an id that nobody knows; the state of the partition")
    for version in PRODUCE_VERSIONS:
        unknown = Producer(f"{client.name}-unknown", ANOTHER_PRODUCER_ID, 0)
        client.ask(produce(unknown, topic, batch(unknown)), version)


def writing_in_a_transaction(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic, 2)
    for number, protocol in enumerate(PROTOCOLS):
        version = protocol.produce
        name = f"{client.name}-producer-{number}"
        client.note(f"{protocol}: sequences")
        producer = begun(client, protocol, name, topic)
        client.ask(produce(producer, topic, batch(producer, 1)), version)
        client.ask(produce(producer, topic, batch(producer, 1)), version)
        client.ask(produce(producer, topic, batch(producer, 5)), version)
        client.ask(produce(producer, topic, batch(producer, 0)), version)
        client.ask(produce(producer, topic, batch(producer, 2, records=3)), version)
        client.note("acks 1")
        client.ask(produce(producer, topic, batch(producer, 5), acks=1), version)
        client.ask(produce(producer, topic, batch(producer, 6), acks=2), version)
        client.note("a batch outside a transaction, with and without a transactional id, while one is open")
        client.ask(produce(producer, topic, batch(producer, 6, transactional=False)), version)
        client.ask(produce(producer.called(None), topic, batch(producer, 6, transactional=False)), version)
        client.ask(produce(producer.called(None), topic, batch(producer, 6)), version)
        client.ask(produce(producer.called(""), topic, batch(producer, 6)), version)
        client.ask(produce(producer.called(f"{client.name}-unknown"), topic, batch(producer, 6)), version)
        nobody = Producer(name)
        client.ask(produce(nobody, topic, batch(nobody, transactional=False)), version)
        client.ask(produce(producer, topic, {}), version)
        client.ask(ProduceRequest(transactional_id=name, acks=1, timeout_ms=1000, topic_data=[]), version)
        client.ask(fetch(topic, [0]), 12)
        client.note("a batch each of two producers")
        other = started(client, f"{name}-other")
        client.ask(produce(producer, topic, {0: batch(producer, 6), 1: batch(other)}), version)
        client.note("a topic that does not exist")
        client.ask(produce(producer, "no-such-topic", batch(producer, 6)), version)
        client.ask(produce(producer, topic, {7: batch(producer, 6)}), version)
        client.ask(describe(name), 0)
        # Last: after a refused batch Kafka's partition takes none of the producer with a later sequence.
        client.note("another producer id, other epochs")
        client.ask(produce(producer, topic, batch(producer.with_id(ANOTHER_PRODUCER_ID))), version)
        client.ask(produce(producer, topic, batch(producer.next())), version)
        client.ask(produce(producer.next(), topic, batch(producer.at_epoch(-1), 6)), version)
        ended(client, protocol, producer, committed=True)


def writing_batches_that_no_producer_writes(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic, 2)
    records = [NewRecord(RECORD_TIMESTAMP_MS, b"key", b"value")]
    for number, protocol in enumerate(PROTOCOLS):
        producer = begun(client, protocol, f"{client.name}-producer-{number}", topic)
        its: dict[str, Any] = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        forged = EndTransactionMarker(committed=True, coordinator_epoch=0)
        for what, written_batch in {
            "a marker": build_control_batch(forged, timestamp=RECORD_TIMESTAMP_MS, **its),
            "two batches": batch(producer, 1) + batch(producer, 2),
            "no sequence": build_batch(records, **its, transactional=True),
            "a sequence below zero": build_batch(records, **its, base_sequence=-5, transactional=True),
            "no epoch": build_batch(
                records, producer_id=producer.producer_id, producer_epoch=-1, base_sequence=1, transactional=True
            ),
            "bytes cut off": batch(producer, 1)[:-1],
            "nothing": b"",
        }.items():
            client.note(f"{protocol}: {what}")
            client.ask(produce(producer, topic, written_batch), protocol.produce)
        client.ask(describe_producers({topic: [0]}), 0)
        client.note(f"{protocol}: no producer id")
        client.ask(produce(producer, topic, {1: build_batch(records, transactional=True)}), protocol.produce)
        ended(client, protocol, producer, committed=False)


def writing_records_that_decompress_to_more_than_is_taken(client: ScenarioClient) -> None:
    """``max.decompressed.message.bytes`` is asked of each record of a compressed batch, and of nothing else."""
    topic = f"{client.name}-t"
    client.create_topic(topic, settings={"max.decompressed.message.bytes": "1000"})
    nobody = Producer(None, -1, -1)
    # Ten bytes of a record are not its value: three of them the key; its length is counted without itself.
    for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        for what, sizes in {"1000 bytes": [10, 990], "1001 bytes": [10, 991], "many of 1000": [990] * 50}.items():
            client.note(f"{codec.name}: {what}")
            records = [NewRecord(RECORD_TIMESTAMP_MS, b"key", bytes(size)) for size in sizes]
            client.ask(produce(nobody, topic, build_batch(records, codec=codec)), 12)


def writing_a_first_batch(client: ScenarioClient) -> None:
    """With which sequence a producer may begin in a partition."""
    topic = f"{client.name}-t"
    client.create_topic(topic, 3)
    for number, protocol in enumerate(PROTOCOLS):
        version = protocol.produce
        name = f"{client.name}-producer-{number}"
        client.note(f"{protocol}: not with the first one")
        producer = started(client, name)
        if protocol is FIRST:
            client.quietly_in_turn(add_partitions(producer, {topic: [0]}), NEWEST_OF_THE_FIRST_ADD)
        client.ask(produce(producer, topic, {0: batch(producer, 3)}), version)
        client.ask(produce(producer, topic, {0: batch(producer, 0)}), version)
        client.ask(produce(producer, topic, {0: batch(producer, 4)}), version)
        client.note("after one that was refused")
        if protocol is FIRST:
            client.ask(produce(producer, topic, {1: batch(producer, 1)}), version)
            client.quietly_in_turn(add_partitions(producer, {topic: [1]}), NEWEST_OF_THE_FIRST_ADD)
            client.ask(produce(producer, topic, {1: batch(producer, 2)}), version)
        client.ask(produce(producer, topic, {1: batch(producer, 1)}), version)
        client.ask(produce(producer, topic, {1: batch(producer, 0)}), version)
        client.ask(produce(producer, topic, {1: batch(producer, 2)}), version)
        client.ask(describe_producers({topic: [0, 1]}), 0)
        ended(client, protocol, producer, committed=True)
    client.note("outside of transactions")
    idempotent = Producer(None, ANOTHER_PRODUCER_ID, 0)
    client.ask(produce(idempotent, topic, {2: batch(idempotent, 3, transactional=False)}), 12)


def writing_after_the_end(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic)
    for number, protocol in enumerate(PROTOCOLS):
        for committed in (True, False):
            version = protocol.produce
            name = f"{client.name}-producer-{number}-{committed}"
            producer = begun(client, protocol, name, topic)
            after = ended(client, protocol, producer, committed=committed)
            sequence = 0 if protocol.adds_by_itself else 1
            client.note(f"{protocol}, {'committed' if committed else 'aborted'}: outside a transaction")
            client.ask(produce(after, topic, batch(after, sequence, transactional=False)), version)
            if after != producer:
                client.note("with the epoch of then")
                client.ask(produce(producer, topic, batch(producer, 1)), version)
            client.note("not added, which the second protocol does not need")
            client.ask(produce(after, topic, batch(after, sequence + 1)), version)
            client.note("added")
            client.ask_in_turn(add_partitions(after, {topic: [0]}), NEWEST_OF_THE_FIRST_ADD)
            client.ask(produce(after, topic, batch(after, sequence + 1)), version)
            client.ask(produce(after, topic, batch(after, sequence + 2)), version)
            client.ask(produce(after, topic, batch(after, sequence + 7)), version)
            last = ended(client, protocol, after, committed=committed)
            client.ask(describe_producers({topic: [0]}), 0)
            client.note("a sequence that is not the next one, in the next transaction")
            if not protocol.adds_by_itself:
                client.quietly_in_turn(add_partitions(last, {topic: [0]}), NEWEST_OF_THE_FIRST_ADD)
            client.ask(produce(last, topic, batch(last, sequence + 7)), version)
            ended(client, protocol, last, committed=committed)


def being_fenced(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    client.create_topic(topic)
    for number, protocol in enumerate(PROTOCOLS):
        name = f"{client.name}-producer-{number}"
        old = begun(client, protocol, name, topic)
        new = started(client, name)
        client.note(f"{protocol}: what the older producer receives, in every version")
        for version in (0, 1, 2, 3, 4, 5):
            client.ask(end(old, committed=True), version)
        for version in (0, 1, 2, 3):
            client.ask(add_partitions(old, {topic: [0]}), version)
        for version in (0, 1, 2, 3, 4):
            client.ask(add_offsets(old, group), version)
        for version in range(6):
            client.ask(commit_offsets(old, group, {topic: {0: 1}}), version)
        for version in range(3, 6):
            client.ask(init_again(old), version)
        for version in PRODUCE_VERSIONS:
            client.ask(produce(old, topic, batch(old, 1)), version)
        client.note("the newer one goes on")
        written(client, protocol, new, topic)
        client.ask(produce(old, topic, batch(old, 1)), protocol.produce)
        client.ask(fetch(topic, [0], isolation_level=READ_COMMITTED), 12)
        ended(client, protocol, new, committed=True)
        client.ask(fetch(topic, [0], isolation_level=READ_COMMITTED), 12)


# --- Offsets ---


def committing_offsets_in_a_transaction(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic, 2)
    for version in range(6):
        name, group = f"{client.name}-producer-{version}", f"{client.name}-group-{version}"
        protocol = FIRST if version < 5 else SECOND
        producer = started(client, name)
        client.note(f"version {version}: the group was not added")
        client.ask_in_turn(commit_offsets(producer, group, {topic: {0: 1, 1: 2}}), version)
        client.ask(describe(name), 0)
        client.note("it was")
        client.ask_in_turn(add_offsets(producer, group), 3)
        client.ask(commit_offsets(producer, group, {topic: {0: 1, 1: 2}}), version)
        client.ask(commit_offsets(producer, group, {topic: {0: 3}}, metadata=None), version)
        client.ask(describe(name), 0)
        client.note("nothing; topics and partitions that do not exist; metadata that is too long")
        client.ask(commit_offsets(producer, group, {}), version)
        client.ask(commit_offsets(producer, group, {topic: {}}), version)
        client.ask(commit_offsets(producer, group, {topic: {0: 4, 5: 1}, "no-such-topic": {0: 1}}), version)
        client.ask(commit_offsets(producer, group, {topic: {0: -1}}), version)
        client.ask(commit_offsets(producer, group, {topic: {1: 5}}, metadata="m" * 4097), version)
        client.note("another producer id, other epochs, another transactional id, no group")
        client.ask(commit_offsets(producer.with_id(ANOTHER_PRODUCER_ID), group, {topic: {0: 9}}), version)
        client.ask(commit_offsets(producer.next(), group, {topic: {0: 9}}), version)
        client.ask(commit_offsets(producer.at_epoch(-1), group, {topic: {0: 9}}), version)
        client.ask(commit_offsets(producer.called(f"{client.name}-unknown"), group, {topic: {0: 9}}), version)
        client.ask(commit_offsets(producer.called(""), group, {topic: {0: 9}}), version)
        client.ask(commit_offsets(producer, "", {topic: {0: 9}}), version)
        client.ask(describe(name), 0)
        client.ask(fetch_offsets(group, {topic: [0, 1]}, 8), 8)
        ended(client, protocol, producer, committed=True)
        client.note("after the end")
        client.ask(fetch_offsets(group, {topic: [0, 1]}, 8), 8)
        client.ask_in_turn(commit_offsets(producer, group, {topic: {0: 7}}), version)
        client.ask(fetch_offsets(group, {topic: [0, 1]}, 8), 8)


def committing_offsets_as_a_member(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic)
    for version in (3, 4, 5):
        protocol = FIRST if version < 5 else SECOND
        group = f"{client.name}-group-{version}"
        member, generation = settled(client, group)
        producer = started(client, f"{client.name}-producer-{version}")
        client.quietly_in_turn(add_offsets(producer, group), 3)
        client.note(f"version {version}: a member, and what is none")
        for words in (
            {"member": member, "generation": generation},
            {"member": member, "generation": generation + 1},
            {"member": member, "generation": generation - 1},
            {"member": member},
            {"member": "other", "generation": generation},
            {"generation": generation},
            {"member": member, "generation": generation, "instance": "other"},
            {},
        ):
            client.ask(commit_offsets(producer, group, {topic: {0: 1}}, **words), version)
        client.note("a group that nobody knows")
        unknown = f"{client.name}-unknown-{version}"
        client.quietly_in_turn(add_offsets(producer, unknown), 3)
        client.ask(commit_offsets(producer, unknown, {topic: {0: 1}}, member="member", generation=1), version)
        client.ask(commit_offsets(producer, unknown, {topic: {0: 1}}, member="member"), version)
        client.ask(commit_offsets(producer, unknown, {topic: {0: 1}}, generation=1), version)
        ended(client, protocol, producer, committed=False)


def committing_offsets_as_a_consumer(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    topic_for_consumers(client, topic)
    for version in (3, 4, 5):
        protocol = FIRST if version < 5 else SECOND
        group = f"{client.name}-group-{version}"
        joined = client.quietly(first_beat(group, "one", [topic]), 1)
        epoch = with_partitions(client, group, "one", joined).member_epoch
        producer = started(client, f"{client.name}-producer-{version}")
        client.quietly_in_turn(add_offsets(producer, group), 3)
        client.note(f"version {version}: a member, and what is none")
        for words in (
            {"member": "one", "generation": epoch},
            {"member": "one", "generation": epoch + 1},
            {"member": "one", "generation": epoch - 1},
            {"member": "one"},
            {"member": "other", "generation": epoch},
            {"generation": epoch},
            {"member": "one", "generation": epoch, "instance": "other"},
            {},
        ):
            client.ask(commit_offsets(producer, group, {topic: {0: 1}}, **words), version)
        client.note("after it has left")
        client.quietly(beat(group, "one", LEAVE), 1)
        client.ask(commit_offsets(producer, group, {topic: {0: 2}}, member="one", generation=epoch), version)
        client.ask(commit_offsets(producer, group, {topic: {0: 3}}), version)
        ended(client, protocol, producer, committed=True)
        client.ask(fetch_offsets(group, {topic: [0]}, 8, require_stable=True), 8)


def committing_offsets_as_a_static_member(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic)
    for version in (3, 4, 5):
        protocol = FIRST if version < 5 else SECOND
        group = f"{client.name}-group-{version}"
        member, generation = settled(client, group, instance="i")
        claims: list[dict[str, Any]] = [
            {"member": member, "generation": generation, "instance": "i"},
            {"member": member, "generation": generation},
            {"member": "other", "generation": generation, "instance": "i"},
            {"generation": generation, "instance": "i"},
            {"member": member, "generation": generation + 1, "instance": "i"},
        ]
        producer = started(client, f"{client.name}-producer-{version}")
        client.quietly_in_turn(add_offsets(producer, group), 3)
        client.note(f"version {version}: the member, its member id alone, and others under its instance id")
        for words in claims:
            client.ask(commit_offsets(producer, group, {topic: {0: 1}}, **words), version)
        client.note("after another has taken its place")
        settled(client, group, instance="i")
        client.ask(
            commit_offsets(producer, group, {topic: {0: 2}}, member=member, generation=generation, instance="i"),
            version,
        )
        ended(client, protocol, producer, committed=True)
        client.ask(fetch_offsets(group, {topic: [0]}, 8, require_stable=True), 8)


def fetching_stable_offsets(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic, 2)
    for number, protocol in enumerate(PROTOCOLS):
        for committed in (True, False):
            group = f"{client.name}-group-{number}-{committed}"
            client.quietly(commit(group, topic, {0: 1}), 9)
            producer = started(client, f"{client.name}-producer-{number}-{committed}")
            if not protocol.adds_by_itself:
                client.quietly_in_turn(add_offsets(producer, group), 3)
            client.quietly_in_turn(commit_offsets(producer, group, {topic: {0: 5}}), protocol.commit_offsets)
            client.note(f"{protocol}: during the transaction")
            for version in (6, 7, 8, 9):
                for require_stable in (False, True) if version >= 7 else (False,):
                    request = fetch_offsets(group, {topic: [0, 1]}, version, require_stable=require_stable)
                    client.ask(request, version)
            client.ask(fetch_offsets(group, None, 8, require_stable=True), 8)
            client.note("a commit outside the transaction")
            client.ask(commit(group, topic, {0: 3, 1: 3}), 9)
            client.ask(fetch_offsets(group, {topic: [0, 1]}, 8), 8)
            client.ask(fetch_offsets(group, {topic: [0, 1]}, 8, require_stable=True), 8)
            client.note("committed" if committed else "aborted")
            ended(client, protocol, producer, committed=committed)
            client.ask(fetch_offsets(group, {topic: [0, 1]}, 8, require_stable=True), 8)


# --- Ending ---


def ending(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic, 2)
    for version in range(6):
        protocol = FIRST if version < 5 else SECOND
        for committed in (True, False):
            name = f"{client.name}-producer-{version}-{committed}"
            client.note(f"version {version}: {'commit' if committed else 'abort'}")
            producer = begun(client, protocol, name, topic)
            answer = client.ask(end(producer, committed=committed), version)
            wait_for_the_end(client, producer)
            client.ask(describe(name), 0)
            if protocol.adds_by_itself:
                producer = Producer(name, answer.producer_id, answer.producer_epoch)
            written(client, protocol, producer, topic, sequence=0 if protocol.adds_by_itself else 1)
            client.ask_in_turn(end(producer, committed=committed), version)
            wait_for_the_end(client, producer)
        client.note("refused: another producer id, other epochs, another transactional id")
        producer = begun(client, protocol, f"{client.name}-refused-{version}", topic)
        client.ask(end(producer.with_id(ANOTHER_PRODUCER_ID), committed=True), version)
        client.ask(end(producer.with_id(-1), committed=True), version)
        client.ask(end(producer.next(), committed=True), version)
        client.ask(end(producer.next(2), committed=True), version)
        client.ask(end(producer.at_epoch(-1), committed=True), version)
        client.ask(end(producer.called(f"{client.name}-unknown"), committed=True), version)
        client.ask(end(producer.called(""), committed=True), version)
        client.ask(describe(f"{client.name}-refused-{version}"), 0)
        ended(client, protocol, producer, committed=False)


def ending_again(client: ScenarioClient) -> None:
    """What a coordinator says in each state to a commit and an abort, with the epoch of now and that of then."""
    topic = f"{client.name}-t"
    client.create_topic(topic)
    for number, protocol in enumerate(PROTOCOLS):
        for committed in (True, False):
            for first in (None, True, False):
                for ago in (0, 1):
                    state = "Empty" if first is None else "CompleteCommit" if first else "CompleteAbort"
                    verb = "commit" if committed else "abort"
                    client.note(f"{protocol}, {state}: {verb} with the epoch of {'then' if ago else 'now'}")
                    name = f"{client.name}-{number}-{verb}-{state}-{ago}"
                    producer = started(client, name)
                    if first is not None:
                        written(client, protocol, producer, topic)
                        producer = ended(client, protocol, producer, committed=first)
                    asked = producer.next(-ago)
                    client.ask(end(asked, committed=committed), protocol.end)
                    wait_for_state(client, name, "Empty", "CompleteCommit", "CompleteAbort")
                    client.ask(describe(name), 0)
                    client.ask_in_turn(end(asked, committed=committed), protocol.end)
                    wait_for_state(client, name, "Empty", "CompleteCommit", "CompleteAbort")
                    client.ask(describe(name), 0)


def changing_the_protocol(client: ScenarioClient) -> None:
    """A transaction begun in one protocol is ended in the other."""
    topic = f"{client.name}-t"
    client.create_topic(topic)
    for number, (begin, finish) in enumerate(((FIRST, SECOND), (SECOND, FIRST))):
        for committed in (True, False):
            name = f"{client.name}-producer-{number}-{committed}"
            client.note(f"from {begin} to {finish}, {'commit' if committed else 'abort'}")
            producer = begun(client, begin, name, topic)
            client.ask(end(producer, committed=committed), finish.end)
            wait_for_the_end(client, producer)
            client.ask(describe(name), 0)
            client.ask(init_again(producer), 5)
            client.ask(init(name), 5)
        client.ask(fetch(topic, [0], isolation_level=READ_COMMITTED), 12)


# --- Reading ---


def look(client: ScenarioClient, topic: str, topic_id: bytes) -> None:
    """Read a topic of one partition in both ways, and ask for its offsets."""
    for isolation_level in (READ_UNCOMMITTED, READ_COMMITTED):
        client.ask(fetch(topic, [0], isolation_level=isolation_level), 12)
        for timestamp in (EARLIEST, LATEST, MAX_TIMESTAMP, RECORD_TIMESTAMP_MS, RECORD_TIMESTAMP_MS + 1):
            client.ask(list_offsets(topic, timestamp, isolation_level=isolation_level), 9)
    client.ask(fetch(topic_id, [0], isolation_level=READ_COMMITTED), 13)


def reading(client: ScenarioClient) -> None:
    for number, protocol in enumerate(PROTOCOLS):
        topic = f"{client.name}-t-{number}"
        topic_id = client.create_topic(topic)
        outsider = started(client, None)
        client.quietly(produce(outsider, topic, batch(outsider, transactional=False)), protocol.produce)
        client.note(f"{protocol}: during a transaction, with a record outside behind it")
        producer = begun(client, protocol, f"{client.name}-producer-{number}", topic)
        client.quietly(produce(outsider, topic, batch(outsider, 1, transactional=False)), protocol.produce)
        look(client, topic, topic_id)
        client.note("after it was aborted")
        producer = ended(client, protocol, producer, committed=False)
        look(client, topic, topic_id)
        client.note("during the next one, and after it was committed")
        written(client, protocol, producer, topic, sequence=0 if protocol.adds_by_itself else 1)
        look(client, topic, topic_id)
        producer = ended(client, protocol, producer, committed=True)
        look(client, topic, topic_id)
        client.note("from the middle: aborted transactions only where they reach")
        for offset in range(7):
            client.ask(fetch(topic, [0], isolation_level=READ_COMMITTED, offset=offset, max_bytes=1), 12)
        for version in (4, 5, 7, 11):
            client.ask(fetch(topic, [0], isolation_level=READ_COMMITTED), version)
            client.ask(fetch(topic, [0], isolation_level=READ_COMMITTED, offset=6), version)


def reading_over_sessions(client: ScenarioClient) -> None:
    """A session receives a partition again when something of it has changed."""
    for number, protocol in enumerate(PROTOCOLS):
        topic = f"{client.name}-t-{number}"
        client.create_topic(topic, 2)
        session_id = session_epoch = 0

        def ask(*partitions: int, offset: int = 0, topic: str = topic) -> None:
            nonlocal session_id, session_epoch
            request = fetch(topic, list(partitions), isolation_level=READ_COMMITTED, offset=offset)
            request.session_id, request.session_epoch = session_id, session_epoch
            if not partitions:
                request.topics = []
            session_id = client.ask(request, 12).session_id
            session_epoch += 1

        client.note(f"{protocol}: during a transaction, and once more")
        producer = begun(client, protocol, f"{client.name}-producer-{number}", topic)
        ask(0, 1)
        ask()
        client.note("more of it")
        written(client, protocol, producer, topic, sequence=1)
        ask()
        client.note("it is aborted, and once more, from the marker on, and behind it")
        producer = ended(client, protocol, producer, committed=False)
        ask()
        ask()
        ask(0, offset=2)
        ask(0, offset=3)
        ask()
        client.note("the next one, which is committed")
        written(client, protocol, producer, topic, sequence=0 if protocol.adds_by_itself else 2)
        written(client, protocol, producer, topic, partition=1)
        ask()
        ended(client, protocol, producer, committed=True)
        ask()
        ask(0, offset=5)
        ask(1, offset=2)
        ask()


def two_producers_in_one_partition(client: ScenarioClient) -> None:
    for number, protocol in enumerate(PROTOCOLS):
        topic = f"{client.name}-t-{number}"
        topic_id = client.create_topic(topic)
        one = begun(client, protocol, f"{client.name}-one-{number}", topic)
        two = begun(client, protocol, f"{client.name}-two-{number}", topic)
        written(client, protocol, one, topic, sequence=1)
        written(client, protocol, two, topic, sequence=1)
        client.note(f"{protocol}: the second is committed first")
        client.ask(describe_producers({topic: [0]}), 0)
        ended(client, protocol, two, committed=True)
        look(client, topic, topic_id)
        client.note("the first is aborted")
        ended(client, protocol, one, committed=False)
        look(client, topic, topic_id)
        client.ask(describe_producers({topic: [0]}), 0)
        client.note("an aborted transaction inside a committed one, each asked for alone")
        for offset in range(6):
            client.ask(fetch(topic, [0], isolation_level=READ_COMMITTED, offset=offset), 12)


# --- Administration ---


def markers_by_an_administrator(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic, 2)
    for number, protocol in enumerate(PROTOCOLS):
        for version in (1, 2):
            client.note(f"{protocol}, version {version}: refused")
            name = f"{client.name}-producer-{number}-{version}"
            producer = begun(client, protocol, name, topic)
            client.ask(marker(producer.at_epoch(-1), {topic: [0]}), version)
            client.ask(marker(producer, {topic: [7], "no-such-topic": [0]}), version)
            client.ask(marker(producer, {}), version)
            client.ask(WriteTxnMarkersRequest(markers=[]), version)
            client.note("the open transaction is aborted, and again")
            client.ask(marker(producer, {topic: [0]}), version)
            client.ask(fetch(topic, [0], isolation_level=READ_COMMITTED), 12)
            client.ask(marker(producer, {topic: [0]}), version)
            client.ask(describe(name), 0)
            client.ask(describe_producers({topic: [0]}), 0)
            client.note("its producer goes on, and ends")
            client.ask(produce(producer, topic, batch(producer, 1)), protocol.produce)
            client.ask(end(producer, committed=True), protocol.end)
            wait_for_the_end(client, producer)
            client.ask(fetch(topic, [0], isolation_level=READ_COMMITTED), 12)
            client.note("of a producer that the partition does not know, with a newer epoch, two at once")
            other = Producer(name, ANOTHER_PRODUCER_ID + 10 * number + version, 3)
            client.ask(marker(other, {topic: [1]}), version)
            client.ask(marker(producer.next(5), {topic: [0]}, committed=True), version)
            both = marker(producer.next(6), {topic: [0, 1]})
            both.markers += marker(other.next(), {topic: [0, 1]}).markers
            client.ask(both, version)
            client.ask(describe_producers({topic: [0, 1]}), 0)
    client.note("in the second version, with a transaction version and with coordinator epochs")
    for transaction_version in (0, 1, 2, 3):
        name = f"{client.name}-versions-{transaction_version}"
        producer = begun(client, SECOND, name, topic)
        client.ask(marker(producer, {topic: [0]}, transaction_version=transaction_version), 2)
        client.ask(marker(producer.next(), {topic: [0]}, transaction_version=transaction_version), 2)
        client.ask(marker(producer.next(2), {topic: [0]}, coordinator_epoch=9), 2)
        client.ask(marker(producer.next(3), {topic: [0]}, coordinator_epoch=1), 2)
        client.ask(describe_producers({topic: [0]}), 0)


def markers_in_the_groups_log(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    client.create_topic(topic)
    for version in (1, 2):
        for committed in (True, False):
            client.note(f"version {version}: {'commit' if committed else 'abort'}")
            producer = started(client, f"{client.name}-producer-{version}-{committed}")
            client.quietly_in_turn(commit_offsets(producer, group, {topic: {0: 5 + version}}), SECOND.commit_offsets)
            client.ask(fetch_offsets(group, {topic: [0]}, 8, require_stable=True), 8)
            client.ask(marker(producer, {"__consumer_offsets": [0, 1]}, committed=committed), version)
            client.ask(fetch_offsets(group, {topic: [0]}, 8, require_stable=True), 8)
            ended(client, SECOND, producer.at_epoch(producer.producer_epoch), committed=False)
            client.ask(fetch_offsets(group, {topic: [0]}, 8, require_stable=True), 8)


def describing_transactions(client: ScenarioClient) -> None:
    topic, other, group = f"{client.name}-t", f"{client.name}-other", f"{client.name}-group"
    client.create_topic(topic, 3)
    client.create_topic(other)
    empty = started(client, f"{client.name}-empty", timeout_ms=1234)
    ongoing = started(client, f"{client.name}-ongoing")
    for partition in (2, 0):
        written(client, FIRST, ongoing, topic, partition=partition)
    written(client, FIRST, ongoing, other)
    client.quietly_in_turn(add_offsets(ongoing, group), 3)
    committed = begun(client, FIRST, f"{client.name}-committed", topic)
    ended(client, FIRST, committed, committed=True)
    aborted = begun(client, SECOND, f"{client.name}-aborted", topic)
    ended(client, SECOND, aborted, committed=False)
    names = [producer.known_id for producer in (empty, ongoing, committed, aborted)]
    client.ask(describe(*names), 0)
    client.ask(describe(), 0)
    client.ask(describe(f"{client.name}-unknown", ""), 0)
    client.ask(describe(names[0], names[0]), 0)
    client.note("listed, by state")
    for version in (0, 1, 2):
        client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), version)
    for states in (
        ["Ongoing"],
        ["ongoing"],
        ["Empty", "CompleteAbort"],
        ["PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"],
        ["NoSuchState"],
        ["NoSuchState", "Ongoing", "OtherState", ""],
    ):
        client.ask(ListTransactionsRequest(state_filters=states, producer_id_filters=[]), 2)
    client.note("by producer id")
    for ids in ([empty.producer_id], [ongoing.producer_id, committed.producer_id], [ANOTHER_PRODUCER_ID], [-1]):
        client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=ids), 2)
    both = ListTransactionsRequest(state_filters=["Empty"], producer_id_filters=[ongoing.producer_id])
    client.ask(both, 2)
    client.note("by duration")
    for duration in (0, 1, 3_600_000, -1, -5):
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=duration)
        client.ask(request, 1)
    client.note("by a pattern")
    for pattern in ("", f"{client.name}-.*d", f"{client.name}", ".*ongoing", f"{client.name}-empty", "(", "[a-", "*"):
        client.ask(
            ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern), 2
        )
    ended(client, FIRST, ongoing, committed=True)
    client.note("after the end")
    client.ask(describe(ongoing.known_id), 0)


def describing_producers(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic, 2)
    for number, protocol in enumerate(PROTOCOLS):
        client.note(f"{protocol}: during a transaction, and after it")
        producer = begun(client, protocol, f"{client.name}-producer-{number}", topic)
        written(client, protocol, producer, topic, sequence=1, records=3)
        client.ask(describe_producers({topic: [0, 1], "no-such-topic": [0]}), 0)
        producer = ended(client, protocol, producer, committed=True)
        client.ask(describe_producers({topic: [0]}), 0)
        client.note("in the next one, and after it")
        written(client, protocol, producer, topic, sequence=0 if protocol.adds_by_itself else 4)
        client.ask(describe_producers({topic: [0]}), 0)
        ended(client, protocol, producer, committed=False)
        client.ask(describe_producers({topic: [0]}), 0)
    client.note("partitions and topics that do not exist; none")
    client.ask(describe_producers({topic: [7, -1], "": [0], "no/such topic": [0]}), 0)
    client.ask(describe_producers({topic: []}), 0)
    client.ask(describe_producers({}), 0)
    client.note("a topic and a partition named twice")
    twice = describe_producers({topic: [1]})
    twice.topics *= 2
    client.ask(twice, 0)
    client.ask(describe_producers({topic: [1, 1]}), 0)


def remembering(client: ScenarioClient) -> None:
    """What the coordinator's log keeps of each step."""
    topic, group = f"{client.name}-t", f"{client.name}-group"
    client.create_topic(topic, 2)
    for number, protocol in enumerate(PROTOCOLS):
        name = f"{client.name}-producer-{number}"
        client.note(f"{protocol}: twice a new producer; two partitions and a group; committed")
        started(client, name)
        producer = started(client, name)
        for partition in (0, 1):
            written(client, protocol, producer, topic, partition=partition)
        if not protocol.adds_by_itself:
            client.quietly_in_turn(add_offsets(producer, group), 3)
        client.quietly_in_turn(commit_offsets(producer, group, {topic: {0: 1}}), protocol.commit_offsets)
        producer = ended(client, protocol, producer, committed=True)
        tell_the_log(client, name)
        client.note(f"{protocol}: aborted" + (", and again without having begun" if protocol.adds_by_itself else ""))
        name = f"{client.name}-aborted-{number}"
        producer = ended(client, protocol, begun(client, protocol, name, topic), committed=False)
        if protocol.adds_by_itself:
            ended(client, protocol, producer, committed=False)
        tell_the_log(client, name)
        client.note("fenced by a newer producer; a producer that goes on by its id and epoch")
        name = f"{client.name}-fenced-{number}"
        begun(client, protocol, name, topic)
        client.quietly_in_turn(init_again(started(client, name)), 5)
        tell_the_log(client, name)


def tell_the_log(client: ScenarioClient, transactional_id: str, newest: int = 0) -> None:
    """Write down all records of a transactional id, or its ``newest``, as ``__transaction_state`` has them."""
    its = [value for key, value in transaction_records(client) if key.transactional_id == transactional_id]
    for value in its[-newest:]:
        assert value is not None
        for topic in value.transaction_partitions or []:
            topic.partition_ids.sort()
        client.lines.append(TransactionStatus(value.transaction_status).name)
        client.tell(value, TRANSACTION_LOG_VALUE_VERSION)


def ending_by_itself(client: ScenarioClient) -> None:
    """A transaction that takes longer than its timeout is aborted, and its producer fenced."""
    topic = f"{client.name}-t"
    client.create_topic(topic)
    group = f"{client.name}-group"
    for number, protocol in enumerate(PROTOCOLS):
        name = f"{client.name}-producer-{number}"
        client.note(f"{protocol}: it was aborted")
        producer = started(client, name, timeout_ms=SHORT_TIMEOUT_MS)
        written(client, protocol, producer, topic)
        wait_for_state(client, name, "CompleteAbort")
        client.ask(describe(name), 0)
        client.ask(fetch(topic, [0], isolation_level=READ_COMMITTED), 12)
        client.note("what its producer receives")
        for version in range(6):
            client.ask(end(producer, committed=True), version)
            client.ask(end(producer, committed=False), version)
        for version in (1, 3):
            client.ask(add_partitions(producer, {topic: [0]}), version)
            client.ask(add_offsets(producer, group), version)
        client.ask(commit_offsets(producer, group, {topic: {0: 1}}), protocol.commit_offsets)
        client.ask(produce(producer, topic, batch(producer, 1)), protocol.produce)
        client.note("how it goes on")
        client.ask(init_again(producer), 5)
        client.ask(init(name), 5)
        client.ask(describe_producers({topic: [0]}), 0)


def using_up_the_epochs(client: ScenarioClient) -> None:
    """A producer whose epochs are used up goes on under another producer id."""
    topic = f"{client.name}-t"
    client.create_topic(topic)
    name = f"{client.name}-producer"
    producer = at_epoch(client, started(client, name), LAST_EPOCH - 2)
    client.note("transactions of the second protocol, each end asked for twice")
    for committed in (True, False, True, False):
        written(client, SECOND, producer, topic)
        client.ask(describe(name), 0)
        answer = client.ask(end(producer, committed=committed), SECOND.end)
        wait_for_the_end(client, producer)
        client.ask(end(producer, committed=committed), SECOND.end)
        client.ask(describe(name), 0)
        before, producer = producer, Producer(name, answer.producer_id, answer.producer_epoch)
        client.note("what its producer of before receives")
        client.ask(produce(before, topic, batch(before, 1)), SECOND.produce)
        client.ask(add_partitions(before, {topic: [0]}), NEWEST_OF_THE_FIRST_ADD)
        client.ask(describe_producers({topic: [0]}), 0)
    tell_the_log(client, name, newest=12)
    for number, keeps_its_id in enumerate((True, False)):
        client.note(f"new producers, {'with' if keeps_its_id else 'without'} the id of the one before")
        name = f"{client.name}-again-{number}"
        producer = at_epoch(client, started(client, name), LAST_EPOCH - 2)
        for _ in range(4):
            answer = client.ask(init_again(producer) if keeps_its_id else init(name), 5)
            client.ask(init_again(producer), 5)
            client.ask(describe(name), 0)
            producer = Producer(name, answer.producer_id, answer.producer_epoch)


def at_epoch(client: ScenarioClient, producer: Producer, epoch: int) -> Producer:
    """Raise the epoch of a producer, saying nothing."""
    while producer.producer_epoch < epoch:
        answer = client.quietly_in_turn(init_again(producer), 5)
        assert answer.error_code == 0, answer
        producer = producer.next()
    return producer


TRANSACTION_SCENARIOS = (
    finding_the_transaction_coordinator,
    getting_a_producer_id,
    timeouts_of_a_producer,
    names_of_the_greatest_length,
    getting_a_producer_id_again,
    getting_a_producer_id_during_a_transaction,
    adding_partitions,
    adding_partitions_of_many,
    adding_offsets,
    writing_what_was_not_added,
    writing_in_a_transaction,
    writing_batches_that_no_producer_writes,
    writing_records_that_decompress_to_more_than_is_taken,
    writing_a_first_batch,
    writing_after_the_end,
    being_fenced,
    committing_offsets_in_a_transaction,
    committing_offsets_as_a_member,
    committing_offsets_as_a_consumer,
    committing_offsets_as_a_static_member,
    fetching_stable_offsets,
    ending,
    ending_again,
    changing_the_protocol,
    reading,
    reading_over_sessions,
    two_producers_in_one_partition,
    markers_by_an_administrator,
    markers_in_the_groups_log,
    describing_transactions,
    describing_producers,
    remembering,
    ending_by_itself,
)

SLOW_TRANSACTION_SCENARIOS = (using_up_the_epochs,)
"""Of some ten thousand requests."""
