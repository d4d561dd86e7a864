"""Numbers, times and text of clients as the pages show them: filters of the templates.

Ids of groups and members, client ids and reasons are whatever a client sent: markup, control characters, letters that
run from right to left, 32 KB of them. Jinja2 escapes the markup; ``shown_text`` does the rest.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from trio_broker.common.amounts import bytes_text as bytes_text
from trio_broker.common.amounts import counted as counted
from trio_broker.common.amounts import duration_text as duration_text
from trio_broker.common.amounts import number_text as number_text
from trio_broker.common.amounts import short_duration_text as short_duration_text
from trio_broker.common.escaping import escape_unprintable

SHOWN_CHARACTERS = 64
"""As much of a client's text as a table shows: a client id, or a member id with its UUID, and then some."""

MEMBER_TAIL = 12
"""Characters of a UUID's last group."""


def capitalized(text: str) -> str:
    """``text`` as a sentence begins; unlike ``str.capitalize`` its other letters stay."""
    return f"{text[0].upper()}{text[1:]}"


def code_marked(text: str) -> Markup:
    """Text with what stands between backticks as code; all else is escaped."""
    parts = text.split("`")
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def time_text(at_ms: int) -> str:
    """A time in UTC, to the second, or its number; the script shows it in the reader's own zone."""
    moment = moment_at(at_ms)
    return str(at_ms) if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def moment_at(at_ms: int) -> datetime.datetime | None:
    """A time in UTC; None beyond the calendar, as of a client that counts in microseconds."""
    try:
        return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return None


def iso_time(at_ms: int) -> str:
    """A record's time in UTC, to the millisecond, as ISO 8601 has it; its number if that is beyond the calendar."""
    moment = moment_at(at_ms)
    return str(at_ms) if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def export_name(name: str, at_ms: int, form: str) -> str:
    """The name of a file that is exported at a time, after what is in it."""
    moment = moment_at(at_ms)
    return f"{name}.{form}" if moment is None else f"{name}-{moment:%Y-%m-%dT%H%M%SZ}.{form}"


def clock_text(at_ms: int) -> str:
    """A time of day in UTC, for an axis."""
    moment = moment_at(at_ms)
    return str(at_ms) if moment is None else moment.strftime("%H:%M:%S")


def shown_text(text: str, length: int = SHOWN_CHARACTERS) -> str:
    """A client's ``text`` in one line of at most ``length`` characters, each of which can be seen."""
    shown = escape_unprintable(text[:length])
    return f"{shown}…" if len(text) > length else shown


def line_text(data: Any) -> str:
    """What a decoder made of bytes, as one line: a text itself, anything else as JSON."""
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(", ", ": "))


def partitions_text(partitions: Sequence[int]) -> str:
    """Partitions as ranges: ``0–2, 5``."""
    ranges: list[list[int]] = []
    for partition in sorted(partitions):
        if ranges and ranges[-1][1] == partition - 1:
            ranges[-1][1] = partition
        else:
            ranges.append([partition, partition])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in ranges)


def member_tail(member_id: str, client_id: str) -> str:
    """A member id beside its client id: where it only adds a UUID to that, the end of it, by which members differ."""
    if len(member_id) > len(client_id) + MEMBER_TAIL and member_id.startswith(f"{client_id}-"):
        return f"…{member_id[-MEMBER_TAIL:]}"
    return member_id
