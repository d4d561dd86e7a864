"""Who may do what, and who knows the password of whom."""

from __future__ import annotations

from typing import Protocol

from trio_broker.handlers.support.rights import Right


class AuthorizationView(Protocol):
    """The broker's authorizer and its users, as the admin app asks them."""

    def may(self, principal: str, host: str, right: Right, name: str, *, asked_for: str = "") -> bool:
        """Whether ``principal``, as ``User:alice``, may do to the resource ``name`` what ``right`` says. The answer is
        in the audit log where it is said what it is ``asked_for``."""
        ...

    async def is_right(self, user: str, password: str) -> bool:
        """Whether ``password`` is that of ``user``, who may log in at some listener. Takes milliseconds."""
        ...

    def password_mark(self, user: str) -> bytes:
        """Another one after each change of the user's password; empty for one without any."""
        ...
