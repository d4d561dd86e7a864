"""``/api/v1/groups``: consumer groups with their members, offsets, lag and rebalances. All GET, all JSON.

A group id is free text. In a path it is one segment, percent-encoded, slashes as ``%2F``; the addresses are matched
before they are decoded. What no path can carry (``.``, ``..``, the empty id, or any slash through a proxy that decodes
paths) goes into the query: ``/api/v1/groups/-/timeline?id=..``, where what stands in the path does not count.

Members and partitions come in parts: ``offset`` and ``limit``. Lists are put together in a worker thread; lag is read
for one group at a time, since that may mean a look at the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of, now_ms_of, state_of
from broker_admin.encoding import encode
from broker_admin.group_diagnosis import LagDiagnosis, diagnosis
from broker_admin.group_list import GroupList, GroupsQuery, select_groups
from broker_admin.listing import MAX_LIMIT, MAX_LIST_OFFSET
from broker_admin.operations import operation, query_of
from broker_admin.problems import Problem
from broker_admin.requirements import in_handler, left_out, of_group, requires
from broker_admin.responses import json_response, json_response_from_thread
from broker_admin.routing import GroupRoute, Route, group_id_of
from broker_admin.schemas import bounded
from broker_admin.tokens import Role
from broker_admin.visible import visible_groups, visible_held_back, visible_offsets
from trio_broker.coordinator.reporting.snapshot import (
    GroupLagHistory,
    GroupLagReport,
    GroupOffsets,
    GroupSnapshot,
    Rebalance,
)
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER, DESCRIBE_GROUP, DESCRIBE_TOPIC


@attrs.frozen
class GroupIdQuery:
    """The group's id, where no path can carry it."""

    id: str | None = None


@attrs.frozen
class PartQuery(GroupIdQuery):
    """Which members or partitions of a group are wanted."""

    offset: int = bounded(0, minimum=0, maximum=MAX_LIST_OFFSET)
    limit: int = bounded(MAX_LIMIT, minimum=1, maximum=MAX_LIMIT)

    @property
    def part(self) -> slice:
        return slice(self.offset, self.offset + self.limit)


@attrs.frozen
class GroupTimeline:
    """A group's rebalances, oldest first."""

    rebalances: Sequence[Rebalance]


NO_SUCH_GROUP = {404: "there is no such group"}


def no_such_group() -> Problem:
    return Problem(404, "there is no such group, or it is still being loaded; /api/v1/groups lists those there are")


@requires(Role.VIEWER, in_handler(DESCRIBE_CLUSTER, DESCRIBE_GROUP, note="left out, without the first"))
@operation(GroupList, query=GroupsQuery)
async def get_groups(request: Request) -> Response:
    """The groups, by id unless another order is asked for, with state, members and lag."""
    query = query_of(request, GroupsQuery)
    report = await visible_groups(request)
    return Response(await trio.to_thread.run_sync(encode_list, report, query), media_type="application/json")


def encode_list(report: GroupLagReport, query: GroupsQuery) -> bytes:
    return encode(select_groups(report, query))


@requires(Role.VIEWER, of_group(DESCRIBE_GROUP))
@operation(GroupSnapshot, query=PartQuery, problems=NO_SUCH_GROUP)
async def get_group(request: Request) -> Response:
    """One group with its members and what is assigned to them; ``offset`` and ``limit`` count members."""
    part = query_of(request, PartQuery).part
    group = cluster_of(request).groups.get(group_id_of(request))
    if group is None:
        raise no_such_group()
    return await json_response_from_thread(attrs.evolve(group, members=group.members[part]))


@requires(Role.VIEWER, of_group(DESCRIBE_GROUP), left_out(DESCRIBE_TOPIC))
@operation(GroupOffsets, query=PartQuery, problems=NO_SUCH_GROUP)
async def get_offsets(request: Request) -> Response:
    """A group's committed offsets with lag in records and in seconds; ``offset`` and ``limit`` count partitions."""
    state = state_of(request)
    part = query_of(request, PartQuery).part
    async with state.reading_lag:
        offsets = await visible_offsets(request, group_id_of(request))
    if offsets is None:
        raise no_such_group()
    return await json_response_from_thread(attrs.evolve(offsets, partitions=offsets.partitions[part]))


@requires(Role.VIEWER, of_group(DESCRIBE_GROUP))
@operation(GroupTimeline, query=GroupIdQuery, problems=NO_SUCH_GROUP)
async def get_timeline(request: Request) -> Response:
    """A group's recent rebalances, oldest first: when, how long, and who made them happen, and why."""
    rebalances = cluster_of(request).groups.timeline(group_id_of(request))
    if rebalances is None:
        raise no_such_group()
    return await json_response_from_thread(GroupTimeline(list(rebalances)))


@requires(Role.VIEWER, of_group(DESCRIBE_GROUP))
@operation(GroupLagHistory, query=GroupIdQuery, problems=NO_SUCH_GROUP)
async def get_history(request: Request) -> Response:
    """A group's lag in the last hour, how fast it reads, and when it catches up."""
    history = cluster_of(request).groups.lag_history(group_id_of(request))
    if history is None:
        raise no_such_group()
    return await json_response_from_thread(history)


@requires(Role.VIEWER, of_group(DESCRIBE_GROUP), left_out(DESCRIBE_TOPIC))
@operation(LagDiagnosis, query=GroupIdQuery, problems=NO_SUCH_GROUP)
async def get_diagnosis(request: Request) -> Response:
    """Why a group lags: what was found, the most telling first, each with its evidence and what to do."""
    state = state_of(request)
    group_id = group_id_of(request)
    async with state.reading_lag:
        offsets = await visible_offsets(request, group_id)
    group, rebalances = state.cluster.groups.get(group_id), state.cluster.groups.timeline(group_id)
    history = state.cluster.groups.lag_history(group_id)
    if offsets is None or group is None or rebalances is None or history is None:
        raise no_such_group()
    held_back = (await visible_held_back(request)).held_back
    diagnose = partial(diagnosis, group, offsets, history.rates, rebalances, now_ms_of(state.node), held_back)
    return json_response(await trio.to_thread.run_sync(diagnose))


ROUTES = [
    Route("/api/v1/groups", get_groups),
    GroupRoute("/api/v1/groups/{group_id}/timeline", get_timeline),
    GroupRoute("/api/v1/groups/{group_id}/history", get_history),
    GroupRoute("/api/v1/groups/{group_id}/diagnosis", get_diagnosis),
]
