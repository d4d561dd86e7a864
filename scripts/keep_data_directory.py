"""Makes the data directories that a version leaves behind, for ``tests/test_upgrade.py`` to open with every later one.

``python scripts/keep_data_directory.py`` writes ``tests/data/<version>-clean.tar.gz`` and ``<version>-killed.tar.gz``:
what a broker of this tree leaves that is stopped, and one that is killed. Each has, beside the ``data``, an
``expected.json`` with all that clients read of it. Run it once for each release, and for a change of a format before
one; what is kept is never made again.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "protocol"), str(ROOT / "admin")]

from trio_broker import __version__  # noqa: E402
from trio_broker.storage.file_names import SPACE_RESERVE  # noqa: E402
from trio_broker.testing.process import BrokerProcess  # noqa: E402

KEPT: Final = ROOT / "tests" / "data"
SECONDS: Final = 60.0

SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "4096",
}
"""Few partitions and small files, so that what is kept is small."""

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

TOPICS: Final[dict[str, dict[str, str]]] = {
    "orders": {"retention.ms": "-1"},
    "customers": {"cleanup.policy": "compact", "retention.ms": "-1"},
    "payments": {"retention.ms": "-1"},
}

GROUPS: Final = {"classic": {"billing": 7}, "consumer": {"shipping": 11}}
"""The groups of each protocol, and the offset that each commits for partition 0 of orders."""

DYNAMIC: Final = {"num.io.threads": "5"}


def main() -> None:
    KEPT.mkdir(exist_ok=True)
    for end in ("clean", "killed"):
        archive = KEPT / f"{__version__}-{end}.tar.gz"
        if archive.exists():
            sys.exit(f"{archive} is kept as it is: remove it to make another")
        with tempfile.TemporaryDirectory() as directory:
            folder = Path(directory)
            keep(folder, archive, is_killed=end == "killed")
        print(archive, archive.stat().st_size)


def keep(folder: Path, archive: Path, *, is_killed: bool) -> None:
    """Let a broker leave its data in ``folder``, and put them into ``archive``."""
    broker = BrokerProcess(folder / "data", overrides=SETTINGS)
    with broker:
        expected = fill(broker.bootstrap_servers)
        broker.kill() if is_killed else broker.stop()
    (folder / "expected.json").write_text(json.dumps(expected, indent=1), encoding="utf-8")
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != SPACE_RESERVE:
                tar.add(path, path.relative_to(folder).as_posix(), filter=anonymous)


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Of whom the files are does not matter to those who open them."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def fill(servers: str) -> dict[str, Any]:
    """Write what is kept; return what clients read of it: records by topic, offsets by group, settings."""
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic(name, num_partitions=1, replication_factor=1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(SECONDS)
    broker = ConfigResource(
        ResourceType.BROKER,
        "1",
        incremental_configs=[
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in DYNAMIC.items()
        ],
    )
    for done in admin.incremental_alter_configs([broker]).values():
        done.result(SECONDS)
    committed = {
        "orders": write_in_every_codec(servers),
        "customers": write_keys_again(servers),
        "payments": write_in_transactions(servers),
    }
    for protocol, groups in GROUPS.items():
        for group, offset in groups.items():
            commit(servers, group, protocol, offset)
    return {
        "committed": committed,
        "offsets": {group: offset for groups in GROUPS.values() for group, offset in groups.items()},
        "settings": DYNAMIC,
        "topics": TOPICS,
    }


def send(producer: Producer, topic: str, key: str, value: str | None) -> None:
    producer.produce(topic, value, key, partition=0, headers={"trace": key.encode()})


def write_in_every_codec(servers: str) -> list[list[str | None]]:
    written: list[list[str | None]] = []
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": True, "linger.ms": 50}
        )
        for number in range(4):
            written.append([f"{codec}-{number}", f"order {number} ".ljust(200, codec[0])])
            send(producer, "orders", *written[-1])  # type: ignore[arg-type]
        assert producer.flush(SECONDS) == 0
    return written


def write_keys_again(servers: str) -> list[list[str | None]]:
    """Values of few keys, and a tombstone; not so many that the cleaner begins, which would do so at any time."""
    producer = Producer({"bootstrap.servers": servers})
    written: list[list[str | None]] = [[f"c{number % 3}", f"version {number}"] for number in range(9)]
    written.append(["c2", None])
    for key, value in written:
        send(producer, "customers", str(key), value)
    assert producer.flush(SECONDS) == 0
    return written


def write_in_transactions(servers: str) -> list[list[str | None]]:
    """One that is committed, one that is aborted and one that stays open, with a record of no transaction behind it."""

    def begun(name: str) -> Producer:
        producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": 60_000})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for number in range(3):
            send(producer, "payments", f"{name}-{number}", f"paid {number}")
        assert producer.flush(SECONDS) == 0
        return producer

    begun("committed").commit_transaction(SECONDS)
    begun("aborted").abort_transaction(SECONDS)
    # Kept by the caller's broker alone: the producer goes without ending what it began.
    begun("open")
    plain = Producer({"bootstrap.servers": servers})
    send(plain, "payments", "plain", "paid at once")
    assert plain.flush(SECONDS) == 0
    paid: list[list[str | None]] = [[f"committed-{number}", f"paid {number}"] for number in range(3)]
    return [*paid, ["plain", "paid at once"]]


def commit(servers: str, group: str, protocol: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol})
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main()
