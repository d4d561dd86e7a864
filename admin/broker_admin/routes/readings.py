"""The broker's readings: node, threads, history, journal. All GET, all JSON."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_admin.encoding import json_response, json_response_from_thread, mask_changes, sensitive_keys
from broker_admin.operations import operation
from broker_admin.parts import parts_of
from broker_admin.views.config import JournalEntry
from broker_admin.views.node import NodeDescription
from broker_admin.views.readings import ThreadStatistics
from trio_broker.metrics.history import HistorySample

SAMPLE_INTERVAL_MS = 1000
"""The broker samples itself once a second; charts need to know to see gaps."""


@attrs.frozen
class HistoryOfSamples:
    """Samples, oldest first, ``interval_ms`` apart unless some are missing."""

    interval_ms: int
    samples: Sequence[HistorySample]


@attrs.frozen
class Journal:
    """Changes, oldest first."""

    changes: Sequence[JournalEntry]


@operation(NodeDescription)
async def get_node(request: Request) -> Response:
    """Who the broker is: ids, version, listeners, durability, uptime."""
    return json_response(parts_of(request).view.node())


@operation(ThreadStatistics)
async def get_threads(request: Request) -> Response:
    """Idle ratio of every network thread and handler slot, the queue between them, and how busy the loop is."""
    return json_response(parts_of(request).view.threads())


@operation(HistoryOfSamples)
async def get_history(request: Request) -> Response:
    """The samples kept, oldest first, one a second."""
    samples = list(parts_of(request).view.history())
    return await json_response_from_thread(HistoryOfSamples(SAMPLE_INTERVAL_MS, samples))


@operation(Journal)
async def get_journal(request: Request) -> Response:
    """The recent config changes, oldest first, by all clients."""
    view = parts_of(request).view
    return json_response(Journal(mask_changes(view.journal(), sensitive_keys(view.config_entries()))))


ROUTES = [
    Route("/api/v1/node", get_node),
    Route("/api/v1/threads", get_threads),
    Route("/api/v1/history", get_history),
    Route("/api/v1/journal", get_journal),
]
