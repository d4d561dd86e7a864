"""Records of any time, on every page and in every answer that shows one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.admin.live_admin import LiveAdmin, open_live_admin
from tests.running_broker import produce_request
from trio_broker.config.config_key import LONG_MAX

TIMES = (LONG_MAX, 10**17, 253_402_300_800_000, 0, -5, -62_135_596_800_001, -LONG_MAX)
"""Of a client that counts in microseconds, on both sides of the years 1 and 9999, and the ends of what a record has."""

PAGES = (
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages/0/0",
    "/topics/orders/partitions",
    "/topics/orders/partitions/0",
    "/brokers/1/storage",
    "/transactions",
    "/metrics",
)


async def addresses_of_a_topic(live: LiveAdmin) -> list[str]:
    """What the API has of a topic, its partitions and their records; streams never end."""
    paths: dict[str, Any] = (await live.get("/api/v1/openapi.json"))["paths"]
    found = [path for path, operations in paths.items() if "get" in operations and "/topics/{" in path]
    names = {"topic": "orders", "partition": "0", "offset": "0", "broker_id": "1"}
    filled = [path.format_map(names) for path in found]
    return [path for path in filled if not path.endswith("/tail")]


@pytest.mark.parametrize("order", [TIMES, TIMES[::-1]])
async def test_every_page_and_answer_about_them_is_there(tmp_path: Path, order: tuple[int, ...]) -> None:
    for_ever = {
        "log_message_timestamp_after_max_ms": str(LONG_MAX),
        "log_retention_ms": str(LONG_MAX),
        "internal_segment_bytes": "20000",
    }
    async with open_live_admin(tmp_path, **for_ever) as live:
        await live.kafka.create_topic("orders")
        for sequence, timestamp in enumerate(order):
            request = produce_request("orders", b"v")
            records = [NewRecord(timestamp, b"k", b"v" * 9000)]
            request.topic_data[0].partition_data[0].records = build_batch(
                records, producer_id=7, producer_epoch=0, base_sequence=sequence
            )
            response = await live.kafka.ask(request, 9)
            assert response.responses[0].partition_responses[0].error_code == 0
        await live.broker.services.replicas.log_maintenance.apply_retention()
        asked = TopicRequest(name="orders", partition_indexes=[0])
        described = await live.kafka.ask(DescribeProducersRequest(topics=[asked]), 0)
        [producer] = described.topics[0].partitions[0].active_producers
        assert producer.last_timestamp == order[-1]
        for path in (*PAGES, *await addresses_of_a_topic(live)):
            answer = await live.http.get(path, headers={"accept": "*/*"})
            assert answer.status_code == 200, f"{path}: {answer.text[:200]}"
