"""What a Kafka left becomes ours by one rename, or stays as it is.

The directories are written here as Kafka writes them; ``tests/compat/test_import_kafka.py`` has a real one.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import attrs
import pytest

from kafka_wire.records.batch import build_batch
from kafka_wire.records.control import ControlRecord, ControlRecordType, build_control_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.stored import metadata as stored
from kafka_wire.stored.metadata import METADATA_RECORDS, encode_metadata_record
from tests.fakes.images import broker_record, partition_record
from tests.fakes.metadata_logs import leading_log, take_snapshot
from trio_broker.bootstrap import open_services
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.kafka_export import export_to_kafka
from trio_broker.cluster.kafka_handover import RECORD_KINDS, HandoverRefused
from trio_broker.cluster.kafka_import import import_from_kafka
from trio_broker.cluster.leader_change import leader_change_value
from trio_broker.cluster.metadata_image import (
    CLUSTER_DEFAULT,
    NO_LEADER,
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
)
from trio_broker.cluster.metadata_snapshot import (
    MetadataSnapshot,
    SnapshotId,
    decode_snapshot,
    image_records,
    write_snapshot,
)
from trio_broker.cluster.stored_metadata import is_of_kafka, require_own_metadata
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk import Disk, OpenMode, sync_file, write_all
from trio_broker.runtime.disk_trace import DiskOperation
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.runtime import Runtime
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_volume import ProcessEnded
from trio_broker.storage import file_names, partition_metadata
from trio_broker.storage.log_directory import MetaProperties

NOW_MS = 1_700_000_000_000
ROOT = PurePath("/")
DATA, MORE = PurePath("/data"), PurePath("/more")
METADATA = DATA / file_names.CLUSTER_METADATA_DIRECTORY
TOPIC_ID, OFFSETS_ID = bytes(range(16)), bytes(range(1, 17))
EPOCH = 3
PROPERTIES = MetaProperties("kMGZ-kMGR0SJsXC6yzGlfw", 1, "Vt3kq0ZcQ3y8dW1nQeN5Aw")
MARKER = b'{"version":0,"brokerEpoch":12}'

OPENING = [
    stored.BeginTransactionRecord(name="Bootstrap records"),
    stored.FeatureLevelRecord(name="metadata.version", feature_level=30),
    stored.FeatureLevelRecord(name="transaction.version", feature_level=2),
    stored.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
    stored.EndTransactionRecord(),
]


def registered(broker_id: int) -> stored.RegisterBrokerRecord:
    return broker_record(broker_id, broker_epoch=12, fenced=True)


def partition(index: int, *, topic_id: bytes = TOPIC_ID, replicas: Sequence[int] = (1,)) -> stored.PartitionRecord:
    return partition_record(
        topic_id, index, replicas, leader_epoch=4, partition_epoch=4, directories=[TOPIC_ID] * len(replicas)
    )


def config(name: str, value: str | None, *, kind: int = 2, resource: str = "orders") -> stored.ConfigRecord:
    return stored.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


CLUSTER = [
    registered(1),
    stored.TopicRecord(name="orders", topic_id=TOPIC_ID),
    config("retention.ms", "123456"),
    partition(0),
    partition(1),
    stored.ClearElrRecord(topic_name="orders"),
    stored.TopicRecord(name="__consumer_offsets", topic_id=OFFSETS_ID),
    partition(0, topic_id=OFFSETS_ID),
    stored.ProducerIdsRecord(broker_id=1, broker_epoch=12, next_producer_id=7000),
    # So a Kafka that stops leaves its partitions (KIP-966).
    stored.PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, isr=[], leader=NO_LEADER, eligible_leader_replicas=[1]
    ),
    stored.NoOpRecord(),
]


def metadata_log(records: Sequence[Any], leader_change: bytes = leader_change_value(1)) -> bytes:
    control = ControlRecord(ControlRecordType.LEADER_CHANGE, leader_change)
    values = [NewRecord(NOW_MS, None, encode_metadata_record(record)) for record in records]
    return build_control_batch(control, timestamp=NOW_MS, partition_leader_epoch=EPOCH) + build_batch(
        values, base_offset=1, partition_leader_epoch=EPOCH
    )


def write(disk: Disk, path: PurePath, content: bytes) -> None:
    disk.make_directory(path.parent)
    write_all(disk.open(path, OpenMode.REPLACE), content, 0)
    sync_file(disk, path)
    for directory in path.parents:
        disk.sync_directory(directory)


def make_partition(disk: Disk, directory: PurePath, topic_id: bytes = TOPIC_ID, records: bytes = b"") -> None:
    write(disk, directory / "00000000000000000000.log", records)
    write(disk, directory / file_names.PARTITION_METADATA, partition_metadata.encode(topic_id))


def make_kafka(disk: Disk, *more: Any, log: bytes = b"") -> None:
    """A Kafka with two data directories, which was stopped cleanly; ``more`` are its last metadata records."""
    for path in (DATA, MORE):
        write(disk, path / file_names.META_PROPERTIES, PROPERTIES.encode())
        write(disk, path / file_names.CLEAN_SHUTDOWN_MARKER, MARKER)
    make_partition(disk, DATA / "orders-0")
    make_partition(disk, MORE / "orders-1")
    make_partition(disk, MORE / "__consumer_offsets-0", OFFSETS_ID)
    # Of a topic that was deleted, and of one that Kafka did not know.
    make_partition(disk, MORE / f"gone-0.{'0' * 32}-delete", bytes(16))
    make_partition(disk, DATA / f"unknown-0.{'0' * 32}-stray", bytes(16))
    write(disk, METADATA / "00000000000000000000.log", log or metadata_log([*OPENING, *CLUSTER, *more]))
    write(disk, METADATA / "quorum-state", b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"data_version":0}')


def contents(disk: Disk, directory: PurePath = ROOT) -> dict[PurePath, bytes]:
    """Every file but the locks."""
    found: dict[PurePath, bytes] = {}
    for entry in disk.list_directory(directory):
        path = directory / entry.name
        if entry.is_directory:
            found |= contents(disk, path)
        elif entry.name != file_names.LOCK_FILE:
            found[path] = disk.read_file(path)
    return found


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(ManualClock())


def copied(disk: SimulatedDisk) -> SimulatedDisk:
    copy = SimulatedDisk(ManualClock())
    for path, content in contents(disk).items():
        write(copy, path, content)
    return copy


def runtime_on(disk: Disk) -> Runtime:
    return attrs.evolve(real_runtime(ManualClock()), disk=disk)


async def image_after_a_start(disk: Disk) -> MetadataImage:
    """Start ours on both directories, and stop it."""
    settings = BrokerConfig({"node.id": "1", "log.dirs": f"{DATA},{MORE}", "log.durability": "page-cache"})
    async with open_services(settings, runtime_on(disk), {}) as services:
        assert not services.replicas.log_manager.load_report.strays
        assert not services.replicas.log_manager.load_report.failures
        return services.metadata_cache.image


def test_every_record_is_of_one_kind() -> None:
    assert set(RECORD_KINDS) == set(METADATA_RECORDS)


async def test_ours_goes_on_where_kafka_stopped(disk: SimulatedDisk) -> None:
    make_kafka(disk)
    before = contents(disk)
    done = import_from_kafka(disk, [MORE, DATA], NOW_MS)
    assert (done.topics, done.partitions, done.node_id, done.log_dirs) == (2, 3, 1, (DATA, MORE))
    # One file more, and no byte of another one changed.
    end_offset = 1 + len(OPENING) + len(CLUSTER)
    (added,) = contents(disk).keys() - before.keys()
    assert added == done.snapshot == METADATA / SnapshotId(end_offset, EPOCH + 1).file_name
    assert contents(disk).items() >= before.items()
    image = await image_after_a_start(disk)
    assert image.topics["orders"].topic_id == TOPIC_ID
    assert dict(image.topics["orders"].configs) == {"retention.ms": "123456"}
    orders = image.topics["orders"].partitions
    # A leader epoch more for Kafka's stop, where it wrote one, and another for this start.
    assert [(each.leader, each.isr, each.leader_epoch) for each in orders.values()] == [(1, (1,), 6), (1, (1,), 5)]
    assert image.next_producer_id == 7000
    # Off in Kafka, and not switched on.
    assert image.features == {"group.version": 0, "transaction.version": 2}
    assert (image.offset > end_offset, image.epoch) == (True, EPOCH + 2)


async def test_settings_are_taken_over_whomever_they_belong_to(disk: SimulatedDisk) -> None:
    make_kafka(
        disk,
        config("log.cleaner.threads", "2", kind=4, resource="1"),
        config("consumer.session.timeout.ms", "50000", kind=32, resource="readers"),
        config("log.retention.ms", "77", kind=4, resource=""),
    )
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    image = await image_after_a_start(disk)
    assert image.configs(ConfigResource(ConfigResourceType.BROKER, "1")) == {"log.cleaner.threads": "2"}
    assert image.configs(ConfigResource(ConfigResourceType.GROUP, "readers")) == {
        "consumer.session.timeout.ms": "50000"
    }
    assert image.configs(CLUSTER_DEFAULT) == {"min.insync.replicas": "1", "log.retention.ms": "77"}


async def test_the_next_snapshot_takes_kafka_s_records_away(disk: SimulatedDisk) -> None:
    make_kafka(disk)
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    image = await image_after_a_start(disk)
    log = leading_log(DATA, runtime_on(disk))
    take_snapshot(log, image_records(image))
    log.close()
    assert log.snapshot is not None
    kept = {entry.name for entry in disk.list_directory(METADATA)}
    assert {name for name in kept if name.endswith((".log", ".checkpoint"))} == {
        log.snapshot.file_name,
        f"{log.snapshot.end_offset:020d}.log",
    }
    assert dict((await image_after_a_start(disk)).topics["orders"].configs) == {"retention.ms": "123456"}


async def test_what_a_snapshot_and_the_log_behind_it_say_is_taken_over(disk: SimulatedDisk) -> None:
    make_kafka(disk, config("retention.ms", "9"))
    # Of all but the last record, which is read from the log.
    kept = [record for record in [*OPENING, *CLUSTER] if "Transaction" not in type(record).__name__]
    snapshot = SnapshotId(1 + len(OPENING) + len(CLUSTER), EPOCH)
    write_snapshot(disk, METADATA, MetadataSnapshot.of(snapshot, kept, last_timestamp_ms=0, now_ms=0))
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    image = await image_after_a_start(disk)
    assert dict(image.topics["orders"].configs) == {"retention.ms": "9"}
    assert set(image.topics) == {"orders", "__consumer_offsets"}


async def test_metadata_transactions_count_when_they_are_ended(disk: SimulatedDisk) -> None:
    begin = stored.BeginTransactionRecord()
    make_kafka(
        disk,
        *(begin, config("retention.ms", "2"), stored.AbortTransactionRecord()),
        *(begin, config("segment.ms", "3"), stored.EndTransactionRecord()),
        *(begin, config("flush.ms", "4")),
    )
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    image = await image_after_a_start(disk)
    assert dict(image.topics["orders"].configs) == {"retention.ms": "123456", "segment.ms": "3"}


async def test_an_import_that_is_cut_short_is_run_again() -> None:
    """Whatever is there after a power cut is still Kafka's, byte for byte, or ours as a whole."""
    changes: list[int] = []
    whole = SimulatedDisk(ManualClock())
    make_kafka(whole)
    before = contents(whole)
    first = whole.trace.count
    whole.trace.before = lambda operation: changes.append(operation.number) if operation.kind.changes else None
    import_from_kafka(whole, [DATA, MORE], NOW_MS)
    outcomes = set()
    for number, seed in itertools.product(changes, range(8)):
        disk = SimulatedDisk(ManualClock(), seed)
        make_kafka(disk)
        after = cut_before(disk, disk.trace.count + number - first, seed)
        outcomes.add(is_of_kafka(after, METADATA))
        if is_of_kafka(after, METADATA):
            require_unchanged(after, before)
            import_from_kafka(after, [DATA, MORE], NOW_MS)
        assert "orders" in (await image_after_a_start(after)).topics
    # The name may have reached the disk before it was synced.
    assert outcomes == {True, False}


