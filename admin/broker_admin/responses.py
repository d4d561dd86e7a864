"""Answers of the API: values as JSON, encoded where they hold up nobody."""

from __future__ import annotations

from typing import Any

import trio
from starlette.responses import Response

from broker_admin.encoding import encode


def json_response(value: Any, status: int = 200) -> Response:
    """Answer with ``value``, encoded on the loop; for what is small."""
    return Response(encode(value), status, media_type="application/json")


async def json_response_from_thread(value: Any) -> Response:
    """Answer with ``value``, encoded in a worker thread; for what grows with the broker. ``value`` does not change."""
    return Response(await trio.to_thread.run_sync(encode, value), media_type="application/json")
