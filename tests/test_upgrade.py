"""Data directories of every released version open with this one, and those of a newer version are refused.

``scripts/keep_data_directory.py`` has made what lies in ``data/``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

import trio_broker
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.metadata import ConfigRecord, FeatureLevelRecord, encode_metadata_record
from tests.archives import unpack
from tests.fakes.metadata_logs import leading_log
from tests.running_broker import make_broker, running
from tests.waits import within
from trio_broker.broker import StartupError
from trio_broker.cluster.metadata_image import ConfigResourceType
from trio_broker.runtime.real import real_runtime
from trio_broker.storage.append import AppendOrigin
from trio_broker.testing.process import BrokerProcess

KEPT = Path(__file__).parent / "data"
SECONDS = 60.0

KEEP = {
    "offsets.retention.minutes": "2147483647",
    "transactional.id.expiration.ms": "2147483647",
    "group.initial.rebalance.delay.ms": "0",
}
"""What is years old has expired by the defaults."""


@attrs.frozen
class KeptDirectory:
    """A data directory that a version has left, and what clients read of it."""

    path: Path
    expected: dict[str, Any]


def unpacked(archive: Path, directory: Path) -> KeptDirectory:
    unpack(archive, directory)
    return KeptDirectory(directory / "data", json.loads((directory / "expected.json").read_text(encoding="utf-8")))


def committed_records(servers: str, topic: str, count: int) -> list[list[str | None]]:
    """Keys and values of partition 0 as a reader of committed records gets them.

    Reads to the end behind ``count`` records: a transaction that is still open ends what can be read before.
    """
    settings = {"group.id": "upgrade", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[list[str | None]] = []
    try:
        while True:
            message = within(consumer.poll, SECONDS)
            assert message is not None, f"nothing came in {SECONDS:.0f} s after {len(found)} records"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                if len(found) >= count:
                    return found
            else:
                key, value = message.key(), message.value()
                found.append([None if text is None else text.decode() for text in (key, value)])
    finally:
        consumer.close()


def committed_offset(admin, group):
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    (found,) = future.result(SECONDS).topic_partitions
    return found.offset


def setting(admin, kind, name, key):
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    return future.result(SECONDS)[key].value


@pytest.mark.parametrize("archive", sorted(KEPT.glob("*.tar.gz")), ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_everything_that_an_older_version_has_left_is_read(archive, tmp_path):
    kept = unpacked(archive, tmp_path)
    with BrokerProcess(kept.path, overrides=KEEP, has_admin=False) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for topic, records in kept.expected["committed"].items():
            assert committed_records(servers, topic, len(records)) == records
        assert {group: committed_offset(admin, group) for group in kept.expected["offsets"]} == kept.expected["offsets"]
        for topic, settings in kept.expected["topics"].items():
            assert {key: setting(admin, ResourceType.TOPIC, topic, key) for key in settings} == settings
        settings = kept.expected["settings"]
        assert {key: setting(admin, ResourceType.BROKER, "1", key) for key in settings} == settings
        assert broker.stop() == 0
    assert [line for line in broker.output if " ERROR " in line] == []


def test_this_version_has_left_one_that_was_stopped_and_one_that_was_killed():
    version = trio_broker.__version__
    assert {f"{version}-{end}.tar.gz" for end in ("clean", "killed")} <= {path.name for path in KEPT.iterdir()}


# --- Back to an older version


@pytest.fixture
def newer(tmp_path) -> Path:
    """A data directory for a newer version to write into."""
    return unpacked(KEPT / f"{trio_broker.__version__}-clean.tar.gz", tmp_path).path


async def write_metadata(directory: Path, *records: bytes) -> None:
    """Append records to the metadata log as another version would."""
    log = leading_log(directory, real_runtime())
    batch = bytearray(build_batch([NewRecord(0, None, record) for record in records]))
    log.log.append(batch, leader_epoch=log.leader_epoch, now_ms=0, origin=AppendOrigin.COORDINATOR)
    log.close()


async def refusal(directory: Path) -> str:
    with pytest.raises(StartupError) as refused:
        await make_broker(directory).run()
    (reason,) = refused.value.reasons
    assert "\n" not in reason
    return reason


async def test_newer_properties_of_the_directory_are_refused(newer):
    file = newer / "meta.properties"
    file.write_text(file.read_text().replace("version=1", "version=2"))
    assert await refusal(newer) == f"{file}: version 2, expected 1, as a newer version may write"


async def test_a_newer_kind_of_metadata_is_refused(newer):
    await write_metadata(newer, b"\x01\x63\x00\x00")
    assert (await refusal(newer)).endswith("metadata record of unknown type 99, as a newer version may write")


@pytest.mark.parametrize(
    ("feature", "level", "known"), [("transaction.version", 3, "0 to 2"), ("share.version", 1, "0 to 0")]
)
async def test_features_that_a_newer_version_has_raised_are_refused(newer, feature, level, known):
    await write_metadata(newer, encode_metadata_record(FeatureLevelRecord(name=feature, feature_level=level)))
    assert await refusal(newer) == (
        f"a newer version has raised features of the cluster: {feature} is {level}, and this version knows {known}"
    )


async def test_settings_that_only_a_newer_version_has_are_kept_and_have_no_effect(newer):
    records = [
        ConfigRecord(resource_type=kind, resource_name=name, name="key.of.tomorrow", value="1")
        for kind, name in ((ConfigResourceType.BROKER, "1"), (ConfigResourceType.TOPIC, "orders"))
    ]
    await write_metadata(newer, *(encode_metadata_record(record) for record in records))
    async with running(newer) as broker:
        kept = [dict(settings) for settings in broker.services.metadata_cache.image.configs_by_resource.values()]
        assert sum("key.of.tomorrow" in settings for settings in kept) == 2
