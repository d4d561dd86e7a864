"""Which entries, quotas, users and delegation tokens a list shows, and by what it can be ordered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from broker_admin.listing import ListQuery, Page, SortValue, ordered_by, take_page
from broker_admin.views.cluster.access import AclEntry, QuotaEntry, ScramUser, TokenEntry

ACL_COLUMNS: Mapping[str, Callable[[AclEntry], SortValue]] = {
    "principal": lambda each: each.principal,
    "permission": lambda each: each.permission,
    "operation": lambda each: each.operation,
    "resource": lambda each: f"{each.resource_type} {each.resource_name}",
    "host": lambda each: each.host,
}
QUOTA_COLUMNS: Mapping[str, Callable[[QuotaEntry], SortValue]] = {"entity": lambda each: str(each.entity)}
USER_COLUMNS: Mapping[str, Callable[[ScramUser], SortValue]] = {"name": lambda each: each.name}

TOKEN_COLUMNS: Mapping[str, Callable[[TokenEntry], SortValue]] = {
    "owner": lambda each: each.owner,
    "expires": lambda each: each.expires_at_ms,
}


@attrs.frozen(kw_only=True)
class AclsQuery(ListQuery):
    """Which entries are wanted; ``search`` looks at all that they say."""

    order: str = ordered_by("principal", ACL_COLUMNS)


@attrs.frozen(kw_only=True)
class QuotasQuery(ListQuery):
    """Whose quotas are wanted; ``search`` looks at names."""

    order: str = ordered_by("entity", QUOTA_COLUMNS)


@attrs.frozen(kw_only=True)
class UsersQuery(ListQuery):
    """Which users are wanted."""

    order: str = ordered_by("name", USER_COLUMNS)


@attrs.frozen(kw_only=True)
class TokensQuery(ListQuery):
    """Which delegation tokens are wanted; ``search`` looks at ids and principals."""

    order: str = ordered_by("owner", TOKEN_COLUMNS)


def select_acls(acls: Iterable[AclEntry], query: ListQuery) -> Page[AclEntry]:
    return take_page(acls, query, id_of=str, columns=ACL_COLUMNS)


def select_quotas(quotas: Iterable[QuotaEntry], query: ListQuery) -> Page[QuotaEntry]:
    return take_page(quotas, query, id_of=lambda each: str(each.entity), columns=QUOTA_COLUMNS)


def select_users(users: Iterable[ScramUser], query: ListQuery) -> Page[ScramUser]:
    return take_page(users, query, id_of=lambda each: each.name, columns=USER_COLUMNS)


def select_tokens(tokens: Iterable[TokenEntry], query: ListQuery) -> Page[TokenEntry]:
    def said(token: TokenEntry) -> str:
        return " ".join((token.token_id, token.owner, token.requester, *token.renewers))

    return take_page(tokens, query, id_of=said, columns=TOKEN_COLUMNS)
