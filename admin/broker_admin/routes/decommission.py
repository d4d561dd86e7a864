"""``/api/v1/brokers/{broker_id}/decommission``: having a broker leave the cluster. All JSON.

Any broker of the cluster answers, also for one that is dead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of
from broker_admin.operations import operation, query_of
from broker_admin.problems import Problem, status_of
from broker_admin.request_body import ChangeQuery, caller_name, check_caller
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response
from broker_admin.routing import NO_SUCH_BROKER, Route, broker_id_of
from broker_admin.tokens import Role
from broker_admin.views.cluster.decommission import DecommissionRefused
from trio_broker.cluster.decommission_progress import DecommissionProgress
from trio_broker.handlers.support.rights import ALTER_CLUSTER, DESCRIBE_CLUSTER

UNKNOWN = {404: NO_SUCH_BROKER}

PROBLEMS: Mapping[int, str] = {
    **UNKNOWN,
    409: "too few brokers would be left; nothing was changed",
    503: "the metadata cannot be changed now",
}


def problem_of(refused: DecommissionRefused) -> Problem:
    # What speaks against it is no mistake of the request: with more brokers it is none.
    status = {"BROKER_ID_NOT_REGISTERED": 404, "INVALID_REQUEST": 409}
    return Problem(status.get(refused.error) or status_of(refused.error), refused.reason)


class DecommissionEndpoint(HTTPEndpoint):
    """The decommission of one broker."""

    @requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
    @operation(DecommissionProgress, problems=UNKNOWN)
    async def get(self, request: Request) -> Response:
        """How far a broker is with leaving: the replicas that it has left, and where they move."""
        try:
            return json_response(await cluster_of(request).decommission.progress(broker_id_of(request)))
        except DecommissionRefused as refused:
            raise problem_of(refused) from refused

    @requires(Role.OPERATOR, of_cluster(ALTER_CLUSTER))
    @operation(DecommissionProgress, query=ChangeQuery, is_change=True, problems=PROBLEMS)
    async def post(self, request: Request) -> Response:
        """Have a broker leave: its replicas move to others, then it stops and is unregistered.

        It goes on by itself, under any controller. With ``dry_run`` the answer says what would move where.
        """
        return await changed(request, cluster_of(request).decommission.begin)

    @requires(Role.OPERATOR, of_cluster(ALTER_CLUSTER))
    @operation(DecommissionProgress, query=ChangeQuery, is_change=True, problems=PROBLEMS)
    async def delete(self, request: Request) -> Response:
        """Have a broker stay after all.

        Replicas that are on their way stay on it, and those that have moved do not come back.
        """
        return await changed(request, cluster_of(request).decommission.cancel)


async def changed(request: Request, change: Callable[..., Awaitable[DecommissionProgress]]) -> Response:
    """The answer to ``change``, a method of ``DecommissionView``."""
    check_caller(request)
    dry_run = query_of(request, ChangeQuery).dry_run
    try:
        progress = await change(broker_id_of(request), changed_by=caller_name(request), dry_run=dry_run)
    except DecommissionRefused as refused:
        raise problem_of(refused) from refused
    return json_response(progress)


ROUTES = [Route("/api/v1/brokers/{broker_id}/decommission", DecommissionEndpoint)]
