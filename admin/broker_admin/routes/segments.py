"""``/topics/{topic}/manifest`` of a broker: the files of a topic's partitions there, and how much of them counts.

For programs that read the files themselves instead of fetching. It has what the files alone do not: where the log
begins, which offsets are safe to read, how much of the active segment is written, and which transactions were aborted.
GET, JSON, encoded in a worker thread.
"""

from __future__ import annotations

import attrs
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import node_of
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation, query_of
from broker_admin.problems import FieldError, Problem, query_pointer
from broker_admin.requirements import of_topic, requires
from broker_admin.responses import json_response_from_thread
from broker_admin.routing import NodeRoute
from broker_admin.schemas import PartitionNumber
from broker_admin.tokens import Role
from broker_admin.views.node.segments import TopicManifest
from trio_broker.handlers.support.rights import READ_TOPIC


@attrs.frozen
class ManifestQuery:
    """The partitions that are asked for; none means all."""

    partition: tuple[PartitionNumber, ...] = ()


@requires(Role.VIEWER, of_topic(READ_TOPIC))
@operation(TopicManifest, query=ManifestQuery, problems={404: "there is no such topic or partition"})
async def get_manifest(request: Request) -> Response:
    """The segments of a topic's partitions, or of those that are named by ``partition``, with what readers need."""
    wanted = frozenset(query_of(request, ManifestQuery).partition)
    manifest = await node_of(request).segments.manifest(request.path_params["topic"], wanted)
    if manifest is None:
        raise Problem(404, "there is no such topic here; /api/v1/topics lists those there are")
    if missing := wanted - {each.partition for each in manifest.partitions}:
        reason = f"the topic has no partition {min(missing)} here"
        raise Problem(404, reason, [FieldError(query_pointer("partition"), reason)])
    return await json_response_from_thread(manifest)


ROUTES = [NodeRoute(NODE_API + "/topics/{topic}/manifest", get_manifest)]
