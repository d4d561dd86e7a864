"""Who asks: what a login has made of a request, for all that is done with it."""

from __future__ import annotations

from typing import Final

import attrs
from starlette.types import Scope

from broker_admin.tokens import Role

CALLER_IN_SCOPE: Final = "trio_broker.caller"
"""The key of a ``AdminCaller`` in the ASGI scope; not there where nobody has to log in."""

ANONYMOUS: Final = "User:ANONYMOUS"
"""Who has not logged in, where the authorizer decides what may be done so."""


@attrs.frozen
class AdminCaller:
    """Either a token's, which has a ``role``, or a ``principal`` as ``User:alice``, whom the authorizer judges."""

    role: Role | None = None
    principal: str = ""

    @property
    def is_anonymous(self) -> bool:
        return self.principal == ANONYMOUS

    @property
    def is_judged(self) -> bool:
        """Whether the authorizer says what it may do."""
        return self.role is None

    def __str__(self) -> str:
        return self.principal or f"the role {self.role.value if self.role else None}"


def caller_in(scope: Scope) -> AdminCaller | None:
    """Who asks; None where nobody has to log in."""
    caller = scope.get(CALLER_IN_SCOPE)
    assert caller is None or isinstance(caller, AdminCaller), type(caller)
    return caller
