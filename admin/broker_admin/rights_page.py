"""Renders what the routes require as ``docs/admin-rights.md``.

``python -m broker_admin.rights_page`` writes the page; a test compares it with the declarations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from starlette.routing import BaseRoute

from broker_admin.app import ROUTES
from broker_admin.requirements import Demand, Requirement
from broker_admin.routing import ANY_METHOD, Route

INTRODUCTION: Final = """\
# Rights to the admin page and its API

What each address asks for, where there is a login ([access.md](access.md)): a token of that role or a higher one, or
all of these rights of a user. Of two rights with *or* between them one is enough. This page is written by
`python -m broker_admin.rights_page` from the declarations that the admin app goes by.

"""

TITLES: Final = ("address", "role", "rights of a user")


def render_admin_rights(routes: Iterable[BaseRoute] = ROUTES) -> str:
    """Return the whole page: the API, then the pages."""
    lines = [
        (not route.path.startswith("/api/"), route.path, method, requirement)
        for route in routes
        if isinstance(route, Route)
        for method, requirement in declared_by(route)
    ]
    lines.sort(key=order)
    rows = "".join(line((f"`{method} {shown_path(path)}`", *cells(needed))) for _, path, method, needed in lines)
    return f"{INTRODUCTION}{line(TITLES)}{line('---' for _ in TITLES)}{rows}"


def shown_path(path: str) -> str:
    """The path without the types of its parameters."""
    return re.sub(r":(int|path)}", "}", path)


def order(each: tuple[bool, str, str, Requirement]) -> tuple[bool, str, str]:
    return each[:3]


def declared_by(route: Route) -> Iterable[tuple[str, Requirement]]:
    """The methods that ``route`` takes, but HEAD, and what each requires."""
    for method, requirement in route.requirements.items():
        for each in sorted((route.methods or set()) - {"HEAD"}) if method == ANY_METHOD else [method]:
            yield each, requirement


def cells(requirement: Requirement) -> tuple[str, str]:
    if requirement.role is None:
        return "none", "none"
    return requirement.role.value, "; ".join(map(demand_text, requirement.demands))


def demand_text(demand: Demand) -> str:
    rights = " or ".join(f"`{right}`" for right in demand.rights)
    return f"{rights} ({demand.note})" if demand.note else rights


def line(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |\n"


if __name__ == "__main__":
    from pathlib import Path

    Path("docs", "admin-rights.md").write_text(render_admin_rights(), encoding="utf-8")
