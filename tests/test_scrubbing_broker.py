"""A broker whose scrubber finds rot before a consumer does, and what can be seen of it."""

from __future__ import annotations

from pathlib import Path

from kafka_wire.error_codes import ErrorCode
from tests.running_broker import admin_client, connected, fetch_request, running

RECORDS = 200
VALUE = b"x" * 30_000
"""Of 6 MB in segments of 1 MiB."""


def flip_a_bit(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


async def test_a_flipped_bit_is_found_and_shown_while_consumers_read_on(tmp_path: Path):
    settings = {
        "log_durability": "fsync",
        "log_segment_bytes": str(1 << 20),
        "log_retention_ms": "-1",
        "admin_listener": "127.0.0.1:0",
    }
    async with running(tmp_path, **settings) as broker, connected(broker) as client:
        await client.create_topic("orders")
        for _ in range(RECORDS):
            assert await client.produce("orders", VALUE) == ErrorCode.NONE
        [partition] = [each for each in broker.services.replicas.partitions() if each.topic_partition.topic == "orders"]
        damaged = partition.log.segments[2]
        assert damaged.next_offset <= partition.log.recovery_point
        flip_a_bit(Path(damaged.file.path), damaged.size // 2)

        async with admin_client(broker) as admin:
            assert "log_scrubber_damaged_segments 0" in (await admin.get("/metrics")).text
            await broker.services.replicas.log_maintenance.log_scrubber.finish_pass()
            assert "log_scrubber_damaged_segments 1" in (await admin.get("/metrics")).text
            [found] = (await admin.get("/api/v1/brokers/1/storage")).json()["scrubber"]["damaged"]
            assert Path(found["file"]).name == damaged.file.path.name
            assert damaged.base_offset <= found["offset"] < damaged.next_offset
            assert damaged.file.path.name in (await admin.get("/brokers/1/storage")).text

        # A consumer before and behind it has noticed nothing.
        for offset in (0, damaged.next_offset, RECORDS - 1):
            response = await client.ask(fetch_request("orders", offset=offset), 12)
            [answer] = response.responses[0].partitions
            assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, RECORDS)
            assert answer.records
        assert await client.produce("orders", VALUE) == ErrorCode.NONE
