"""Conversations about what is deleted while a transaction is open: its topic, its records, its group."""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafka_wire.messages.delete_topics import DeleteTopicsRequest
from tests.compat.group_requests import commit, fetch_offsets
from tests.compat.offset_scenarios import delete_offsets
from tests.compat.scenario_client import ScenarioClient
from tests.compat.transaction_requests import (
    EARLIEST,
    LATEST,
    PROTOCOLS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    add_offsets,
    batch,
    begun,
    commit_offsets,
    describe,
    describe_producers,
    end,
    ended,
    fetch,
    list_offsets,
    produce,
    started,
    wait_for_the_end,
    written,
)

HIGH_WATERMARK = -1
"""The offset up to which everything is deleted."""


def deleting_a_topic_during_a_transaction(client: ScenarioClient) -> None:
    for number, protocol in enumerate(PROTOCOLS):
        for committed in (True, False):
            client.note(f"{protocol}: what is left of it is {'committed' if committed else 'aborted'}")
            name = f"{client.name}-producer-{number}-{committed}"
            deleted, other = f"{client.name}-deleted-{number}-{committed}", f"{client.name}-other-{number}-{committed}"
            client.create_topic(deleted, 2)
            client.create_topic(other)
            producer = begun(client, protocol, name, deleted)
            written(client, protocol, producer, other)
            client.quietly(DeleteTopicsRequest(topic_names=[deleted], timeout_ms=30_000), 5)
            client.ask_until(
                lambda answer: answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                list_offsets(deleted, LATEST),
                9,
                what="gone",
            )
            client.ask(describe(name), 0)
            client.ask(produce(producer, deleted, batch(producer, 1)), protocol.produce)
            client.ask(end(producer, committed=committed), protocol.end)
            wait_for_the_end(client, producer)
            client.ask(describe(name), 0)
            client.ask(fetch(other, [0], isolation_level=READ_COMMITTED), 12)


def deleting_records_of_a_transaction(client: ScenarioClient) -> None:
    for number, protocol in enumerate(PROTOCOLS):
        for committed in (True, False):
            topic = f"{client.name}-t-{number}-{committed}"
            client.create_topic(topic)
            producer = begun(client, protocol, f"{client.name}-producer-{number}-{committed}", topic)
            written(client, protocol, producer, topic, sequence=1, records=3)
            client.note(f"{protocol}: the beginning of an open transaction")
            client.ask(delete_records(topic, 2), 2)
            look(client, topic)
            client.note("all of it")
            client.ask(delete_records(topic, HIGH_WATERMARK), 2)
            client.ask(describe_producers({topic: [0]}), 0)
            look(client, topic)
            client.note("committed" if committed else "aborted")
            producer = ended(client, protocol, producer, committed=committed)
            client.ask(describe_producers({topic: [0]}), 0)
            look(client, topic)
            client.note("the marker, and the next transaction")
            client.ask(delete_records(topic, HIGH_WATERMARK), 2)
            written(client, protocol, producer, topic, sequence=0 if protocol.adds_by_itself else 4)
            look(client, topic)
            ended(client, protocol, producer, committed=committed)
            look(client, topic)


def look(client: ScenarioClient, topic: str) -> None:
    """Read a topic of one partition in both ways, and ask where it begins and ends."""
    for isolation_level in (READ_UNCOMMITTED, READ_COMMITTED):
        start = client.quietly(list_offsets(topic, EARLIEST), 9).topics[0].partitions[0].offset
        client.ask(fetch(topic, [0], isolation_level=isolation_level, offset=start), 12)
        for timestamp in (EARLIEST, LATEST):
            client.ask(list_offsets(topic, timestamp, isolation_level=isolation_level), 9)


def delete_records(topic: str, offset: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=30_000)


def deleting_a_group_during_a_transaction(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    client.create_topic(topic)
    for number, protocol in enumerate(PROTOCOLS):
        for committed in (True, False):
            for offsets_alone in (True, False):
                what = "its offsets" if offsets_alone else "the group"
                client.note(f"{protocol}: {what}, then {'a commit' if committed else 'an abort'}")
                name = f"{number}-{committed}-{offsets_alone}"
                group = f"{client.name}-group-{name}"
                client.quietly(commit(group, topic, {0: 1}), 9)
                producer = started(client, f"{client.name}-producer-{name}")
                if not protocol.adds_by_itself:
                    client.quietly_in_turn(add_offsets(producer, group), 3)
                client.quietly_in_turn(commit_offsets(producer, group, {topic: {0: 5}}), protocol.commit_offsets)
                if offsets_alone:
                    client.ask(delete_offsets(group, {topic: [0]}), 0)
                else:
                    client.ask(DeleteGroupsRequest(groups_names=[group]), 2)
                client.ask(fetch_offsets(group, {topic: [0]}, 8), 8)
                client.ask(fetch_offsets(group, {topic: [0]}, 8, require_stable=True), 8)
                client.note("after the end")
                ended(client, protocol, producer, committed=committed)
                client.ask(fetch_offsets(group, {topic: [0]}, 8, require_stable=True), 8)
                client.ask(DeleteGroupsRequest(groups_names=[group]), 2)


TRANSACTION_DELETION_SCENARIOS = (
    deleting_a_topic_during_a_transaction,
    deleting_records_of_a_transaction,
    deleting_a_group_during_a_transaction,
)
