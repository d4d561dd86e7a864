"""``/tasks`` of a broker: the tasks of its event loop, and what held it longest."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import node_of
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response_from_thread
from broker_admin.routing import NodeRoute
from broker_admin.tokens import Role
from broker_admin.views.node.tasks import TaskTree
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(TaskTree)
async def get_tasks(request: Request) -> Response:
    """The tree of tasks with what each waits for, and the slowest steps of the last minute.

    To ask for it turns on the timing of steps for a minute, which costs a busy broker a few hundredths of its time.
    """
    return await json_response_from_thread(await node_of(request).tasks.tree())


ROUTES = [NodeRoute(NODE_API + "/tasks", get_tasks)]
