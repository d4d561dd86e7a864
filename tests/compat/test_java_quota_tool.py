"""``kafka-configs.sh`` sets, shows and removes quotas of a real broker process, and a real producer is held to one."""

from __future__ import annotations

import json

from confluent_kafka import Producer

from tests.java_programs import Java
from tests.waits import flushed, scaled
from trio_broker.testing.process import BrokerProcess

TOOL = "org.apache.kafka.tools.ConfigCommand"
SECONDS = 30.0
CLIENT = ("--entity-type", "clients", "--entity-name", "reports")
ADDRESS = ("--entity-type", "ips", "--entity-name", "10.0.0.7")
SETTINGS = {"log.durability": "page-cache"}


def test_kafka_s_tool_sets_quotas_and_a_producer_is_held_to_one(java: Java, tmp_path):
    with BrokerProcess(tmp_path, overrides=SETTINGS, has_admin=False) as broker:
        calls = [
            ("--alter", *CLIENT, "--add-config", "producer_byte_rate=1000,consumer_byte_rate=2000"),
            ("--alter", *ADDRESS, "--add-config", "connection_creation_rate=5"),
            ("--alter", *CLIENT, "--delete-config", "consumer_byte_rate"),
            ("--describe", *CLIENT),
            ("--describe", *ADDRESS),
        ]
        steps = [{"tool": TOOL, "arguments": ["--bootstrap-server", broker.bootstrap_servers, *call]} for call in calls]
        done = java.run("RunTools", given=steps)
        assert [each["code"] for each in done] == [0] * len(calls), done
        assert "producer_byte_rate=1000" in done[3]["out"]
        assert "consumer_byte_rate" not in done[3]["out"]
        assert "connection_creation_rate=5" in done[4]["out"]
        throttled: list[int] = []
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "client.id": "reports",
                "statistics.interval.ms": 50,
                "stats_cb": lambda text: throttled.extend(
                    each["throttle"]["max"] for each in json.loads(text)["brokers"].values()
                ),
            }
        )
        for _ in range(3):
            producer.produce("orders", bytes(3500))
            assert flushed(producer, scaled(SECONDS))
        producer.poll(0.2)
        # Ten seconds' worth may come at once; what is above it is waited for, 1,000 bytes a second.
        assert 300 < max(throttled) < 5000
