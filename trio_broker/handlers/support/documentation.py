"""Renders the registry of handlers as ``docs/apis.md``, and the rights that it declares as ``docs/rights.md``.

``python -m trio_broker.handlers.support.documentation`` writes both pages.

A test compares the pages with the registry, so that neither moves without the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafka_wire.schema import VersionRange
from trio_broker.handlers.support.registry import ServedApi, served_apis
from trio_broker.handlers.support.rights import ForEach, Requirement, rights_of

INTRODUCTION = """\
# APIs

This page is written by `python -m trio_broker.handlers.support.documentation` from the registry of handlers, which
also answers ApiVersions and decides which requests a connection lets in. An API that is not listed is
not advertised, and a request of it closes its connection, as in Kafka; so does a version outside the range. Only an
ApiVersions that is newer than ours gets an answer: in version 0, with UNSUPPORTED_VERSION and the range it has here.

In a cluster of several brokers, what is marked *controller* is answered by the controller, to which the other brokers
forward it. What is marked *brokers* is advertised and let in only on the listener of brokers
(`inter.broker.listener.name`), and not forwarded; a broker alone does not serve it.

*Flexible from* is the first version with compact lengths and tagged fields.
"""

RIGHTS_INTRODUCTION = """\
# Rights

What each API asks for, where there is an authorizer ([security.md](security.md#authorisation)). This page is written by
`python -m trio_broker.handlers.support.documentation` from the declarations that the broker goes by; a test takes away
one right after the other.

The right comes first: who lacks it does not learn whether there is such a topic, group or id. Of two rights with *or*
between them one is enough.
An API without a line is not served.
"""

RIGHTS_TITLES = ("API", "right", "what is refused without it, and how")

TITLES = ("key", "API", "versions", "flexible from", "by", "handler", "what it does")


def render_apis() -> str:
    """Return the whole page."""
    apis = sorted(served_apis().values(), key=lambda api: api.api_key)
    rows = "".join(_line(_cells(api)) for api in apis)
    return f"{INTRODUCTION}\n{_line(TITLES)}{_line('---' for _ in TITLES)}{rows}{_notes(apis)}"


def render_rights() -> str:
    """Return the whole page of rights."""
    apis = sorted(served_apis().values(), key=lambda api: api.api_key)
    # One that holds for two lists of a request is said once.
    rows = dict.fromkeys(_line(_right_cells(api, each)) for api in apis for each in api.requires)
    return f"{RIGHTS_INTRODUCTION}\n{_line(RIGHTS_TITLES)}{_line('---' for _ in RIGHTS_TITLES)}{''.join(rows)}"


def _right_cells(api: ServedApi, requirement: Requirement) -> tuple[str, ...]:
    name = api.request.__name__.removesuffix("Request")
    depends = isinstance(requirement, ForEach) and requirement.right is not None
    needed = (", by type " if depends else " or ").join(f"`{right}`" for right in rights_of(requirement))
    return name, needed or "none", re.sub(r"\b[A-Z]+(_[A-Z]+)+\b", r"`\g<0>`", requirement.refusal)


def _cells(api: ServedApi) -> tuple[str, ...]:
    path = api.handler.__module__.replace(".", "/") + ".py"
    summary = (api.handler.__doc__ or "").partition("\n")[0].replace("``", "`")
    return (
        str(api.api_key.value),
        api.request.__name__.removesuffix("Request"),
        _range(api.advertised),
        _flexible_from(api),
        ", ".join(_answered_by(api)),
        f"[{path.rpartition('/')[2]}](../{path})",
        summary,
    )


def _answered_by(api: ServedApi) -> Iterable[str]:
    if api.by_controller:
        yield "controller"
    if api.between_brokers:
        yield "brokers"


def _flexible_from(api: ServedApi) -> str:
    version = api.request.FLEXIBLE_FROM
    return "never" if version is None else str(version)


def _notes(apis: Iterable[ServedApi]) -> str:
    """What is advertised and not served. KAFKA-18659: librdkafka needs Produce v0 advertised."""
    notes = [
        f"\n{api.request.__name__.removesuffix('Request')} is advertised from version {api.advertised.low} and served"
        f" from {api.versions.low} on: some clients take a higher lowest version for a broker without compression.\n"
        for api in apis
        if api.advertised != api.versions
    ]
    return "".join(notes)


def _range(versions: VersionRange) -> str:
    return str(versions.low) if versions.low == versions.high else f"{versions.low}–{versions.high}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    from pathlib import Path

    for page, text in (("apis.md", render_apis()), ("rights.md", render_rights())):
        Path("docs", page).write_text(text, encoding="utf-8")
