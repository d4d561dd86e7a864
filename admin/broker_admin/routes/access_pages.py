"""``/access``: the access control entries, quotas, users and delegation tokens, with what adds and removes them."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlencode

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.access_list import (
    AclsQuery,
    QuotasQuery,
    TokensQuery,
    UsersQuery,
    select_acls,
    select_quotas,
    select_tokens,
    select_users,
)
from broker_admin.app_state import cluster_of
from broker_admin.delegation_tokens import visible_tokens
from broker_admin.operations import query_of
from broker_admin.pages import frame, page_response, render_template
from broker_admin.requirements import in_handler, left_out, may, of_cluster, requires
from broker_admin.routing import Route
from broker_admin.tables import Column, ListTable
from broker_admin.tokens import Role
from broker_admin.views.cluster.access import OPERATIONS, RESOURCE_TYPES, AclEntry, QuotaEntity
from trio_broker.handlers.support.rights import (
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_TOKENS,
)

SHOWN_ROWS = 200
"""Of quotas, of users and of tokens on the page; the API has all."""

ACL_TABLE = [
    Column("Who", "principal"),
    Column("Permission", "permission"),
    Column("What", "operation"),
    Column("Of which resource", "resource"),
    Column("From", "host", hidden_below="narrow"),
    Column("Removal"),
]

QUOTAS = (
    ("producer_byte_rate", "Bytes written a second"),
    ("consumer_byte_rate", "Bytes read a second"),
    ("request_percentage", "Per cent of a thread"),
    ("controller_mutation_rate", "Changes of partitions a second"),
    ("connection_creation_rate", "New connections a second, of an address"),
)
"""Kafka's names of quotas, and what they bound."""


@requires(
    Role.VIEWER,
    of_cluster(DESCRIBE_CLUSTER),
    in_handler(DESCRIBE_CLUSTER_CONFIGS, note="quotas are left out"),
    left_out(DESCRIBE_DELEGATION_TOKEN, DESCRIBE_TOKENS),
)
async def get_access_page(request: Request) -> Response:
    """Who may do what, and how much of it."""
    query, access = query_of(request, AclsQuery), cluster_of(request).access
    page = await trio.to_thread.run_sync(select_acls, await access.acls(), query)
    quotas = await access.quotas() if may(request, DESCRIBE_CLUSTER_CONFIGS) else ()
    context = frame(request) | {
        "here": "access",
        "script": "fresh.js",
        "table": ListTable("/access", ACL_TABLE, query, page, request.query_params, key_of=str),
        "has_authorizer": access.has_authorizer,
        "quotas": select_quotas(quotas, QuotasQuery(limit=SHOWN_ROWS)),
        "users": select_users(await access.users(), UsersQuery(limit=SHOWN_ROWS)),
        "tokens": select_tokens(await visible_tokens(request), TokensQuery(limit=SHOWN_ROWS)),
        "quota_names": QUOTAS,
        "removal": removal_address,
        "operations": OPERATIONS,
        "resource_types": RESOURCE_TYPES,
    }
    return await page_response(request, partial(render_template, "access/list.html", context))


def removal_address(path: str, what: AclEntry | QuotaEntity) -> str:
    """What is called to remove an entry, or the quotas of an entity."""
    said = ((each.name, getattr(what, each.name)) for each in attrs.fields(type(what)))
    return f"{path}?{urlencode({name: value for name, value in said if value is not None})}"


ROUTES = [Route("/access", get_access_page)]
