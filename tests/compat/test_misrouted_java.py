"""A client of Kafka 4.4 behind proxies: where it reaches another broker than it means, it begins anew (KIP-1242).

Kafka's Java client sends the cluster and the node that it means with ApiVersions 5, by default. The broker that it
reaches may be behind any number of port maps; only who it is counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.compat.hosted_kinds import JavaConsumer, JavaRange
from tests.compat.member_host import HostedCrowd, MemberHost
from tests.compat.scenario_client import ScenarioClient
from tests.compat.tcp_proxy import TcpProxy
from tests.compat.transaction_requests import RECORD_TIMESTAMP_MS, Producer, produce
from tests.java_programs import Java
from trio_broker.testing.process import BrokerProcess

TOPIC = "orders"
NOBODY = Producer(None, -1, -1)

SETTINGS = {
    "log.durability": "page-cache",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@attrs.frozen
class Brokers:
    """Brokers of two clusters, which both are node 1, and the proxies by which clients reach the first."""

    meant: BrokerProcess
    another: BrokerProcess
    bootstrap: TcpProxy
    """Where clients begin."""
    advertised: TcpProxy
    """Where the first broker says that it is."""


@pytest.fixture
def brokers(java: Java, tmp_path: Path) -> Iterator[Brokers]:
    with TcpProxy() as bootstrap, TcpProxy() as advertised:
        elsewhere = {"advertised.listeners": f"PLAINTEXT://{advertised.address}"}
        with (
            BrokerProcess(tmp_path / "meant", SETTINGS | elsewhere, has_admin=False) as meant,
            BrokerProcess(tmp_path / "another", SETTINGS, has_admin=False) as another,
        ):
            bootstrap.lead_to(meant.port)
            advertised.lead_to(meant.port)
            yield Brokers(meant, another, bootstrap, advertised)


@pytest.fixture
def host(java: Java) -> Iterator[MemberHost]:
    made = MemberHost(["java", *java.quick_start, "-cp", java.class_path, "Members"])
    yield made
    made.close()


def write(broker: BrokerProcess, value: bytes, *, is_first: bool = False) -> None:
    """Append one record by the broker's own port, wherever it says that it is."""
    client = ScenarioClient(broker.port, "")
    try:
        if is_first:
            client.create_topic(TOPIC)
        answer = client.quietly(produce(NOBODY, TOPIC, build_batch([NewRecord(RECORD_TIMESTAMP_MS, None, value)])), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0
    finally:
        client.close()


@pytest.mark.parametrize(
    "kind",
    [pytest.param(JavaRange, marks=pytest.mark.soak), JavaConsumer],
    ids=lambda kind: kind.name.replace(" ", "-"),
)
def test_a_client_that_is_led_to_another_cluster_begins_anew_and_reads_nothing_of_it(
    brokers: Brokers, host: MemberHost, kind: type[JavaRange | JavaConsumer]
) -> None:
    write(brokers.meant, b"one", is_first=True)
    write(brokers.another, b"none of ours", is_first=True)
    crowd = HostedCrowd(brokers.bootstrap.address, host)
    member = crowd.join(kind, "readers", TOPIC)
    # All goes by the port map, and well.
    crowd.wait(lambda: member.values() == [b"one"])
    # The connection that it began with is gone by then.
    brokers.bootstrap.lead_to(brokers.meant.port)
    so_far = brokers.bootstrap.accepted
    brokers.advertised.lead_to(brokers.another.port)
    brokers.bootstrap.wait_until_accepted(so_far + 1)
    brokers.advertised.lead_to(brokers.meant.port)
    write(brokers.meant, b"two")
    crowd.wait(lambda: b"two" in member.values())
    # Nothing is committed, so a member that had to join again reads the first record again.
    assert set(member.values()) == {b"one", b"two"}
    crowd.leave(member)
