"""Records the requests that real clients send, for ``golden_frames.json``.

Run by hand when a client's new release or another request is worth keeping:
``python -m tests.protocol.record_golden_frames``. A listener on 127.0.0.1 takes what the clients send and gives them
``golden_answers``. The frames go into the file with the name and version of the client beside them, and with the
reading that this package gives of them, which is to be looked at in the diff before it is committed.

Of each client only the first frame with a given API, version and size is kept, so that the file stays small. What the
file holds from the installed release of a client stays: its frames would differ in correlation and member ids alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import socketserver
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Any

from kafka_wire.codec import decode, encode_bytes
from kafka_wire.headers import read_request_header, response_header
from kafka_wire.messages.catalogue import all_requests
from tests.protocol.golden_answers import GROUP, NODE_ID, TOPIC, TRANSACTIONAL_ID, answer
from tests.protocol.golden_frames import GoldenFrame, describe, load_golden_frames, save_golden_frames

REQUESTS = all_requests()

CLIENT_ID = "golden"
PRINCIPAL = "User:golden"
TIMESTAMP_MS = 1_700_000_000_000
"""Of every record, so that the frames are the same in every recording."""

CALL_TIMEOUT_SECONDS = 15
HEARTBEAT_SECONDS = 4
"""Consumers are kept for this long, which is more than the interval of their heartbeats."""


log = logging.getLogger("record_golden_frames")


class Recorder:
    """The frames seen so far, by client; at first those of ``recorded`` that are of the installed releases."""

    def __init__(self, recorded: Iterable[GoldenFrame]) -> None:
        self.client = ""
        self.frames = {
            identity(golden.client, golden.frame): golden
            for golden in recorded
            if golden.client_version == importlib.metadata.version(golden.client)
        }
        self.lock = threading.Lock()

    def record(self, frame: bytes) -> None:
        """Keep ``frame`` if the client has not sent one of the same API, version and size."""
        with self.lock:
            key = identity(self.client, frame)
            if key not in self.frames:
                self.frames[key] = describe(self.client, importlib.metadata.version(self.client), frame)


def identity(client: str, frame: bytes) -> tuple[str, int, int, int]:
    """Return what two frames are compared by: the client, the API, its version and the frame's size."""
    api_key, api_version = struct.unpack_from(">hh", frame)
    return client, api_key, api_version, len(frame)


class Connection(socketserver.BaseRequestHandler):
    """One client connection: record a frame, answer it, until the client leaves."""

    server: Listener

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while size := self.read_exactly(4):
                frame = self.read_exactly(*struct.unpack(">i", size))
                self.server.recorder.record(frame)
                header, position = read_request_header(memoryview(frame))
                request, _ = decode(REQUESTS[header.api_key], header.api_version, frame, position)
                if (response := answer(request, header.api_version, self.server.port)) is not None:
                    body = response_header(header.api_key, header.api_version, header.correlation_id)
                    body += encode_bytes(response, header.api_version)
                    self.request.sendall(struct.pack(">i", len(body)) + body)

    def read_exactly(self, size: int) -> bytes:
        """Return ``size`` bytes; fewer only when the client has closed."""
        data = b""
        while len(data) < size and (more := self.request.recv(size - len(data))):
            data += more
        return data


class Listener(socketserver.ThreadingTCPServer):
    """A broker in name only."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.recorder = recorder

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self.server_address[1])


def drive_confluent_kafka(address: str) -> None:
    """Call everything of librdkafka's that sends a request of ours."""
    common = {"bootstrap.servers": address, "client.id": CLIENT_ID}
    confluent_kafka_produces(common)
    confluent_kafka_produces_in_a_transaction(common)
    confluent_kafka_consumes(common)
    confluent_kafka_consumes_with_server_side_assignment(common)
    confluent_kafka_administers(common)


def confluent_kafka_produces(common: dict[str, Any]) -> None:
    import confluent_kafka

    for extra in ({}, {"enable.idempotence": True}):
        producer = confluent_kafka.Producer({**common, **extra})
        producer.produce(TOPIC, b"value", b"key", partition=0, headers=[("header", b"1")], timestamp=TIMESTAMP_MS)
        producer.flush(CALL_TIMEOUT_SECONDS)


