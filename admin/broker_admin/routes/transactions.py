"""``/api/v1/transactions``: what is open, by transactional id; ``/api/v1/held-back-partitions``: what it holds back.

A transactional id is free text, as a group's id is: what no path can carry goes into the query
(``/api/v1/transactions/-?id=..``). Lists are put together in a worker thread, from a report that may be some seconds
old.

A transaction is aborted by its coordinator, with ``POST …/{transactional_id}:abort``, which names the producer: another
transaction than the one that was looked at is never aborted. One that hangs is aborted in one partition at a time.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of
from broker_admin.encoding import encode
from broker_admin.listing import MAX_LIMIT, MAX_LIST_OFFSET
from broker_admin.operations import operation, query_of
from broker_admin.problems import Problem, status_of
from broker_admin.request_body import ChangeQuery, read_change
from broker_admin.requirements import left_out, of_cluster, of_transactional_id, requires
from broker_admin.responses import json_response, json_response_from_thread
from broker_admin.routing import LeaderRoute, Route, TransactionRoute, transactional_id_of
from broker_admin.schemas import bounded
from broker_admin.tokens import Role
from broker_admin.topic_paths import name_of, partition_of
from broker_admin.transaction_list import (
    HeldBackList,
    HeldBackQuery,
    TransactionList,
    TransactionsQuery,
    select_held_back,
    select_transactions,
)
from broker_admin.views.cluster.transactions import (
    PartitionAbort,
    TransactionAbort,
    TransactionDetail,
    TransactionRefused,
)
from broker_admin.visible import visible_held_back, visible_transaction, visible_transactions
from kafka_wire.limits import MAX_OFFSET, MAX_PRODUCER_EPOCH, MAX_PRODUCER_ID
from trio_broker.coordinator.transactions.transaction_snapshot import TransactionReport
from trio_broker.handlers.support.rights import (
    ALTER_CLUSTER,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    WRITE_TRANSACTIONAL_ID,
)

PROBLEMS: Mapping[int, str] = {
    404: "there is no such transactional id, or no such partition",
    409: "the transaction has ended, is another one by now, or will be ended by its coordinator; nothing was changed",
    422: "a value is refused; nothing was changed",
    503: "the transaction cannot be aborted now",
}


@attrs.frozen
class TransactionIdQuery:
    """The transactional id, where no path can carry it."""

    id: str | None = None


@attrs.frozen
class TransactionQuery(TransactionIdQuery):
    """Which partitions of a transaction are wanted."""

    offset: int = bounded(0, minimum=0, maximum=MAX_LIST_OFFSET)
    limit: int = bounded(MAX_LIMIT, minimum=1, maximum=MAX_LIMIT)


@attrs.frozen
class AbortQuery(ChangeQuery):
    """The query of an abort, with the transactional id where no path can carry it."""

    id: str | None = None


@attrs.frozen(kw_only=True)
class AbortBody:
    """The producer that has the transaction open, as the list shows it."""

    producer_id: int = bounded(minimum=0, maximum=MAX_PRODUCER_ID)
    producer_epoch: int = bounded(minimum=0, maximum=MAX_PRODUCER_EPOCH)


@attrs.frozen(kw_only=True)
class AbortInPartitionBody:
    """Where the hanging transaction begins, as ``first_offset`` of the list."""

    start_offset: int = bounded(minimum=0, maximum=MAX_OFFSET)


def no_such_transaction() -> Problem:
    return Problem(404, "there is no such transactional id, or it is still being loaded")


def problem_of(refused: TransactionRefused) -> Problem:
    return Problem(status_of(refused.error), refused.reason)


@requires(Role.VIEWER, left_out(DESCRIBE_TRANSACTIONAL_ID))
@operation(TransactionList, query=TransactionsQuery)
async def get_transactions(request: Request) -> Response:
    """The open transactions, the oldest first unless another order is asked for; with ``open=false`` all ids."""
    query = query_of(request, TransactionsQuery)
    report = await visible_transactions(request)
    return Response(await trio.to_thread.run_sync(encode_list, report, query), media_type="application/json")


def encode_list(report: TransactionReport, query: TransactionsQuery) -> bytes:
    return encode(select_transactions(report, query))


@requires(Role.VIEWER, left_out(DESCRIBE_TOPIC))
@operation(HeldBackList, query=HeldBackQuery)
async def get_held_back(request: Request) -> Response:
    """The partitions whose last stable offset lags the high watermark: by how much, how long, and by which producer."""
    query = query_of(request, HeldBackQuery)
    report = await visible_held_back(request)
    return Response(await trio.to_thread.run_sync(encode_held_back, report, query), media_type="application/json")


def encode_held_back(report: TransactionReport, query: HeldBackQuery) -> bytes:
    return encode(select_held_back(report, query))


@requires(
    Role.VIEWER,
    of_transactional_id(DESCRIBE_TRANSACTIONAL_ID),
    left_out(DESCRIBE_TOPIC),
)
@operation(TransactionDetail, query=TransactionQuery, problems={404: PROBLEMS[404]})
async def get_transaction(request: Request) -> Response:
    """One transactional id, and what its open transaction holds back; ``offset`` and ``limit`` count partitions."""
    query = query_of(request, TransactionQuery)
    detail = await visible_transaction(request, transactional_id_of(request))
    if detail is None:
        raise no_such_transaction()
    part = detail.partitions[query.offset : query.offset + query.limit]
    return await json_response_from_thread(attrs.evolve(detail, partitions=part))


@requires(Role.OPERATOR, of_transactional_id(WRITE_TRANSACTIONAL_ID))
@operation(TransactionAbort, query=AbortQuery, body=AbortBody, is_change=True, problems=PROBLEMS)
async def abort(request: Request) -> Response:
    """Abort an ongoing transaction in all of its partitions, and fence its producer.

    What it has written is never seen by committed readers, which go on; the offsets that it would have committed do not
    count. The producer's next request is refused. The markers follow the answer.
    """
    query = query_of(request, AbortQuery)
    body = await read_change(request, AbortBody)
    try:
        aborted = await cluster_of(request).transactions.abort(
            transactional_id_of(request), body.producer_id, body.producer_epoch, dry_run=query.dry_run
        )
    except TransactionRefused as refused:
        raise problem_of(refused) from refused
    return json_response(aborted)


@requires(Role.OPERATOR, of_cluster(ALTER_CLUSTER))
@operation(PartitionAbort, query=ChangeQuery, body=AbortInPartitionBody, is_change=True, problems=PROBLEMS)
async def abort_in_partition(request: Request) -> Response:
    """Abort a hanging transaction in one partition, by a marker.

    One that a coordinator will end is refused: its other partitions would end differently.
    """
    query = query_of(request, ChangeQuery)
    body = await read_change(request, AbortInPartitionBody)
    try:
        aborted = await cluster_of(request).transactions.abort_in_partition(
            name_of(request), partition_of(request), body.start_offset, dry_run=query.dry_run
        )
    except TransactionRefused as refused:
        raise problem_of(refused) from refused
    return json_response(aborted)


ROUTES: list[Route] = [
    Route("/api/v1/transactions", get_transactions),
    Route("/api/v1/held-back-partitions", get_held_back),
    TransactionRoute("/api/v1/transactions/{transactional_id}:abort", abort, methods=["POST"]),
    TransactionRoute("/api/v1/transactions/{transactional_id}", get_transaction),
    LeaderRoute(
        "/api/v1/topics/{topic}/partitions/{partition}:abort-transaction", abort_in_partition, methods=["POST"]
    ),
]
