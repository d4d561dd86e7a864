"""A broker that is a process, on a disk of a few megabytes that is really full.

The disk is a tmpfs in a mount namespace of the process's own, so it needs no rights and goes with the process.
"""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
from pathlib import Path

import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.running_broker import Connection
from trio_broker.testing.process import BrokerProcess

DISK_BYTES = 48 << 20
"""Enough for a broker to keep its 4 MiB back."""

VALUE = b"x" * 500_000
BATCHES = 16
"""8 MB, in segments of 1 MiB: more than is kept back."""

SETTINGS = {"log.segment.bytes": str(1 << 20), "log.retention.ms": "-1"}
"""Neither retention's next look nor ``file.delete.delay.ms`` come within the test."""

IN_A_NAMESPACE = ["unshare", "--map-root-user", "--mount"]


class SmallDiskProcess(BrokerProcess):
    """A broker whose data directory is a tmpfs that only it sees."""

    def command(self) -> list[str]:
        mount = f'mount -t tmpfs -o size={DISK_BYTES} tmpfs "{self.data_directory}"; exec "$@"'
        return [*IN_A_NAMESPACE, "sh", "-ec", mount, "sh", *super().command()]


def disk_of(process: BrokerProcess) -> Path:
    """Where others find the data directory of the process."""
    return Path(f"/proc/{process.pid}/root{process.data_directory}")


def can_mount() -> bool:
    try:
        return subprocess.run([*IN_A_NAMESPACE, "true"], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def fill(disk: Path) -> None:
    """Leave not a page on the disk."""
    with (disk / "ballast").open("ab", buffering=0) as ballast:
        for size in (1 << 20, 4096):
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                ballast.writelines(itertools.repeat(bytes(size)))


def segments(disk: Path) -> list[str]:
    return sorted(path.name for path in (disk / "orders-0").glob("*.log"))


def deleted_but_open(process: BrokerProcess) -> list[str]:
    """The files whose space is not free although they have no name any more."""
    links = Path(f"/proc/{process.pid}/fd").iterdir()
    return [name for name in map(os.readlink, links) if name.endswith(".log.deleted (deleted)")]


@pytest.mark.skipif(not can_mount(), reason="needs a mount namespace of its own (unshare)")
async def test_a_full_disk_costs_writes_until_records_are_deleted(tmp_path: Path):
    with SmallDiskProcess(tmp_path, overrides=SETTINGS) as process:
        client = Connection(await trio.open_tcp_stream("127.0.0.1", process.port))
        await client.create_topic("orders")
        assert await client.produce("orders", b"first") == ErrorCode.NONE
        for _ in range(BATCHES):
            assert await client.produce("orders", VALUE) == ErrorCode.NONE
        disk = disk_of(process)
        assert len(segments(disk)) > 4

        fill(disk)
        assert await client.produce("orders", VALUE) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await client.try_create_topic("payments") == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.values("orders"))[0] == b"first"

        everything = DeleteRecordsPartition(partition_index=0, offset=-1)
        topics = [DeleteRecordsTopic(name="orders", partitions=[everything])]
        response = await client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=0), 2)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        # All of it, also what was in the active segment, and what had just been read.
        assert segments(disk) == ["00000000000000000017.log"]
        assert deleted_but_open(process) == []
        # The disk is as full as before but for what was deleted.
        await client.create_topic("payments")
        for _ in range(BATCHES - 1):
            assert await client.produce("orders", VALUE) == ErrorCode.NONE
        assert (disk / "ballast").exists()
        await client.stream.aclose()
        assert process.stop() == 0
    assert not any("goes offline" in line for line in process.output)