def confluent_kafka_produces_in_a_transaction(common: dict[str, Any]) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({**common, "transactional.id": TRANSACTIONAL_ID})
    member = confluent_kafka.Consumer({**common, "group.id": GROUP}).consumer_group_metadata()
    producer.init_transactions(CALL_TIMEOUT_SECONDS)
    producer.begin_transaction()
    producer.produce(TOPIC, b"value", b"key", partition=0, timestamp=TIMESTAMP_MS)
    offsets = [confluent_kafka.TopicPartition(TOPIC, 0, 5, metadata="note")]
    producer.send_offsets_to_transaction(offsets, member, CALL_TIMEOUT_SECONDS)
    producer.commit_transaction(CALL_TIMEOUT_SECONDS)


def confluent_kafka_consumes(common: dict[str, Any]) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer({**common, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    consumer.poll(1)
    consumer.list_topics(timeout=CALL_TIMEOUT_SECONDS)
    consumer.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, 0, 5, metadata="note")], asynchronous=False)
    consumer.offsets_for_times([confluent_kafka.TopicPartition(TOPIC, 0, TIMESTAMP_MS)], timeout=CALL_TIMEOUT_SECONDS)
    consumer.poll(HEARTBEAT_SECONDS)
    consumer.close()


def confluent_kafka_consumes_with_server_side_assignment(common: dict[str, Any]) -> None:
    """As a member of a KIP-848 group, which knows its topics by a list and then by a regular expression."""
    import confluent_kafka

    for topics in ([TOPIC], [f"^{TOPIC}.*"]):
        consumer = confluent_kafka.Consumer({**common, "group.id": GROUP, "group.protocol": "consumer"})
        consumer.subscribe(topics)
        consumer.poll(HEARTBEAT_SECONDS)
        consumer.close()


def confluent_kafka_administers(common: dict[str, Any]) -> None:
    import confluent_kafka
    from confluent_kafka import admin

    client = admin.AdminClient(common)
    partition = confluent_kafka.TopicPartition(TOPIC, 0, 0)
    change = admin.ConfigEntry("retention.ms", "1000", incremental_operation=admin.AlterConfigOpType.SET)
    literal, read, allow = admin.ResourcePatternType.LITERAL, admin.AclOperation.READ, admin.AclPermissionType.ALLOW
    acl = admin.AclBinding("topic", TOPIC, literal, PRINCIPAL, "*", read, allow)
    anything: Any = None
    any_acl = admin.AclBindingFilter(
        admin.ResourceType.ANY,
        anything,
        admin.ResourcePatternType.ANY,
        anything,
        anything,
        admin.AclOperation.ANY,
        admin.AclPermissionType.ANY,
    )
    results: list[Any] = [
        client.create_topics([admin.NewTopic(TOPIC, 2, 1, config={"cleanup.policy": "compact"})]),
        client.create_partitions([admin.NewPartitions(TOPIC, 3)]),
        client.describe_configs([admin.ConfigResource("topic", TOPIC)]),
        client.alter_configs([admin.ConfigResource("topic", TOPIC, set_config={"retention.ms": "1000"})]),
        client.incremental_alter_configs([admin.ConfigResource("topic", TOPIC, incremental_configs=[change])]),
        client.list_consumer_groups(),
        client.describe_consumer_groups([GROUP]),
        client.list_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions(GROUP)]),
        client.delete_records([partition]),
        client.list_offsets({partition: admin.OffsetSpec.latest()}),
        client.describe_cluster(),
        client.create_acls([acl]),
        client.describe_acls(any_acl),
        client.delete_acls([any_acl]),
        client.describe_user_scram_credentials(),
        client.describe_user_scram_credentials([CLIENT_ID]),
        client.elect_leaders(confluent_kafka.ElectionType.PREFERRED, [partition]),
        client.elect_leaders(confluent_kafka.ElectionType.UNCLEAN),
        client.delete_consumer_groups([GROUP]),
        client.delete_topics([TOPIC]),
    ]
    for result in results:
        for future in result.values() if isinstance(result, dict) else [result]:
            with contextlib.suppress(confluent_kafka.KafkaException):
                future.result(CALL_TIMEOUT_SECONDS)


