"""The public keys that verify the tokens of OAUTHBEARER: a JSON Web Key Set (RFC 7517), fetched again and again.

The keys before stay in use while a new set cannot be had. A set that is there counts as it is, also one without a key,
by which no token is valid. Only public keys for signatures are taken: a shared secret would sign what it verifies.

Source: Kafka's RefreshingHttpsJwks, JwksFileVerificationKeyResolver.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import trio
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, JWKRegistry, KeySet, RSAKey

from trio_broker.concurrency.barrier import Backoff

log = logging.getLogger(__name__)

MAX_KEYS_BYTES: Final = 256 * 1024
"""Of a whole set; a set of ten keys of RSA with certificates has a tenth of it."""

MIN_REFRESH_SECONDS: Final = 10.0
"""Between two fetches, however many tokens of unknown keys come: anybody may send one."""


class KeysUnavailable(Exception):
    """The set cannot be had. The text says why."""


@attrs.define(eq=False)
class VerificationKeys:
    """``fetch`` returns the set in JSON, or raises KeysUnavailable; ``source`` is where it has it from."""

    source: str
    fetch: Callable[[], Awaitable[bytes]]
    refresh_seconds: float
    retry_backoff_seconds: float
    retry_backoff_max_seconds: float
    keys: KeySet = attrs.field(factory=lambda: KeySet([]))
    _text: bytes | None = None
    _asked: trio.Event = attrs.field(factory=trio.Event)

    def take(self, text: bytes) -> None:
        """Use the set in ``text`` from now on.

        Raises:
            KeysUnavailable: it is none.
        """
        if text == self._text:
            return
        keys = parse_key_set(text)
        if not keys:
            log.warning("%s has no key that verifies a token: OAUTHBEARER lets nobody in", self.source)
        log.info("%s: %d keys for the tokens of OAUTHBEARER", self.source, len(keys.keys))
        self.keys, self._text = keys, text

    def refresh_soon(self) -> None:
        """Have the set fetched again: a token names a key that is not among these."""
        self._asked.set()

    async def run(self) -> None:
        """Fetch the set at its interval, or when it was asked for, until cancelled."""
        while True:
            await self._refresh()
            with trio.move_on_after(self.refresh_seconds):
                await trio.sleep(MIN_REFRESH_SECONDS)
                await self._asked.wait()

    async def _refresh(self) -> None:
        """Fetch the set, as often as it takes."""
        backoff = Backoff(self.retry_backoff_seconds, self.retry_backoff_max_seconds)
        while True:
            self._asked = trio.Event()
            try:
                return self.take(await self.fetch())
            except KeysUnavailable as error:
                log.warning("%s: %s; the keys before stay in use", self.source, error)
            await trio.sleep(backoff.next_pause())


def parse_key_set(text: bytes) -> KeySet:
    """Return the keys of a set in JSON that verify signatures.

    Raises:
        KeysUnavailable: it is no set.
    """
    try:
        listed = json.loads(text)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise KeysUnavailable("it is no JSON Web Key Set") from None
    if not isinstance(listed, list):
        raise KeysUnavailable("it is no JSON Web Key Set")
    return KeySet([key for each in listed if (key := _verification_key(each)) is not None])


def _verification_key(data: Any) -> RSAKey | ECKey | None:
    if not isinstance(data, dict) or data.get("kty") not in ("RSA", "EC") or data.get("use", "sig") != "sig":
        return None
    try:
        with warnings.catch_warnings():
            # Keys of RSA that are too short to be safe.
            warnings.simplefilter("error", SecurityWarning)
            key = JWKRegistry.import_key(data)
    except (JoseError, SecurityWarning, ValueError, TypeError, KeyError):
        log.warning("a key of the set cannot verify tokens and is left out: %.100r", data.get("kid"))
        return None
    assert isinstance(key, RSAKey | ECKey), key
    return key
