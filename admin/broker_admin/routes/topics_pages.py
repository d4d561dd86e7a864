"""``/topics``: the pages of topics, whole without a script. Lists take the words of the API in their addresses.

Pages are rendered in a worker thread, one after another. Whatever is large comes in parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin import topic_texts
from broker_admin.app_state import cluster_of, node_of, now_ms_of
from broker_admin.operations import query_of
from broker_admin.pages import TEMPLATES, frame, page_response, render_template
from broker_admin.requirements import left_out, of_topic, requires
from broker_admin.routes.topics import problem_of
from broker_admin.routing import LeaderRoute, Route
from broker_admin.series_chart import RANGES, TOPIC_CHARTS, RangeQuery, range_links, series_charts
from broker_admin.tables import Column, ListTable
from broker_admin.tokens import Role
from broker_admin.topic_list import (
    ConsumersQuery,
    PartitionsQuery,
    SegmentsQuery,
    TopicsQuery,
    select_consumers,
    select_partitions,
    select_segments,
    select_topics,
)
from broker_admin.topic_paths import name_of, no_such_partition, no_such_topic, partition_of
from broker_admin.topic_tabs import tabs_of, topic_address
from broker_admin.transaction_list import held_back_of
from broker_admin.view import ClusterView
from broker_admin.views.cluster.topics import TopicRefused
from broker_admin.visible import visible_consumers, visible_topics
from trio_broker.config.config_key import ConfigType, ConfigUnit
from trio_broker.config.entries import ConfigEntry
from trio_broker.config.quantities import quantity_text
from trio_broker.handlers.support.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC, DESCRIBE_TOPIC_CONFIGS

TOPIC_TABLE = [
    Column("Topic", "name"),
    Column("Partitions", "partitions", is_number=True, hidden_below="narrow"),
    Column("Records in/s", "records_in", is_number=True, explanation="over the last minute"),
    Column("In/s", "bytes_in", is_number=True, hidden_below="narrow", explanation="over the last minute"),
    Column("Out/s", "bytes_out", is_number=True, hidden_below="medium", explanation="over the last minute"),
    Column("Size", "size", is_number=True, hidden_below="narrow"),
    Column("Retention", hidden_below="medium"),
    Column("Largest lag", "lag_seconds", explanation="the group with the largest lag"),
    Column("Last write", "last_append", hidden_below="narrow"),
]

PARTITION_TABLE = [
    Column("Partition", "partition"),
    Column("Leader", is_number=True, hidden_below="medium"),
    Column("Start", is_number=True, hidden_below="narrow", explanation="the first offset that can be read"),
    Column("High watermark", is_number=True, explanation="the end of what consumers may read"),
    Column("Size", "size", is_number=True),
    Column("Segments", "segments", is_number=True, hidden_below="narrow"),
    Column("Records in/s", "records_in", is_number=True, hidden_below="narrow"),
    Column("Out/s", "bytes_out", is_number=True, hidden_below="medium"),
    Column("Share of writes", "bytes_in", hidden_below="medium", explanation="equal bars mean an even spread of keys"),
    Column("Oldest record", hidden_below="narrow"),
    Column("Last write", "last_append"),
]

SEGMENT_TABLE = [
    Column("Base offset", "base_offset"),
    Column("End", is_number=True),
    Column("Size", "size", is_number=True),
    Column("Index entries", is_number=True, hidden_below="narrow"),
    Column("Newest record", "newest_record", hidden_below="narrow"),
    Column("Deleted by retention"),
]

CONSUMER_TABLE = [
    Column("Group", "group_id"),
    Column("Lag, time", "lag_seconds", is_number=True),
    Column("Lag, records", "lag_records", is_number=True),
    Column("Catches up", "lag_change", explanation="at the rates of the whole group, over all its topics"),
    Column("State", hidden_below="narrow"),
    Column("Members", is_number=True, hidden_below="narrow"),
    Column("Partitions", is_number=True, hidden_below="narrow"),
]

USUAL_KEYS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
    "max.message.bytes",
    "compression.type",
)
"""What is set most when a topic is created; the other keys are one click away."""

OWN_SOURCE = "DYNAMIC_TOPIC_CONFIG"

SOURCES: Mapping[str, str] = {
    OWN_SOURCE: "this topic",
    "DYNAMIC_BROKER_CONFIG": "this broker, changed live",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "the cluster's default",
    "STATIC_BROKER_CONFIG": "the broker's start",
    "DEFAULT_CONFIG": "built in",
}
"""Where a value comes from, in words."""

TOPICS_WITH_RATES = 200
"""As many topics as the broker keeps the rates of over time; said where there is none."""

SECONDS_BETWEEN_RATES = 10
"""How often it takes them."""


def value_text(text: str | None, unit: ConfigUnit | None) -> str:
    """The value of a setting as it is read best; empty where there is none."""
    return quantity_text(text, unit) or text or ""


def choices_of(entry: ConfigEntry) -> tuple[str, ...]:
    """The values of a setting that has few; of a list, each item and all of them."""
    if entry.type is ConfigType.BOOLEAN:
        return ("true", "false")
    choices = entry.bounds.choices
    return (*choices, ",".join(choices)) if choices and entry.type is ConfigType.LIST else choices


TEMPLATES.filters.update(
    choices_of=choices_of,
    rate_text=topic_texts.rate_text,
    retention_text=topic_texts.retention_text,
    segment_end_text=topic_texts.segment_end_text,
    span_text=topic_texts.span_text,
    quantity=value_text,
)


@attrs.frozen
class ConfigPageQuery:
    """Which settings are shown."""

    changed: bool = False


def topic_context(request: Request, tab: str, api_path: str = "") -> dict[str, Any]:
    """What every page of one topic shows; ``api_path`` is where the API has what is on this one."""
    name = name_of(request)
    address = topic_address(name)
    api_topic = f"/api/v1{address}"
    return page_context(request) | {
        "topic_name": name,
        "tab": tab,
        "tabs": tabs_of(request, name),
        "address": address,
        "api_path": api_topic,
        "api_address": api_topic + api_path,
    }


def page_context(request: Request) -> dict[str, Any]:
    return frame(request) | {"here": "topics", "script": "topics.js"}


async def rendered(request: Request, template: str, context: Mapping[str, Any]) -> Response:
    return await page_response(request, partial(render_template, template, {**context}))


def creation_order(key: str) -> int:
    """Where a key stands among those of a new topic: the usual ones first, the others as they come."""
    return USUAL_KEYS.index(key) if key in USUAL_KEYS else len(USUAL_KEYS)


def creation_context(cluster: ClusterView, bootstrap: str) -> dict[str, Any]:
    """What the dialog that creates a topic needs."""
    defaults = sorted(cluster.topics.config_defaults(), key=lambda entry: creation_order(entry.name))
    settings = "".join(f" [--config {entry.name}={{configs/{entry.name}}}]" for entry in defaults)
    partitions = cluster.config.entry("num.partitions")
    return {
        "defaults": defaults,
        "usual_keys": USUAL_KEYS,
        "default_partitions": None if partitions is None else partitions.value,
        "create_commands": [
            f"trio-broker topics create {{name}} [--partitions {{partitions}}]{settings} -b {bootstrap}",
            f"kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {{name}}"
            f" [--partitions {{partitions}}]{settings}",
        ],
    }


@requires(Role.VIEWER, left_out(DESCRIBE_TOPIC))
async def get_topics_page(request: Request) -> Response:
    """The list of topics."""
    query = query_of(request, TopicsQuery)
    cluster = cluster_of(request)
    page = await trio.to_thread.run_sync(select_topics, await visible_topics(request), query)
    table = ListTable("/topics", TOPIC_TABLE, query, page, request.query_params, key_of=lambda topic: topic.name)
    context = page_context(request)
    return await rendered(
        request, "topics/list.html", context | creation_context(cluster, context["bootstrap"]) | {"table": table}
    )


@requires(Role.VIEWER, of_topic(DESCRIBE_TOPIC))
async def get_topic_page(request: Request) -> Response:
    """One topic: facts, rates, actions."""
    cluster, node, name, chosen = (
        cluster_of(request),
        node_of(request),
        name_of(request),
        query_of(request, RangeQuery).range,
    )
    topic, now_ms = await cluster.topics.get(name), now_ms_of(node)
    series = await node.readings.topic_series(name, now_ms - RANGES[chosen].span_ms, now_ms + 1, RANGES[chosen].step_ms)
    if topic is None or series is None:
        raise no_such_topic(name)
    context = topic_context(request, "Overview")
    return await rendered(
        request,
        "topics/topic.html",
        context
        | creation_context(cluster, context["bootstrap"])
        | {
            "topic": topic,
            "ranges": range_links(context["address"], request.query_params, chosen, "rates-title"),
            "rate_charts": series_charts(series, TOPIC_CHARTS, RANGES[chosen], now_ms),
            "reading_seconds": SECONDS_BETWEEN_RATES,
            "topics_with_history": TOPICS_WITH_RATES,
        },
    )


@requires(Role.VIEWER, of_topic(DESCRIBE_TOPIC))
async def get_partitions_page(request: Request) -> Response:
    """The partitions of one topic."""
    query, name = query_of(request, PartitionsQuery), name_of(request)
    partitions = await cluster_of(request).topics.partitions(name, oldest_records=True)
    if partitions is None:
        raise no_such_topic(name)
    page = await trio.to_thread.run_sync(select_partitions, partitions, query)
    context = topic_context(request, "Partitions", "/partitions")
    table = ListTable(
        f"{context['address']}/partitions", PARTITION_TABLE, query, page, request.query_params,
        key_of=lambda each: str(each.partition),
    )  # fmt: skip
    held_back = await trio.to_thread.run_sync(held_back_of, await cluster_of(request).transactions.report(), name)
    return await rendered(request, "topics/partitions.html", context | {"table": table, "held_back": held_back})


@requires(Role.VIEWER, of_topic(DESCRIBE_TOPIC))
async def get_segments_page(request: Request) -> Response:
    """The files of one partition."""
    query, partition = query_of(request, SegmentsQuery), partition_of(request)
    try:
        found = await node_of(request).topic_segments.of_partition(name_of(request), partition)
    except TopicRefused as refused:
        raise problem_of(refused) from refused
    if found is None:
        raise no_such_partition()
    page = await trio.to_thread.run_sync(select_segments, found.segments, query)
    context = topic_context(request, "Partitions")
    table = ListTable(
        f"{context['address']}/partitions/{partition}", SEGMENT_TABLE, query, page, request.query_params,
        key_of=lambda each: str(each.base_offset),
    )  # fmt: skip
    report = await cluster_of(request).transactions.report()
    held_back = await trio.to_thread.run_sync(held_back_of, report, name_of(request))
    api_address = f"{context['node_api']}{context['address']}/partitions/{partition}/segments"
    shown = {"table": table, "found": found, "held": held_back.get(partition), "api_address": api_address}
    return await rendered(request, "topics/segments.html", context | shown)


@requires(Role.VIEWER, of_topic(DESCRIBE_TOPIC), left_out(DESCRIBE_GROUP))
async def get_consumers_page(request: Request) -> Response:
    """The groups that read one topic."""
    query, name = query_of(request, ConsumersQuery), name_of(request)
    groups, topic = await visible_consumers(request, name), await cluster_of(request).topics.get(name)
    if groups is None or topic is None:
        raise no_such_topic(name)
    page = await trio.to_thread.run_sync(select_consumers, groups, query)
    context = topic_context(request, "Consumers", "/groups")
    table = ListTable(
        f"{context['address']}/consumers", CONSUMER_TABLE, query, page, request.query_params,
        key_of=lambda each: each.group_id,
    )  # fmt: skip
    return await rendered(
        request,
        "topics/consumers.html",
        context | {"table": table, "partition_count": topic.summary.partition_count},
    )


@requires(Role.VIEWER, of_topic(DESCRIBE_TOPIC_CONFIGS))
async def get_config_page(request: Request) -> Response:
    """The settings of one topic."""
    query = query_of(request, ConfigPageQuery)
    entries = cluster_of(request).topics.configs(name_of(request))
    if entries is None:
        raise no_such_topic(name_of(request))
    shown = [entry for entry in entries if not query.changed or entry.source.name == OWN_SOURCE]
    context = topic_context(request, "Config", "/config")
    return await rendered(
        request,
        "topics/config.html",
        context | {"entries": shown, "changed_only": query.changed, "own_source": OWN_SOURCE, "sources": SOURCES},
    )


ROUTES = [
    Route("/topics", get_topics_page),
    Route("/topics/{topic}", get_topic_page),
    Route("/topics/{topic}/partitions", get_partitions_page),
    LeaderRoute("/topics/{topic}/partitions/{partition}", get_segments_page),
    Route("/topics/{topic}/consumers", get_consumers_page),
    Route("/topics/{topic}/config", get_config_page),
]
