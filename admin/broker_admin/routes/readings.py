"""The broker's readings: node, threads, topics, history, journal. All GET, all JSON."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_admin.encoding import json_response, json_response_from_thread, mask_changes, sensitive_keys
from broker_admin.parts import parts_of

SAMPLE_INTERVAL_MS = 1000
"""The broker samples itself once a second; charts need to know to see gaps."""


async def get_node(request: Request) -> Response:
    """Who the broker is: ids, version, listeners, durability, uptime."""
    return json_response(parts_of(request).view.node())


async def get_threads(request: Request) -> Response:
    """Idle ratio of every network thread and handler slot, the queue between them, and how busy the loop is."""
    return json_response(parts_of(request).view.threads())


async def get_topics(request: Request) -> Response:
    """Every topic with its partitions' offsets and sizes, and the configs set on it."""
    return await json_response_from_thread({"topics": parts_of(request).view.topics()})


async def get_history(request: Request) -> Response:
    """The samples kept, oldest first, one a second."""
    samples = list(parts_of(request).view.history())
    return await json_response_from_thread({"interval_ms": SAMPLE_INTERVAL_MS, "samples": samples})


async def get_journal(request: Request) -> Response:
    """The recent config changes, oldest first, by all clients."""
    view = parts_of(request).view
    return json_response({"changes": mask_changes(view.journal(), sensitive_keys(view.config_entries()))})


ROUTES = [
    Route("/api/v1/node", get_node),
    Route("/api/v1/threads", get_threads),
    Route("/api/v1/topics", get_topics),
    Route("/api/v1/history", get_history),
    Route("/api/v1/journal", get_journal),
]
