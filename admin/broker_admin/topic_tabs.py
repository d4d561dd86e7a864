"""The tabs over the pages of one topic: those pages that the app serves."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import attrs
from starlette.requests import Request
from starlette.routing import Route

TABS: Mapping[str, str] = {
    "Overview": "",
    "Messages": "/messages",
    "Partitions": "/partitions",
    "Replicas": "/replicas",
    "Consumers": "/consumers",
    "Config": "/config",
}
"""The pages of one topic, by their addresses behind its own."""


@attrs.frozen
class Tab:
    """One page of a topic."""

    title: str
    address: str


def topic_address(topic: str) -> str:
    """Where the page of a topic is."""
    return f"/topics/{quote(topic, safe='')}"


def tabs_of(request: Request, topic: str) -> tuple[Tab, ...]:
    """The pages of ``topic`` that the app serves."""
    served = {route.path for route in request.app.routes if isinstance(route, Route)}
    return tuple(
        Tab(title, topic_address(topic) + path) for title, path in TABS.items() if f"/topics/{{topic}}{path}" in served
    )
