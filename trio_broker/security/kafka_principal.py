"""Who sends a request, as far as this broker has authenticated it.

Source: Kafka's KafkaPrincipal.
"""

from __future__ import annotations

from typing import Final

import attrs

USER_TYPE: Final = "User"
"""The type of every principal that a login or a certificate gives."""


class NoMatchingRule(Exception):
    """No rule of ``ssl.principal.mapping.rules`` takes the name in a certificate, so that its client is nobody here."""


@attrs.frozen
class KafkaPrincipal:
    """A type and a name: ``User:alice``. ``token_authenticated`` says that a delegation token has proved it, by which
    it is no other principal."""

    type: str
    name: str
    token_authenticated: bool = attrs.field(default=False, eq=False)

    @classmethod
    def parse(cls, text: str) -> KafkaPrincipal:
        """The principal that ``text`` names; a name may have colons.

        Raises:
            ValueError: it is not ``Type:name``.
        """
        kind, separator, name = text.partition(":")
        if not kind or not separator:
            raise ValueError(f"{text!r} is not Type:name, as in User:alice")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
"""A client of a listener that asks for no login."""
