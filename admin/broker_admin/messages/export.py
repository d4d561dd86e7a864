"""Found records as lines: JSON as ``trio_broker.common.record_json`` writes it, and CSV for spreadsheets.

A line of JSON has the record's own bytes, and ``produce --json`` and the page's file reader take it back as it was. CSV
has what the page shows. Spreadsheets run cells that begin like formulas, so these begin with an apostrophe there.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from broker_admin.messages.rows import MessagePart, MessageRow, RecordVariables, Show, ShownRecord
from broker_admin.texts import iso_time, line_text
from broker_admin.views.cluster.messages import BatchInfo
from trio_broker.common.escaping import escape_formula
from trio_broker.common.record_json import record_line

CSV_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers", "size_bytes", "codec", "producer_id")


def show_lines(topic: str) -> Show:
    """Show records as lines of JSON."""

    def show(variables: RecordVariables, batch: BatchInfo) -> ShownRecord:
        is_append_time = batch.timestamp_type == "log_append_time"
        line = record_line(topic, variables.partition, variables.record, is_append_time=is_append_time)
        return ShownRecord(line, len(line))

    return show


def csv_text(rows: Sequence[MessageRow]) -> str:
    """The rows as CSV with a line of names."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        # A list, as in a line of JSON: a record may have several headers with one name.
        headers = [
            {"key": each.name, "value": None if each.value is None else cell(each.value)} for each in row.headers
        ]
        writer.writerow(
            [
                row.partition,
                row.offset,
                "" if row.timestamp_ms is None else iso_time(row.timestamp_ms),
                escape_formula(cell(row.key)),
                escape_formula(cell(row.value)),
                json.dumps(headers, ensure_ascii=False) if headers else "",
                row.size_bytes,
                row.batch.codec,
                "" if row.batch.producer_id is None else row.batch.producer_id,
            ]
        )
    return out.getvalue()


def cell(part: MessagePart | None) -> str:
    return "" if part is None else line_text(part.data)
