"""``/api/v1/acls``, ``/api/v1/quotas``, ``/api/v1/users`` and ``/api/v1/tokens``: who may do what, how much of it, and
by which delegation tokens others act for a user. All JSON; no answer has what anybody logs in by.

Changes are made by the controller, which answers them, whichever broker is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs
import trio
from starlette.endpoints import HTTPEndpoint
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
from broker_admin.delegation_tokens import is_own, visible_tokens
from broker_admin.listing import Page
from broker_admin.operations import operation, query_of
from broker_admin.problems import Problem, status_of
from broker_admin.request_body import ChangeQuery, caller_name, check_caller, read_change
from broker_admin.requirements import in_handler, left_out, of_cluster, require, requires
from broker_admin.responses import json_response, json_response_from_thread
from broker_admin.routing import ControllerRoute, Route
from broker_admin.schemas import bounded
from broker_admin.tokens import Role
from broker_admin.views.cluster.access import (
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    AccessRefused,
    AclEntry,
    QuotaEntity,
    QuotaEntry,
    ScramUser,
    TokenEntry,
)
from kafka_wire.acl import WILDCARD
from trio_broker.handlers.support.rights import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_TOKENS,
)

PROBLEMS: Mapping[int, str] = {
    409: "there is no authorizer, so entries have no effect; or there are no delegation tokens",
    422: "a value is refused; nothing was changed",
    503: "the metadata cannot be changed now",
}


MAX_NAME_LENGTH = 1000
"""Characters of a name of a resource, a principal or a host: longer than any that is typed."""


@attrs.frozen(kw_only=True)
class AclBody:
    """An entry. ``host`` is an address, a range of addresses, or ``*``, which is everywhere."""

    resource_type: str = bounded(enum=list(RESOURCE_TYPES))
    resource_name: str = bounded(minLength=1, maxLength=MAX_NAME_LENGTH)
    pattern_type: str = bounded("LITERAL", enum=list(PATTERN_TYPES))
    principal: str = bounded(minLength=3, maxLength=MAX_NAME_LENGTH)
    host: str = bounded(WILDCARD, minLength=1, maxLength=MAX_NAME_LENGTH)
    operation: str = bounded(enum=list(OPERATIONS))
    permission: str = bounded("ALLOW", enum=list(PERMISSIONS))

    @property
    def acl(self) -> AclEntry:
        return AclEntry(**{each.name: getattr(self, each.name) for each in attrs.fields(AclEntry)})


@attrs.frozen(kw_only=True)
class AclDeletionQuery(AclBody):
    """The entry that is removed: all of what it says."""

    dry_run: bool = False


@attrs.frozen(kw_only=True)
class QuotaEntityQuery:
    """Whom quotas are for; ``<default>`` in place of a name is each that has no quota of its own."""

    user: str | None = bounded(None, maxLength=MAX_NAME_LENGTH)
    client_id: str | None = bounded(None, maxLength=MAX_NAME_LENGTH)
    ip: str | None = bounded(None, maxLength=MAX_NAME_LENGTH)

    @property
    def entity(self) -> QuotaEntity:
        return QuotaEntity(user=self.user, client_id=self.client_id, ip=self.ip)


@attrs.frozen(kw_only=True)
class QuotaDeletionQuery(QuotaEntityQuery):
    """Whose quotas are removed."""

    dry_run: bool = False


@attrs.frozen(kw_only=True)
class QuotaChangeBody(QuotaEntityQuery):
    """Quotas by Kafka's names of them; null removes one."""

    quotas: Mapping[str, float | None] = bounded(minProperties=1)


@attrs.frozen(kw_only=True)
class ChangedAcl:
    """The entry that was added or removed, or with ``dry_run`` would be."""

    dry_run: bool
    acl: AclEntry


@attrs.frozen(kw_only=True)
class ChangedQuotas:
    """Whose quotas were changed, or with ``dry_run`` would be; None is one that is gone."""

    dry_run: bool
    entity: QuotaEntity
    quotas: Mapping[str, float | None]


@attrs.frozen(kw_only=True)
class TokenEndQuery:
    """The token that is ended."""

    id: str = bounded(minLength=1, maxLength=MAX_NAME_LENGTH)
    dry_run: bool = False


@attrs.frozen(kw_only=True)
class EndedToken:
    """The delegation token that was ended, or with ``dry_run`` would be."""

    dry_run: bool
    token: TokenEntry


@contextmanager
def answered_refusals() -> Iterator[None]:
    """Answer what the controller refuses."""
    try:
        yield
    except AccessRefused as refused:
        raise Problem(status_of(refused.error), refused.reason) from refused


