"""The line by which Kafka's clients and brokers are given credentials: a login module and its options (JAAS).

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_c="d";

No class is loaded by it: the module's name only says which mechanism the options are for.

Source: Kafka's JaasConfig, which reads it as Java's StreamTokenizer does; PlainServerCallbackHandler for ``user_``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import attrs

from kafka_wire.sasl.mechanisms import SaslCredentials
from kafka_wire.sasl.scram import TOKEN_AUTHENTICATION

_TOKEN: Final = re.compile(r"""\s*(?:(?P<word>[^\s="';]+)|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<sign>[=;]))""", re.DOTALL)  # fmt: skip  # noqa: E501

FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})

USER_PREFIX: Final = "user_"

ENTRIES_KEPT: Final = 32
"""Of the latest texts, one for each listener and mechanism. One may name thousands of users, and each login asks."""


@attrs.frozen
class JaasEntry:
    """A login module and its options, which may have secrets. ``users`` has the passwords of those that a broker lets
    in by PLAIN."""

    login_module: str
    options: Mapping[str, str] = attrs.field(repr=False)
    users: Mapping[str, str] = attrs.field(init=False, repr=False)

    @users.default
    def _users(self) -> Mapping[str, str]:
        return {
            name.removeprefix(USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_PREFIX)
        }

    def credentials(self, mechanism: str) -> SaslCredentials:
        """Return whom a client logs in as.

        Raises:
            ValueError: there is no user, or no password.
        """
        user, password = self.options.get("username"), self.options.get("password")
        if not user or not password:
            raise ValueError("a username and a password are needed")
        is_token = self.options.get(TOKEN_AUTHENTICATION, "").lower() == "true"
        return SaslCredentials(mechanism, user, password, is_token)


@lru_cache(ENTRIES_KEPT)
def parse_jaas(text: str) -> JaasEntry:
    """Return the only entry of ``text``.

    Raises:
        ValueError: it is none, or not the only one. The reason has nothing of the text in it.
    """
    tokens, position, end = [], 0, len(text.rstrip())
    while position < end:
        if (found := _TOKEN.match(text, position)) is None:
            raise ValueError("a quotation mark is missing at its end")
        kind = found.lastgroup or ""
        tokens.append((kind, re.sub(r"\\(.)", r"\1", found[kind]) if kind in ("double", "single") else found[kind]))
        position = found.end()
    if len(tokens) < 3 or tokens[0][0] != "word" or tokens[1][1].lower() not in FLAGS:
        raise ValueError('it must be of the form LoginModule required name="value" …;')
    if tokens.pop() != ("sign", ";"):
        raise ValueError("it must end with a semicolon")
    options = tokens[2:]
    if len(options) % 3 or any(sign != ("sign", "=") for sign in options[1::3]) or ("sign", ";") in options:
        raise ValueError('its options must be of the form name="value"')
    values = {name: value for (_, name), (_, value) in zip(options[::3], options[2::3], strict=True)}
    return JaasEntry(tokens[0][1], values)
