"""Renders the registry of handlers as ``docs/apis.md``.

``python -m trio_broker.handlers.support.documentation`` writes the page.

A test compares the page with the registry, so that neither moves without the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire.schema import VersionRange
from trio_broker.handlers.support.registry import ServedApi, served_apis

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

TITLES = ("key", "API", "versions", "flexible from", "by", "handler", "what it does")


def render_apis() -> str:
    """Return the whole page."""
    apis = sorted(served_apis().values(), key=lambda api: api.api_key)
    rows = "".join(_line(_cells(api)) for api in apis)
    return f"{INTRODUCTION}\n{_line(TITLES)}{_line('---' for _ in TITLES)}{rows}{_notes(apis)}"


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
    import sys
    from pathlib import Path

    page = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/apis.md")
    page.write_text(render_apis(), encoding="utf-8")
