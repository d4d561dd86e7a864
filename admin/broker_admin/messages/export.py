"""Found records as lines: JSON as ``trio-broker consume --json`` prints it, and CSV for spreadsheets.

A line of JSON has the record's own bytes, and ``produce --json`` and the page's file reader take it back as it was. CSV
has what the page shows. Spreadsheets run cells that begin like formulas, so these begin with an apostrophe there.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from broker_admin.messages.rows import MessagePart, MessageRow, RecordVariables, Show, ShownRecord
from broker_admin.texts import iso_time, line_text
from broker_admin.views.cluster.messages import BatchInfo

FORMULA_BEGINNINGS = ("=", "+", "-", "@", "\t", "\r")

CSV_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers", "size_bytes", "codec", "producer_id")


def show_lines(topic: str) -> Show:
    """Show records as lines of JSON."""

    def show(variables: RecordVariables, batch: BatchInfo) -> ShownRecord:
        line = record_line(topic, variables, batch)
        return ShownRecord(line, len(line))

    return show


def record_line(topic: str, variables: RecordVariables, batch: BatchInfo) -> str:
    """A record as a line of ASCII, with its line end."""
    record = variables.record
    line: dict[str, Any] = {
        "topic": topic,
        "partition": variables.partition,
        "offset": record.offset,
        "timestamp": record.timestamp if record.timestamp >= 0 else None,
        "timestamp_type": "create" if batch.timestamp_type == "create_time" else "append",
        **as_text_or_base64("key", record.key),
        **as_text_or_base64("value", record.value),
        "headers": [
            as_text_or_base64("key", name.encode("utf-8", "surrogateescape")) | as_text_or_base64("value", data)
            for name, data in record.headers
        ],
    }
    return json.dumps(line, separators=(",", ":")) + "\n"


def as_text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes under ``name`` if they are text, else in base64 under ``name_base64``."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def csv_text(rows: Sequence[MessageRow]) -> str:
    """The rows as CSV with a line of names."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        headers = {header.name: cell(header.value) for header in row.headers}
        writer.writerow(
            [
                row.partition,
                row.offset,
                "" if row.timestamp_ms is None else iso_time(row.timestamp_ms),
                harmless(cell(row.key)),
                harmless(cell(row.value)),
                json.dumps(headers, ensure_ascii=False) if headers else "",
                row.size_bytes,
                row.batch.codec,
                "" if row.batch.producer_id is None else row.batch.producer_id,
            ]
        )
    return out.getvalue()


def cell(part: MessagePart | None) -> str:
    return "" if part is None else line_text(part.data)


def harmless(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA_BEGINNINGS) else text
