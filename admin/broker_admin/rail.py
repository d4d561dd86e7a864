"""The pages that the rail links to. A page stands there as soon as the app has a route for its path."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from starlette.routing import BaseRoute, Route


@attrs.frozen
class RailEntry:
    """A link of the rail. ``here`` is what the page says of itself; ``key`` goes there, pressed after ``g``."""

    here: str
    title: str
    path: str
    key: str
    is_second: bool = False


RAIL = (
    RailEntry("overview", "Overview", "/", "o"),
    RailEntry("topics", "Topics", "/topics", "t"),
    RailEntry("groups", "Groups", "/groups", "g"),
    RailEntry("transactions", "Transactions", "/transactions", "x"),
    RailEntry("clients", "Clients", "/clients", "l"),
    RailEntry("tuning", "Tuning", "/tuning", "u"),
    RailEntry("config", "Config", "/config", "c"),
    RailEntry("changes", "Changes", "/changes", "h"),
    RailEntry("storage", "Storage", "/storage", "s", is_second=True),
    RailEntry("tasks", "Tasks", "/tasks", "k", is_second=True),
    RailEntry("api", "API", "/api", "i", is_second=True),
)


def rail_of(routes: Iterable[BaseRoute]) -> tuple[RailEntry, ...]:
    """The entries whose pages are served."""
    served = {route.path for route in routes if isinstance(route, Route)}
    return tuple(entry for entry in RAIL if entry.path in served)
