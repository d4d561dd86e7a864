"""The pages that each page links to. A page is there as soon as the app has a route for its path."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from starlette.routing import BaseRoute, Route

from broker_admin.node_addresses import NODE_PAGES, at_broker


@attrs.frozen
class NavigationEntry:
    """A link to a page. ``here`` is what the page says of itself; ``key`` goes there, pressed after ``g``."""

    here: str
    title: str
    path: str
    key: str
    is_second: bool = False


NAVIGATION = (
    NavigationEntry("overview", "Overview", "/", "o"),
    NavigationEntry("brokers", "Brokers", "/brokers", "b"),
    NavigationEntry("topics", "Topics", "/topics", "t"),
    NavigationEntry("groups", "Groups", "/groups", "g"),
    NavigationEntry("transactions", "Transactions", "/transactions", "x"),
    NavigationEntry("clients", "Clients", NODE_PAGES + "/clients", "l"),
    NavigationEntry("tuning", "Tuning", NODE_PAGES + "/tuning", "u"),
    NavigationEntry("config", "Config", "/config", "c"),
    NavigationEntry("access", "Access", "/access", "a"),
    NavigationEntry("changes", "Changes", "/changes", "h"),
    NavigationEntry("replication", "Replication", "/replication", "r", is_second=True),
    NavigationEntry("storage", "Storage", NODE_PAGES + "/storage", "s", is_second=True),
    NavigationEntry("tasks", "Tasks", NODE_PAGES + "/tasks", "k", is_second=True),
    NavigationEntry("api", "API", "/api", "i", is_second=True),
)


def navigation_of(routes: Iterable[BaseRoute]) -> tuple[NavigationEntry, ...]:
    """The entries whose pages are served."""
    served = {route.path for route in routes if isinstance(route, Route)}
    return tuple(entry for entry in NAVIGATION if entry.path in served)


def at_one_broker(entries: Iterable[NavigationEntry], broker_id: int) -> list[NavigationEntry]:
    """The entries with their addresses, where the pages about one broker are those about this one."""
    return [attrs.evolve(each, path=at_broker(each.path, broker_id)) for each in entries]