def cut_before(disk: SimulatedDisk, number: int, seed: int) -> SimulatedDisk:
    """Import until the operation ``number``, in whose place the power fails; returns the disk after it."""
    survivors: list[SimulatedDisk] = []

    def cut(operation: DiskOperation) -> None:
        if operation.number == number:
            disk.trace.before = None
            survivors.append(disk.power_cut(random.Random(seed)))

    disk.trace.before = cut
    with pytest.raises(ProcessEnded):
        import_from_kafka(disk, [DATA, MORE], NOW_MS)
    return survivors[0]


def require_unchanged(disk: Disk, before: dict[PurePath, bytes]) -> None:
    """But for the name under which a snapshot is written before it is one."""
    now = {path: content for path, content in contents(disk).items() if path.suffix != ".tmp"}
    assert now == before


def entry(number: int) -> stored.AccessControlEntryRecord:
    return stored.AccessControlEntryRecord(
        id=bytes([number] * 16),
        resource_type=2,
        resource_name="orders",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )


def quota(*, remove: bool = False) -> stored.ClientQuotaRecord:
    entity = [stored.EntityData(entity_type="user", entity_name="a")]
    return stored.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1.0, remove=remove)


SCRAM = stored.UserScramCredentialRecord(
    name="a", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
)
TOKEN = stored.DelegationTokenRecord(
    owner="User:a",
    requester="User:a",
    renewers=[],
    issue_timestamp=0,
    max_timestamp=9,
    expiration_timestamp=9,
    token_id="t",
)


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([registered(2)], "broker 2 is registered too"),
        ([partition(2, replicas=(1, 2))], r"orders-2 has replicas on \[1, 2\]"),
        ([partition(2)], "orders-2 is in none of /data, /more: name all directories"),
        ([config("remote.storage.enable", "true")], "a setting of topic orders cannot be kept: .*remote.storage"),
        ([config("errors.deadletter", "x")], "topic orders cannot be kept: Unknown topic config name"),
        ([config("of.a.plugin", "x", kind=4, resource="1")], "a setting of broker 1 cannot be kept"),
        ([config("share.auto.offset.rest", "x", kind=32, resource="g")], "a setting of group g cannot be kept"),
        ([config("metric", "x", kind=16, resource="all")], "a setting of client_metrics all cannot be kept"),
        ([stored.FeatureLevelRecord(name="group.version", feature_level=2)], "group.version is at level 2"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_nothing_changed(
    disk: SimulatedDisk, records: list[Any], complaint: str
) -> None:
    make_kafka(disk, *records)
    assert_refused(disk, complaint)


def assert_refused(disk: SimulatedDisk, complaint: str) -> None:
    before = contents(disk)
    with pytest.raises(HandoverRefused, match=complaint) as refused:
        import_from_kafka(disk, [DATA, MORE], NOW_MS)
    assert "\n" not in str(refused.value)
    assert contents(disk) == before


async def test_access_control_entries_are_kept_and_said_to_have_no_effect(disk: SimulatedDisk, caplog) -> None:
    make_kafka(disk, entry(1), entry(2))
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    image = await image_after_a_start(disk)
    assert image.keyed_records[stored.AccessControlEntryRecord] == {bytes([each] * 16): entry(each) for each in (1, 2)}
    assert "2 access control entries have no effect: authorizer.class.name is empty" in caplog.text


async def test_quotas_passwords_and_tokens_are_kept(disk: SimulatedDisk) -> None:
    make_kafka(disk, quota(), SCRAM, TOKEN)
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    image = await image_after_a_start(disk)
    assert list(image.records_of(stored.ClientQuotaRecord).values()) == [quota()]
    assert list(image.records_of(stored.UserScramCredentialRecord).values()) == [SCRAM]
    assert list(image.records_of(stored.DelegationTokenRecord).values()) == [TOKEN]


def test_they_are_exported_again(disk: SimulatedDisk) -> None:
    kept = [quota(), SCRAM, TOKEN, entry(1)]
    make_kafka(disk, *kept)
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    there = PurePath("/there")
    export_to_kafka(disk, {DATA: there / "data", MORE: there / "more"}, NOW_MS)
    exported = decode_snapshot(disk.read_file(there / "data" / file_names.BOOTSTRAP_CHECKPOINT))
    assert [record for record in exported if record in kept] == kept


async def test_what_was_removed_in_kafka_is_in_nobody_s_way(disk: SimulatedDisk) -> None:
    make_kafka(
        disk,
        *(entry(1), stored.RemoveAccessControlEntryRecord(id=bytes([1] * 16))),
        *(SCRAM, stored.RemoveUserScramCredentialRecord(name="a", mechanism=1)),
        *(TOKEN, stored.RemoveDelegationTokenRecord(token_id="t")),
        *(quota(), quota(remove=True)),
        *(registered(2), stored.UnregisterBrokerRecord(broker_id=2, broker_epoch=1)),
        stored.UnregisterControllerRecord(controller_id=2),
        *(config("metrics", "x", kind=16, resource="all"), config("metrics", None, kind=16, resource="all")),
    )
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    assert set((await image_after_a_start(disk)).topics) == {"orders", "__consumer_offsets"}


def test_a_quorum_of_others_is_refused(disk: SimulatedDisk) -> None:
    make_kafka(disk, log=metadata_log([*OPENING, *CLUSTER], leader_change_value(2)))
    assert_refused(disk, "the controller is node 2 in a quorum of 1")
    three = leader_change_value(1).replace(b"\x02\x00\x00\x00\x01\x00", b"\x04" + b"\x00\x00\x00\x01\x00" * 3)
    make_kafka(disk, log=metadata_log([*OPENING, *CLUSTER], three))
    assert_refused(disk, "the controller is node 1 in a quorum of 3")


def test_a_broker_whose_controller_is_another_node_is_refused(disk: SimulatedDisk) -> None:
    """Its log has lost the last change of the leader to a snapshot."""
    make_kafka(disk)
    records = [NewRecord(0, None, encode_metadata_record(record)) for record in [*OPENING, *CLUSTER]]
    write(disk, METADATA / "00000000000000000000.log", build_batch(records))
    import_from_kafka(copied(disk), [DATA, MORE], NOW_MS)
    write(disk, METADATA / "quorum-state", b'{"leaderId":3000,"leaderEpoch":3,"votedId":-1,"data_version":0}')
    assert_refused(disk, "the controller is node 3000")


@pytest.mark.parametrize("magic", [0, 1])
def test_segments_from_before_kafka_0_11_are_refused(disk: SimulatedDisk, magic: int) -> None:
    make_kafka(disk)
    make_partition(disk, DATA / "orders-0", records=bytes(16) + bytes([magic]) + bytes(20))
    assert_refused(disk, f"orders-0/0+.log has records in format {magic}")


@pytest.mark.parametrize(("number", "kind"), [(11, "share"), (17, "streams")])
def test_a_group_of_another_type_is_refused_until_it_is_deleted(disk: SimulatedDisk, number: int, kind: str) -> None:
    make_kafka(disk)
    key = number.to_bytes(2, "big") + b"\x00\x01g"
    there = build_batch([NewRecord(NOW_MS, key, b"\x00\x00")])
    make_partition(disk, MORE / "__consumer_offsets-0", OFFSETS_ID, there)
    assert_refused(disk, f"'g' is a {kind} group")
    gone = build_batch([NewRecord(NOW_MS, key, None)], base_offset=1)
    make_partition(disk, MORE / "__consumer_offsets-0", OFFSETS_ID, there + gone)
    import_from_kafka(disk, [DATA, MORE], NOW_MS)


def test_an_unclean_stop_is_refused(disk: SimulatedDisk) -> None:
    make_kafka(disk)
    disk.unlink(MORE / file_names.CLEAN_SHUTDOWN_MARKER)
    assert_refused(disk, "/more was not left by a clean stop")


def test_a_directory_in_use_is_refused(disk: SimulatedDisk) -> None:
    make_kafka(disk)
    lock = disk.another_process().lock(MORE / file_names.LOCK_FILE)
    assert_refused(disk, "/more is in use by another broker")
    lock.release()


def test_a_partition_of_an_older_topic_of_the_name_is_refused(disk: SimulatedDisk) -> None:
    make_kafka(disk)
    make_partition(disk, DATA / "orders-0", OFFSETS_ID)
    assert_refused(disk, "/data/orders-0 is of another topic with the name orders")


def no_op(base_offset: int) -> bytes:
    return build_batch([NewRecord(0, None, encode_metadata_record(stored.NoOpRecord()))], base_offset=base_offset)


@pytest.mark.parametrize(
    ("behind", "complaint"),
    [
        (no_op(6)[:-1], "has no whole batch at position 0"),
        (no_op(6)[:-1] + b"?", "batch at offset 6: CRC"),
        (no_op(99), "nothing is there between the offsets 6 and 99"),
        (build_batch([NewRecord(0, None, b"\x01\x63\x00\x00")], base_offset=6), "metadata record of unknown type 99"),
    ],
    ids=["cut short", "flipped", "gap", "unknown kind"],
)
def test_a_damaged_metadata_log_is_refused(disk: SimulatedDisk, behind: bytes, complaint: str) -> None:
    make_kafka(disk, log=metadata_log(OPENING))
    write(disk, METADATA / f"{6:020d}.log", behind)
    assert_refused(disk, complaint)


async def test_ours_does_not_start_on_kafka_s_directories_and_changes_nothing(disk: SimulatedDisk) -> None:
    make_kafka(disk)
    before = contents(disk)
    with pytest.raises(MetadataLogUnusable, match=r"left by Apache Kafka; .* trio-broker import-kafka /data /more"):
        await image_after_a_start(disk)
    assert contents(disk) == before


async def test_the_directory_with_the_metadata_comes_first(disk: SimulatedDisk) -> None:
    make_kafka(disk)
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    require_own_metadata(disk, [DATA, MORE])
    with pytest.raises(MetadataLogUnusable, match=r"name /data first in log\.dirs"):
        require_own_metadata(disk, [MORE, DATA])
    # With one in each it is the first that counts, as ever.
    disk.make_directory(MORE / file_names.CLUSTER_METADATA_DIRECTORY)
    require_own_metadata(disk, [DATA, MORE])


async def test_a_kafka_that_was_started_after_the_import_has_its_directories_back(disk: SimulatedDisk) -> None:
    """It takes a log for empty that has nothing behind its snapshot, and begins it with its bootstrap records."""
    make_kafka(disk)
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    end_offset = 1 + len(OPENING) + len(CLUSTER)
    again = [NewRecord(0, None, encode_metadata_record(record)) for record in [*OPENING, config("flush.ms", "5")]]
    log = build_batch(again, base_offset=end_offset, partition_leader_epoch=EPOCH + 2)
    write(disk, METADATA / f"{end_offset:020d}.log", log)
    with pytest.raises(MetadataLogUnusable, match="was left by Apache Kafka"):
        require_own_metadata(disk, [DATA, MORE])
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    configs = (await image_after_a_start(disk)).topics["orders"].configs
    assert dict(configs) == {"retention.ms": "123456", "flush.ms": "5"}
    require_own_metadata(disk, [DATA, MORE])


def test_what_is_ours_is_not_imported_again(disk: SimulatedDisk) -> None:
    make_kafka(disk)
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    assert_refused(disk, "/data has no metadata of Apache Kafka")


async def test_a_directory_with_metadata_alone_needs_no_marker(disk: SimulatedDisk) -> None:
    """Kafka marks the directories of ``log.dirs``; ``metadata.log.dir`` may be another one."""
    make_kafka(disk)
    disk.rename(DATA / "orders-0", MORE / "orders-0")
    disk.unlink(DATA / file_names.CLEAN_SHUTDOWN_MARKER)
    import_from_kafka(disk, [DATA, MORE], NOW_MS)
    assert "orders" in (await image_after_a_start(disk)).topics
