"""The overview as one value: the verdict, then a few of everything. ``/`` shows it, ``/api/v1/overview`` has it."""

from __future__ import annotations

import attrs

from broker_admin.health import Health, findings_in, health
from broker_admin.health_rules import RuleFinding
from broker_admin.view import BrokerView, NodeView
from broker_admin.views.node.identity import NodeDescription
from broker_admin.views.node.overview import LISTED, LaggingGroup, OverviewReadings
from broker_admin.views.node.storage import DirectoryReport, TopicSize
from trio_broker.changes.change import Change
from trio_broker.metrics.history import HistorySample
from trio_broker.network.statistics import RecentError


@attrs.frozen
class LoadReading:
    """What clients sent and received in the last second, and how many are connected.

    The 99th percentiles are of requests in the last minute, a Fetch without what it waits for records, and None where
    there were none.
    """

    bytes_in_per_second: float
    bytes_out_per_second: float
    records_in_per_second: float
    requests_per_second: float
    event_loop_busy_ratio: float
    connections: int
    produce_p99_ms: float | None
    fetch_p99_ms: float | None


@attrs.frozen(kw_only=True)
class Overview:
    """A broker at one glance, at ``read_at_ms``.

    ``has_records`` is false until a client has written a record to a topic that is there. ``load`` is None in the first
    second. The groups that fall behind fastest come first, after them the others by lag; those without members, for
    which nothing is committed though records wait, are the ``abandoned_groups``. Internal topics are not among
    the ``largest_topics`` and ``busiest_topics``. ``errors`` are the newest answers with an error code, by API, code
    and client; ``changes`` are the newest, too.
    """

    read_at_ms: int
    health: Health
    node: NodeDescription
    has_records: bool
    topics: int
    partitions: int
    groups: int
    groups_falling_behind: int
    load: LoadReading | None
    directories: tuple[DirectoryReport, ...]
    lagging_groups: tuple[LaggingGroup, ...]
    groups_abandoned: int
    abandoned_groups: tuple[LaggingGroup, ...]
    largest_topics: tuple[TopicSize, ...]
    busiest_topics: tuple[TopicSize, ...]
    changes: tuple[Change, ...]
    errors: tuple[RecentError, ...]


async def overview_of(view: BrokerView) -> Overview:
    """The overview of a broker as it is now; parts of it may be some seconds old."""
    readings, broker = await view.node.overview.readings(), view.node.identity.description()
    samples = view.node.readings.history()
    return Overview(
        read_at_ms=readings.read_at_ms,
        health=health(findings_of(view.node, readings), broker.node_id),
        node=broker,
        has_records=readings.has_records,
        topics=readings.topics,
        partitions=readings.partitions,
        groups=readings.groups,
        groups_falling_behind=len(readings.groups_falling_behind),
        load=load_reading(samples[-1], readings.produce_p99_ms, readings.fetch_p99_ms) if samples else None,
        directories=readings.directories,
        lagging_groups=readings.lagging_groups,
        groups_abandoned=readings.groups_abandoned,
        abandoned_groups=readings.abandoned_groups,
        largest_topics=readings.largest_topics,
        busiest_topics=readings.busiest_topics,
        changes=tuple(view.cluster.changes.list()[: -LISTED - 1 : -1]),
        errors=readings.errors[:LISTED],
    )


def findings_of(node: NodeView, readings: OverviewReadings) -> tuple[RuleFinding, ...]:
    """What the rules find in a broker's ``readings`` and in what else it knows of itself."""
    return findings_in(
        node.identity.readiness(),
        readings,
        node.readings.history(),
        node.latency.bottleneck(),
        node.connection_diagnosis.failed_handshakes(),
    )


def load_reading(sample: HistorySample, produce_p99_ms: float | None, fetch_p99_ms: float | None) -> LoadReading:
    return LoadReading(
        bytes_in_per_second=sample.bytes_in_per_second,
        bytes_out_per_second=sample.bytes_out_per_second,
        records_in_per_second=sample.records_in_per_second,
        requests_per_second=sample.requests_per_second,
        event_loop_busy_ratio=sample.event_loop_busy_ratio,
        connections=sample.connections,
        produce_p99_ms=produce_p99_ms,
        fetch_p99_ms=fetch_p99_ms,
    )
