"""Which delegation tokens a caller may see, and which it may end without a right: as by Kafka's protocol.

Source: Kafka's DelegationTokenManager.filterToken; KIP-48, KIP-373.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from broker_admin.app_state import cluster_of
from broker_admin.callers import caller_in
from broker_admin.requirements import is_judged, kept, may
from broker_admin.views.cluster.access import TokenEntry
from trio_broker.handlers.support.rights import DESCRIBE_DELEGATION_TOKEN, DESCRIBE_TOKENS


async def visible_tokens(request: Request) -> Sequence[TokenEntry]:
    """Those that concern the caller, and those it has a right to see; a token of the admin app sees all."""
    tokens = await cluster_of(request).access.tokens()
    if not is_judged(request):
        return tokens
    return await kept(
        tokens,
        lambda token: (
            is_own(request, token)
            or principal_of(request) == token.requester
            or may(request, DESCRIBE_DELEGATION_TOKEN, token.token_id)
            or may(request, DESCRIBE_TOKENS, token.owner)
        ),
    )


def is_own(request: Request, token: TokenEntry) -> bool:
    """Whether the caller may prolong and end ``token``: its owner, its renewers, and who is asked for a role alone."""
    return not is_judged(request) or principal_of(request) in (token.owner, *token.renewers)


def principal_of(request: Request) -> str:
    """As whom a user of the broker is known; empty of who has none."""
    caller = caller_in(request.scope)
    return "" if caller is None else caller.principal
