"""The media types that lists are exported in besides JSON, and which of them a request wants."""

from __future__ import annotations

from starlette.requests import Request

NDJSON, CSV = "application/x-ndjson", "text/csv"


def wanted_format(request: Request, asked: str) -> str:
    """``json``, ``ndjson`` or ``csv``, as the query or the Accept header says."""
    accept = request.headers.get("accept", "")
    if asked:
        return asked
    return "ndjson" if NDJSON in accept else "csv" if CSV in accept else "json"
