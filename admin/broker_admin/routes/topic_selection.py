"""``/api/v1/topics:delete`` and ``:purge``: several topics in one call, with an outcome for each of them.

As with Kafka's requests, a topic that is refused does not keep the others from being changed; a dry run finds it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of
from broker_admin.operations import operation, query_of
from broker_admin.problems import FieldError, Problem, body_pointer
from broker_admin.request_body import ChangeQuery, caller_name, read_change
from broker_admin.requirements import in_handler, may, requires
from broker_admin.responses import json_response_from_thread
from broker_admin.routes.topics import PurgeBody, purge_target
from broker_admin.routing import Route
from broker_admin.schemas import bounded
from broker_admin.tokens import Role
from broker_admin.views.cluster.topics import TopicRefused
from kafka_wire.limits import MAX_TIMESTAMP_MS
from trio_broker.handlers.support.rights import DELETE_TOPIC

MAX_SELECTED_TOPICS = 500
"""Topics of one call: each deletion is on the disk before the next begins, some milliseconds each."""


@attrs.frozen
class SelectionDeletion:
    """Topics by their names."""

    topics: tuple[str, ...] = bounded(maxItems=MAX_SELECTED_TOPICS)


@attrs.frozen
class SelectionPurge:
    """Topics by their names, and up to where their records are deleted, by one of two."""

    topics: tuple[str, ...] = bounded(maxItems=MAX_SELECTED_TOPICS)
    to_end: bool = False
    to_timestamp_ms: int | None = bounded(None, minimum=0, maximum=MAX_TIMESTAMP_MS)


@attrs.frozen(kw_only=True)
class TopicOutcome:
    """What was deleted of one topic, or with ``dry_run`` would be; where it is refused, ``error`` says why.

    ``groups`` are those that had committed offsets of a topic that is deleted.
    """

    topic: str
    partition_count: int = 0
    record_count: int = 0
    groups: tuple[str, ...] = ()
    error: str | None = None


@attrs.frozen
class TopicOutcomes:
    """The outcome of each topic, in the order of the request."""

    dry_run: bool
    topics: tuple[TopicOutcome, ...]


async def outcomes(
    request: Request, names: Sequence[str], change: Callable[[str], Awaitable[TopicOutcome]], *, dry_run: bool
) -> TopicOutcomes:
    """The outcome of ``change`` for each of ``names``, one after another, as far as the caller may delete them.

    Raises:
        Problem: 422, there is no name.
    """
    if not names:
        reason = "at least one topic is needed"
        raise Problem(422, reason, [FieldError(body_pointer("topics"), reason)])
    found = []
    for name in dict.fromkeys(names):
        if not may(request, DELETE_TOPIC, name, is_audited=True):
            found.append(TopicOutcome(topic=name, error=f"not authorized: {DELETE_TOPIC}"))
            continue
        try:
            found.append(await change(name))
        except TopicRefused as refused:
            found.append(TopicOutcome(topic=name, error=refused.reason))
    return TopicOutcomes(dry_run, tuple(found))


@requires(Role.ADMIN, in_handler(DELETE_TOPIC))
@operation(TopicOutcomes, query=ChangeQuery, body=SelectionDeletion, is_change=True)
async def delete_selection(request: Request) -> Response:
    """Delete topics with all of their records, which cannot be undone; one that is refused does not stop the others."""
    view, dry_run = cluster_of(request).topic_changes, query_of(request, ChangeQuery).dry_run
    body = await read_change(request, SelectionDeletion)

    async def delete(name: str) -> TopicOutcome:
        deleted = await view.delete(name, dry_run=dry_run, changed_by=caller_name(request))
        return TopicOutcome(
            topic=name, partition_count=deleted.partitions, record_count=deleted.record_count, groups=deleted.groups
        )

    return await json_response_from_thread(await outcomes(request, body.topics, delete, dry_run=dry_run))


@requires(Role.ADMIN, in_handler(DELETE_TOPIC))
@operation(TopicOutcomes, query=ChangeQuery, body=SelectionPurge, is_change=True)
async def purge_selection(request: Request) -> Response:
    """Delete the first records of topics, or all of them; one that is refused does not stop the others."""
    view, dry_run = cluster_of(request).topic_changes, query_of(request, ChangeQuery).dry_run
    body = await read_change(request, SelectionPurge)
    target = purge_target(PurgeBody(to_end=body.to_end, to_timestamp_ms=body.to_timestamp_ms))

    async def purge(name: str) -> TopicOutcome:
        purged = await view.purge(name, target, (), dry_run=dry_run, changed_by=caller_name(request))
        touched = sum(each.record_count > 0 for each in purged.partitions)
        return TopicOutcome(topic=name, partition_count=touched, record_count=purged.record_count)

    return await json_response_from_thread(await outcomes(request, body.topics, purge, dry_run=dry_run))


ROUTES = [
    Route("/api/v1/topics:delete", delete_selection, methods=["POST"]),
    Route("/api/v1/topics:purge", purge_selection, methods=["POST"]),
]
