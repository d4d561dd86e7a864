"""Whether a name and a password are those of a user who may log in at a listener, asked by something that is none.

Any listener with a login counts, and any mechanism that it has: the users of PLAIN in the settings, and those of SCRAM
in the metadata.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import attrs

from kafka_wire.sasl.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism
from trio_broker.common.security_protocol import SASL_PROTOCOLS
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.config.listeners import listener_endpoints
from trio_broker.security.sasl import plain
from trio_broker.security.sasl.authenticators import login_module
from trio_broker.security.sasl.scram import FindCredential

NOBODYS: Final = (ScramMechanism.SHA_512, ScramCredential(b"nobody's salt", b"", b"", MIN_ITERATIONS))
"""Is checked in place of SCRAM where a user has none, so that the time says little about which users there are."""


@attrs.frozen(repr=False)
class KnownPassword:
    """What is known of one user's password, at several listeners or by several mechanisms: any of them opens."""

    plain: tuple[str, ...] = ()
    scram: tuple[tuple[ScramMechanism, ScramCredential], ...] = ()

    def is_right(self, password: str) -> bool:
        """Whether ``password`` is the user's. Takes milliseconds of a CPU by intent."""
        # All are compared, each in constant time.
        matches = [hmac.compare_digest(own.encode(), password.encode()) for own in self.plain]
        for mechanism, known in self.scram or (NOBODYS,):
            salted = mechanism.salted_password(password, known.salt, known.iterations)
            made = mechanism.hash(mechanism.client_key(salted))
            matches.append(hmac.compare_digest(made, known.stored_key))
        return any(matches)

    @property
    def mark(self) -> bytes:
        """Another one after each change of the password; empty if there is none."""
        if not self.plain and not self.scram:
            return b""
        digest = hashlib.sha256()
        for part in (*map(str.encode, self.plain), *(known.stored_key for _, known in self.scram)):
            digest.update(len(part).to_bytes(4, "big") + part)
        return digest.digest()


@attrs.frozen
class Passwords:
    """``find_credential`` looks into the metadata."""

    config: BrokerConfig
    find_credential: FindCredential

    def known(self, user: str) -> KnownPassword:
        """What is known of the password of ``user`` at the moment."""
        passwords: dict[str, None] = {}
        credentials: dict[ScramMechanism, ScramCredential] = {}
        for endpoint in listener_endpoints(self.config.socket_server):
            if endpoint.security_protocol not in SASL_PROTOCOLS:
                continue
            listener = endpoint.listener_name
            enabled = self.config.listener_value(listener, "sasl.enabled.mechanisms")
            if plain.NAME in enabled and (password := self._plain(listener, user)):
                passwords[password] = None
            for mechanism in ScramMechanism:
                known = self.find_credential(user, mechanism) if mechanism.value in enabled else None
                # As at a login: a password that is too cheap to guess counts for nothing.
                if known is not None and known.iterations >= MIN_ITERATIONS:
                    credentials[mechanism] = known
        return KnownPassword(tuple(passwords), tuple(credentials.items()))

    def _plain(self, listener: str, user: str) -> str | None:
        try:
            return login_module(self.config, listener, plain.NAME).users.get(user)
        except ConfigError:
            return None  # the setting has changed since the start to what lets nobody in