def drive_kafka_python(address: str) -> None:
    """Call everything of kafka-python's that sends a request of ours."""
    common = {"bootstrap_servers": address, "client_id": CLIENT_ID}
    kafka_python_produces_and_consumes(common)
    kafka_python_administers(common)


def kafka_python_produces_and_consumes(common: dict[str, Any]) -> None:
    import kafka

    producer = kafka.KafkaProducer(**common)
    producer.send(TOPIC, b"value", key=b"key", partition=0, timestamp_ms=TIMESTAMP_MS).get(CALL_TIMEOUT_SECONDS)
    producer.close()
    partition = kafka.TopicPartition(TOPIC, 0)
    producer = kafka.KafkaProducer(transactional_id=TRANSACTIONAL_ID, **common)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(TOPIC, b"value", key=b"key", partition=0, timestamp_ms=TIMESTAMP_MS).get(CALL_TIMEOUT_SECONDS)
    producer.send_offsets_to_transaction({partition: kafka.OffsetAndMetadata(5, "note", 0)}, GROUP)
    producer.commit_transaction()
    producer.close()
    consumer = kafka.KafkaConsumer(TOPIC, group_id=GROUP, auto_offset_reset="earliest", **common)
    consumer.poll(1000)
    consumer.commit({partition: kafka.OffsetAndMetadata(5, "note", 0)})
    consumer.offsets_for_times({partition: TIMESTAMP_MS})
    consumer.poll(1000 * HEARTBEAT_SECONDS)
    consumer.close()


def kafka_python_administers(common: dict[str, Any]) -> None:
    import kafka
    from kafka import admin

    client = kafka.KafkaAdminClient(**common)
    partition = kafka.TopicPartition(TOPIC, 0)
    replica = kafka.TopicPartitionReplica(TOPIC, 0, NODE_ID)
    acl = admin.ACL(
        PRINCIPAL,
        "*",
        admin.ACLOperation.READ,
        admin.ACLPermissionType.ALLOW,
        admin.ResourcePattern(admin.ResourceType.TOPIC, TOPIC),
    )
    any_acl = admin.ACLFilter(
        None,
        None,
        admin.ACLOperation.ANY,
        admin.ACLPermissionType.ANY,
        admin.ResourcePatternFilter(admin.ResourceType.ANY, None, admin.ACLResourcePatternType.ANY),
    )
    calls: list[Callable[[], Any]] = [
        lambda: client.create_topics([admin.NewTopic(TOPIC, 2, 1)]),
        lambda: client.create_partitions({TOPIC: admin.NewPartitions(3)}),
        lambda: client.describe_configs([admin.ConfigResource("TOPIC", TOPIC)]),
        lambda: client.alter_configs([admin.ConfigResource("TOPIC", TOPIC, configs={"retention.ms": "1000"})]),
        lambda: client.list_groups(),
        lambda: client.describe_groups([GROUP]),
        lambda: client.list_group_offsets(GROUP),
        lambda: client.delete_records({partition: 0}),
        lambda: client.describe_cluster(),
        lambda: client.describe_topics([TOPIC]),
        lambda: client.describe_topic_partitions([TOPIC]),
        lambda: client.create_acls([acl]),
        lambda: client.describe_acls(any_acl),
        lambda: client.delete_acls([any_acl]),
        lambda: client.describe_log_dirs(),
        lambda: client.describe_log_dirs({TOPIC: [0]}),
        lambda: client.alter_replica_log_dirs({replica: "/golden"}),
        lambda: client.elect_leaders(0, {TOPIC: [0]}),
        lambda: client.elect_leaders(1),
        lambda: client.alter_partition_reassignments({partition: [NODE_ID]}),
        lambda: client.alter_partition_reassignments({partition: None}),
        lambda: client.list_partition_reassignments(),
        lambda: client.list_partition_reassignments([partition]),
        lambda: client.describe_user_scram_credentials(),
        lambda: client.describe_user_scram_credentials([CLIENT_ID]),
        lambda: client.describe_metadata_quorum(),
        lambda: client.update_features({"metadata.version": 1}, validate_only=True),
        lambda: client.describe_producers([partition]),
        lambda: client.list_transactions(),
        lambda: client.list_transactions(
            state_filters=["Ongoing"], duration_filter_ms=1, transactional_id_pattern="g.*"
        ),
        lambda: client.describe_transactions([TRANSACTIONAL_ID]),
        lambda: client.abort_transaction(admin.AbortTransactionSpec(partition, 1000, 0)),
        lambda: client.list_config_resources(),
        lambda: client.list_config_resources(["TOPIC"]),
        lambda: client.delete_group_offsets(GROUP, [partition]),
        lambda: client.delete_groups([GROUP]),
        lambda: client.delete_topics([TOPIC]),
    ]
    for call in calls:
        # What a client thinks of these answers does not matter: its request is recorded.
        try:
            call()
        except Exception as error:
            log.warning("kafka-python: %r", error)
    client.close()


