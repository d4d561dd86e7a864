"""``/api/v1/topics/{topic}/manifest``: the files of a topic's partitions, and how much of them counts.

For programs that read the files themselves instead of fetching. It has what the files alone do not: where the log
begins, which offsets are safe to read, how much of the active segment is written, and which transactions were aborted.
GET, JSON, encoded in a worker thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_admin.encoding import json_response_from_thread
from broker_admin.errors import error_response
from broker_admin.parts import parts_of

MAX_PARTITION = 2**31 - 1
"""The largest number of a partition; Kafka's are int32."""

MAX_PARTITION_DIGITS = len(str(MAX_PARTITION))


async def get_manifest(request: Request) -> Response:
    """The segments of a topic's partitions, or of those that are named by ``partition``, with what readers need."""
    topic = request.path_params["topic"]
    wanted = wanted_partitions(request.query_params)
    if wanted is None:
        return error_response(400, f"partition is a whole number from 0 to {MAX_PARTITION}")
    manifest = await parts_of(request).view.topic_manifest(topic, wanted)
    if manifest is None:
        return error_response(404, "there is no such topic here; /api/v1/topics lists those there are")
    if missing := wanted - {each.partition for each in manifest.partitions}:
        return error_response(404, f"the topic has no partition {min(missing)} here")
    return await json_response_from_thread(manifest)


def wanted_partitions(parameters: QueryParams) -> frozenset[int] | None:
    """The partitions that are asked for, none for all of them; None when one is no number of a partition."""
    texts = parameters.getlist("partition")
    if not all(is_partition(text) for text in texts):
        return None
    return frozenset(map(int, texts))


def is_partition(text: str) -> bool:
    digits = text.isascii() and text.isdecimal() and len(text) <= MAX_PARTITION_DIGITS
    return digits and int(text) <= MAX_PARTITION


QUERY_PARAMETERS: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "/api/v1/topics/{topic}/manifest": {
        "partition": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": MAX_PARTITION}},
    },
}
"""What each address takes in its query, for the description."""

ROUTES = [Route("/api/v1/topics/{topic}/manifest", get_manifest)]
