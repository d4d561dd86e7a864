"""The tokens that open the admin server, one for each role, and the sessions that browsers get for them.

The tokens are in a file that only its owner may read, a line each: ``admin …``, ``operator …`` and ``viewer …``. If
there is no file, one is made with new tokens. A session is not kept anywhere: the cookie says which role has it and
until when, signed with the role's token. Another token in the file, and a restart to read it, ends all sessions of that
role.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import attrs

from trio_broker.security.private_files import read_private_file, write_new_private_file

TOKEN_BYTES = 32
"""Of a token that is made here; nobody guesses 256 bits."""

MIN_TOKEN_LENGTH = 16
"""Characters of a token that somebody chose. A shorter one could be guessed over HTTP."""

SESSION_SECONDS = 12 * 3600
"""A working day: nobody logs in twice, and a forgotten browser is harmless the day after."""

MAX_FILE_BYTES = 4096
"""Three tokens and some comments; a larger file is another one."""


class Role(enum.Enum):
    """What a token is good for."""

    ADMIN = "admin"
    """Everything: also who may do what, quotas, and what deletes records for good."""
    OPERATOR = "operator"
    """Reading, and changes of settings, topics, groups and transactions."""
    VIEWER = "viewer"
    """Reading, records included."""

    def includes(self, other: Role) -> bool:
        """Whether this role may do all that ``other`` may."""
        strongest_first = list(Role)
        return strongest_first.index(self) <= strongest_first.index(other)


ROLE_NAMES = "admin, operator or viewer"


class TokenFileError(Exception):
    """The file cannot be used; the text says why."""


@attrs.frozen(repr=False)
class AdminTokens:
    """The tokens by role; a role without one cannot log in."""

    tokens: Mapping[Role, str]

    @cached_property
    def cookie_name(self) -> str:
        """The name of the session's cookie. Browsers share cookies between the ports of a host, and so between brokers:
        their names differ with the tokens."""
        digest = hashlib.sha256("\n".join(sorted(self.tokens.values())).encode()).hexdigest()
        return f"trio_broker_{digest[:8]}"

    def role_of(self, token: str) -> Role | None:
        """The role that ``token`` opens."""
        # All are compared, each in constant time: how long it takes says nothing about the tokens.
        matches = [role for role, own in self.tokens.items() if hmac.compare_digest(own.encode(), token.encode())]
        return matches[0] if matches else None

    def new_session(self, role: Role, now_seconds: float) -> str:
        """The value of the cookie for a browser that logs in as ``role``. ``now_seconds`` are since 1970."""
        content = f"{role.value}.{int(now_seconds) + SESSION_SECONDS}"
        return f"{content}.{self._signature(role, content)}"

    def session_role(self, session: str, now_seconds: float) -> Role | None:
        """The role of a session that was given out here and is not over."""
        content, _, signature = session.rpartition(".")
        name, _, expires = content.partition(".")
        role = next((role for role in self.tokens if role.value == name), None)
        if role is None or not hmac.compare_digest(self._signature(role, content).encode(), signature.encode()):
            return None
        try:
            return role if now_seconds < int(expires) else None
        except ValueError:
            # Who has the token can sign what was not given out here.
            return None

    def _signature(self, role: Role, content: str) -> str:
        return hmac.new(self.tokens[role].encode(), content.encode(), hashlib.sha256).hexdigest()


def read_or_make_tokens(path: Path) -> AdminTokens:
    """The tokens in the file at ``path``, which is made with new ones if there is none.

    Raises:
        TokenFileError: others may read the file, it holds something else, or the disk refused.
    """
    try:
        make_token_file(path)
    except FileExistsError:
        pass
    except OSError as error:
        raise TokenFileError(f"{path} cannot be made: {error.strerror}") from error
    try:
        text = read_private_file(path).decode()
    except OSError as error:
        raise TokenFileError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise TokenFileError(f"{path} is no text file") from None
    return AdminTokens(parse_tokens(text, path))


def make_token_file(path: Path) -> None:
    """Make the file with a new token for each role, readable by its owner alone.

    Raises:
        FileExistsError: there is one.
        OSError: the disk refused.
    """
    write_new_private_file(path, "".join(f"{role.value} {secrets.token_urlsafe(TOKEN_BYTES)}\n" for role in Role))


def parse_tokens(text: str, path: Path) -> Mapping[Role, str]:
    """The tokens by role.

    Raises:
        TokenFileError: the text is not that of a token file.
    """
    if len(text) > MAX_FILE_BYTES:
        raise TokenFileError(f"{path} is longer than {MAX_FILE_BYTES} bytes")
    tokens: dict[Role, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, token = line.strip().partition(" ")
        token = token.strip()
        role = next((role for role in Role if role.value == name), None)
        if role is None or role in tokens:
            raise TokenFileError(f"{path}, line {number}: each line is a role, {ROLE_NAMES}, and its only token")
        if len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable() or " " in token:
            raise TokenFileError(
                f"{path}, line {number}: a token has at least {MIN_TOKEN_LENGTH} ASCII characters without spaces"
            )
        tokens[role] = token
    if Role.ADMIN not in tokens:
        raise TokenFileError(f"{path} has no line 'admin TOKEN'")
    if len(set(tokens.values())) < len(tokens):
        raise TokenFileError(f"{path}: two roles have the same token")
    return tokens