class AclsEndpoint(HTTPEndpoint):
    """The access control entries."""

    @requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
    @operation(Page[AclEntry], query=AclsQuery)
    async def get(self, request: Request) -> Response:
        """The access control entries: who may, or may not, do what to which resources."""
        query, acls = query_of(request, AclsQuery), await cluster_of(request).access.acls()
        return await json_response_from_thread(await trio.to_thread.run_sync(select_acls, acls, query))

    @requires(Role.ADMIN, of_cluster(ALTER_CLUSTER))
    @operation(ChangedAcl, query=ChangeQuery, body=AclBody, is_change=True, status=201, problems=PROBLEMS)
    async def post(self, request: Request) -> Response:
        """Add an entry; one that says the same is no error."""
        dry_run, acl = query_of(request, ChangeQuery).dry_run, (await read_change(request, AclBody)).acl
        with answered_refusals():
            await cluster_of(request).access.create_acl(acl, changed_by=caller_name(request), dry_run=dry_run)
        return json_response(ChangedAcl(dry_run=dry_run, acl=acl), 201)

    @requires(Role.ADMIN, of_cluster(ALTER_CLUSTER))
    @operation(ChangedAcl, query=AclDeletionQuery, is_change=True, problems={**PROBLEMS, 404: "there is no such entry"})
    async def delete(self, request: Request) -> Response:
        """Remove the one entry that says just this."""
        check_caller(request)
        query = query_of(request, AclDeletionQuery)
        acl, access = query.acl, cluster_of(request).access
        with answered_refusals():
            is_there = await access.delete_acl(acl, changed_by=caller_name(request), dry_run=query.dry_run)
        if not is_there:
            raise Problem(404, "there is no such entry; /api/v1/acls lists those there are")
        return json_response(ChangedAcl(dry_run=query.dry_run, acl=acl))


class QuotasEndpoint(HTTPEndpoint):
    """The quotas of clients."""

    @requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER_CONFIGS))
    @operation(Page[QuotaEntry], query=QuotasQuery)
    async def get(self, request: Request) -> Response:
        """The quotas of users, client ids and addresses."""
        query, quotas = query_of(request, QuotasQuery), await cluster_of(request).access.quotas()
        return await json_response_from_thread(await trio.to_thread.run_sync(select_quotas, quotas, query))

    @requires(Role.ADMIN, of_cluster(ALTER_CLUSTER_CONFIGS))
    @operation(ChangedQuotas, query=ChangeQuery, body=QuotaChangeBody, is_change=True, problems=PROBLEMS)
    async def put(self, request: Request) -> Response:
        """Set quotas of a user, a client id, both together, or an address; others that it has stay. All or none."""
        dry_run, body = query_of(request, ChangeQuery).dry_run, await read_change(request, QuotaChangeBody)
        return await changed_quotas(request, body.entity, body.quotas, dry_run)

    @requires(Role.ADMIN, of_cluster(ALTER_CLUSTER_CONFIGS))
    @operation(ChangedQuotas, query=QuotaDeletionQuery, is_change=True, problems={**PROBLEMS, 404: "it has no quota"})
    async def delete(self, request: Request) -> Response:
        """Remove all quotas of a user, a client id, both together, or an address."""
        check_caller(request)
        query = query_of(request, QuotaDeletionQuery)
        entity = query.entity
        present = [each.quotas for each in await cluster_of(request).access.quotas() if each.entity == entity]
        if not present:
            raise Problem(404, "it has no quota; /api/v1/quotas lists those there are")
        return await changed_quotas(request, entity, dict.fromkeys(present[0]), query.dry_run)


async def changed_quotas(
    request: Request, entity: QuotaEntity, quotas: Mapping[str, float | None], dry_run: bool
) -> Response:
    with answered_refusals():
        await cluster_of(request).access.alter_quotas(entity, quotas, changed_by=caller_name(request), dry_run=dry_run)
    return json_response(ChangedQuotas(dry_run=dry_run, entity=entity, quotas=quotas))


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(Page[ScramUser], query=UsersQuery)
async def get_users(request: Request) -> Response:
    """The users that log in by SCRAM, with the mechanisms that each has a password for."""
    query, users = query_of(request, UsersQuery), await cluster_of(request).access.users()
    return await json_response_from_thread(await trio.to_thread.run_sync(select_users, users, query))


class TokensEndpoint(HTTPEndpoint):
    """The delegation tokens."""

    @requires(Role.VIEWER, left_out(DESCRIBE_DELEGATION_TOKEN, DESCRIBE_TOKENS))
    @operation(Page[TokenEntry], query=TokensQuery)
    async def get(self, request: Request) -> Response:
        """The delegation tokens, without what anybody logs in by. A user sees its own and those it may prolong, too."""
        query, tokens = query_of(request, TokensQuery), await visible_tokens(request)
        return await json_response_from_thread(await trio.to_thread.run_sync(select_tokens, tokens, query))

    @requires(Role.ADMIN, in_handler(ALTER_CLUSTER, note="but for its owner and those who may prolong it"))
    @operation(EndedToken, query=TokenEndQuery, is_change=True, problems={**PROBLEMS, 404: "there is no such token"})
    async def delete(self, request: Request) -> Response:
        """End a delegation token. Who is logged in by it stays so until it would have ended."""
        check_caller(request)
        query = query_of(request, TokenEndQuery)
        found = [each for each in await visible_tokens(request) if each.token_id == query.id]
        if not found:
            raise Problem(404, "there is no such token; /api/v1/tokens lists those there are")
        [token] = found
        if not is_own(request, token):
            require(request, ALTER_CLUSTER)
        with answered_refusals():
            await cluster_of(request).access.end_token(token, changed_by=caller_name(request), dry_run=query.dry_run)
        return json_response(EndedToken(dry_run=query.dry_run, token=token))


ROUTES = [
    ControllerRoute("/api/v1/acls", AclsEndpoint),
    ControllerRoute("/api/v1/quotas", QuotasEndpoint),
    Route("/api/v1/users", get_users),
    ControllerRoute("/api/v1/tokens", TokensEndpoint),
]