def drive_aiokafka(address: str) -> None:
    """Call everything of aiokafka's that sends a request of ours."""
    common = {"bootstrap_servers": address, "client_id": CLIENT_ID}
    asyncio.run(aiokafka_produces_and_consumes(common))
    asyncio.run(aiokafka_administers(common))


async def aiokafka_produces_and_consumes(common: dict[str, Any]) -> None:
    import aiokafka

    producer = aiokafka.AIOKafkaProducer(enable_idempotence=True, **common)
    await producer.start()
    await producer.send_and_wait(TOPIC, b"value", key=b"key", partition=0, timestamp_ms=TIMESTAMP_MS)
    await producer.stop()
    partition = aiokafka.TopicPartition(TOPIC, 0)
    producer = aiokafka.AIOKafkaProducer(transactional_id=TRANSACTIONAL_ID, **common)
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait(TOPIC, b"value", key=b"key", partition=0, timestamp_ms=TIMESTAMP_MS)
        await producer.send_offsets_to_transaction({partition: (5, "note")}, GROUP)
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(TOPIC, group_id=GROUP, **common)
    await consumer.start()
    await consumer.getmany(timeout_ms=1000)
    await consumer.commit({partition: (5, "note")})
    await consumer.offsets_for_times({partition: TIMESTAMP_MS})
    await consumer.getmany(timeout_ms=1000 * HEARTBEAT_SECONDS)
    await consumer.stop()


async def aiokafka_administers(common: dict[str, Any]) -> None:
    import aiokafka
    from aiokafka import admin
    from aiokafka.admin.config_resource import ConfigResource

    client = admin.AIOKafkaAdminClient(**common)
    await client.start()
    records_to_delete = {aiokafka.TopicPartition(TOPIC, 0): admin.RecordsToDelete(0)}
    calls: list[Callable[[], Any]] = [
        lambda: client.create_topics([admin.NewTopic(TOPIC, 2, 1)]),
        lambda: client.create_partitions({TOPIC: admin.NewPartitions(3)}),
        lambda: client.describe_configs([ConfigResource("topic", TOPIC)]),
        lambda: client.alter_configs([ConfigResource("topic", TOPIC, configs={"retention.ms": "1000"})]),
        lambda: client.list_consumer_groups(),
        lambda: client.describe_consumer_groups([GROUP]),
        lambda: client.list_consumer_group_offsets(GROUP),
        lambda: client.delete_records(records_to_delete),
        lambda: client.list_topics(),
        lambda: client.delete_topics([TOPIC]),
    ]
    for call in calls:
        try:
            await call()
        except Exception as error:
            log.warning("aiokafka: %r", error)
    await client.close()


DRIVERS: dict[str, Callable[[str], None]] = {
    "confluent-kafka": drive_confluent_kafka,
    "kafka-python": drive_kafka_python,
    "aiokafka": drive_aiokafka,
}


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    recorder = Recorder(load_golden_frames())
    with Listener(recorder) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        for client, drive in DRIVERS.items():
            recorder.client = client
            drive(listener.address)
        listener.shutdown()
    save_golden_frames([frame for _, frame in sorted(recorder.frames.items(), key=lambda item: item[0])])


if __name__ == "__main__":
    main()
