"""The pages about transactions: ``/transactions``, what is open and what it holds back, and one page for each id.

A transactional id's page is ``/transactions/{id}``; an id that no path can carry goes into the query, as for groups.
"""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.group_actions import OFFERED_CHARACTERS, shell_word
from broker_admin.listing import Page
from broker_admin.operations import query_of
from broker_admin.pages import frame, page_response, render_template
from broker_admin.requirements import left_out, of_transactional_id, requires
from broker_admin.routes.transactions import TransactionIdQuery
from broker_admin.routing import Route, TransactionRoute, transactional_id_of
from broker_admin.tables import Column, ListTable
from broker_admin.texts import shown_text
from broker_admin.tokens import Role
from broker_admin.transaction_list import HeldBackQuery, TransactionsQuery, select_held_back, select_transactions
from broker_admin.transaction_texts import UNROUTABLE_IDS
from broker_admin.visible import visible_held_back, visible_transaction, visible_transactions
from trio_broker.handlers.support.rights import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID

STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "Empty", "CompleteCommit", "CompleteAbort")
"""Those that a transactional id is in for long enough to be seen, for the choice on the page."""

ONGOING = "Ongoing"
"""The state in which a transaction can be aborted."""

SHOWN_PARTITIONS = 250
"""Of a transaction, and partitions that are held back; the API lists all."""

TRANSACTION_TABLE = [
    Column("Transactional id", "transactional_id"),
    Column("Open for", "age", is_number=True),
    Column("State", "state"),
    Column("Producer", "producer_id", is_number=True, hidden_below="narrow", explanation="producer id and epoch"),
    Column("Client", "client_id", hidden_below="medium"),
    Column("Partitions", "partitions", is_number=True, hidden_below="narrow", explanation="that have no marker yet"),
    Column("Timeout", "timeout", is_number=True, hidden_below="medium"),
    Column("Last change", "last_update", hidden_below="medium"),
]


@requires(
    Role.VIEWER,
    left_out(DESCRIBE_TRANSACTIONAL_ID),
    left_out(DESCRIBE_TOPIC),
)
async def get_transactions_page(request: Request) -> Response:
    """What is open, and what is held back."""
    query = query_of(request, TransactionsQuery)
    report = await visible_transactions(request)
    listed = await trio.to_thread.run_sync(select_transactions, report, query)
    held_back = await trio.to_thread.run_sync(
        select_held_back, await visible_held_back(request), HeldBackQuery(limit=SHOWN_PARTITIONS)
    )
    page = Page(listed.items, listed.total, listed.matching, listed.next_cursor)
    context = frame(request) | {
        "here": "transactions",
        "script": "fresh.js",
        "query": query,
        "states": STATES,
        "is_complete": report.is_complete,
        "held_back": held_back,
        "table": ListTable(
            "/transactions", TRANSACTION_TABLE, query, page, request.query_params,
            key_of=lambda each: shown_text(each.transactional_id),
        ),
    }  # fmt: skip
    return await page_response(request, partial(render_template, "transactions/list.html", context))


@requires(
    Role.VIEWER,
    of_transactional_id(DESCRIBE_TRANSACTIONAL_ID),
    left_out(DESCRIBE_TOPIC),
)
async def get_transaction_page(request: Request) -> Response:
    """The page of one transactional id."""
    query_of(request, TransactionIdQuery)
    transactional_id = transactional_id_of(request)
    detail = await visible_transaction(request, transactional_id)
    context = frame(request) | {"here": "transactions", "script": "fresh.js", "transactional_id": transactional_id}
    if detail is None:
        return await page_response(request, partial(render_template, "transactions/none.html", context), 404)
    is_routable = transactional_id not in UNROUTABLE_IDS
    context |= {
        "transaction": detail.transaction,
        "partitions": detail.partitions[:SHOWN_PARTITIONS],
        "can_be_aborted": detail.transaction.state == ONGOING,
        "is_offered": len(transactional_id) <= OFFERED_CHARACTERS,
        "has_id_in_query": not is_routable,
        "api_address": f"/api/v1/transactions/{quote(transactional_id, safe='') if is_routable else '-'}",
        "id_word": shell_word(transactional_id),
    }
    return await page_response(request, partial(render_template, "transactions/transaction.html", context))


ROUTES = [
    Route("/transactions", get_transactions_page),
    TransactionRoute("/transactions/{transactional_id}", get_transaction_page),
]
