"""``/storage`` of a broker: the disks, what leaves them, and what the last start found.

``/recovery``: how far a start is with the logs.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import node_of, state_of
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response, json_response_from_thread
from broker_admin.routing import NodeRoute
from broker_admin.tokens import Role
from broker_admin.views.node.storage import StorageReport
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER
from trio_broker.storage.recovery_progress import RecoveryProgress


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(StorageReport)
async def get_storage(request: Request) -> Response:
    """Data directories with a forecast, the largest topics, retention, compaction, syncs, and the last recovery."""
    return await json_response_from_thread(await node_of(request).storage.report())


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(RecoveryProgress)
async def get_recovery(request: Request) -> Response:
    """How far the start is with the logs; later, how it went over them."""
    state = state_of(request)
    return json_response(state.node.storage.recovery() if state.start is None else state.start.recovery())


ROUTES = [NodeRoute(NODE_API + "/storage", get_storage), NodeRoute(NODE_API + "/recovery", get_recovery)]
