"""Makes the authenticator of each connection, by the settings of its listener at that time.

Source: Kafka's SaslChannelBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import attrs

from kafka_wire.sasl.scram import ScramCredential, ScramMechanism, nonce_of
from trio_broker.common.security_protocol import SASL_PROTOCOLS
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.config.listener_keys import LISTENER_PREFIX
from trio_broker.config.listeners import Endpoint
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.randomness import Random
from trio_broker.security.sasl import oauthbearer, plain
from trio_broker.security.sasl.failed_attempts import FailedAttempts
from trio_broker.security.sasl.jaas import JaasEntry, parse_jaas
from trio_broker.security.sasl.oauthbearer import OAuthBearerSaslServer, ValidateToken
from trio_broker.security.sasl.plain import PlainSaslServer
from trio_broker.security.sasl.scram import FindCredential, FindToken, ScramSaslServer, no_token
from trio_broker.security.sasl.server_authenticator import NewSaslServer, SaslLimits, SaslServerAuthenticator

BY_PASSWORD: Final = (plain.NAME, *(mechanism.value for mechanism in ScramMechanism))
"""The mechanisms by which brokers log in at each other, too."""

OFFERED: Final = (*BY_PASSWORD, oauthbearer.NAME)
"""The mechanisms that a listener may have."""

MAX_LOGIN_BYTES: Final = 16 * 1024
"""Of a frame before a login, whatever ``sasl.server.max.receive.size`` says, and beside a token of OAUTHBEARER: a
client id, a name, a password. Kafka's half a megabyte is for tickets of Kerberos, and anybody may have every connection
hold it."""


def nobodys(user: str, mechanism: ScramMechanism) -> ScramCredential | None:
    """What is kept of passwords before the metadata is there: nothing."""
    return None


@attrs.define(eq=False)
class SaslAuthenticators:
    """``find_credential`` and ``find_token`` look into the metadata. ``salt_key`` is what brokers of the cluster have,
    and clients before their login do not: the cluster's id. ``validate_token`` is there where a listener has had
    OAUTHBEARER at the start."""

    config: BrokerConfig
    clock: Clock
    random: Random
    find_credential: FindCredential = nobodys
    find_token: FindToken = no_token
    salt_key: bytes = b""
    validate_token: ValidateToken | None = None
    attempts: FailedAttempts = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.attempts = FailedAttempts(self.clock)

    def require_offered(self, listeners: Mapping[str, Endpoint]) -> None:
        """Check the settings of the listeners with SASL.

        Raises:
            ConfigError: a listener has a mechanism that is not offered, or nobody can log in by PLAIN.
        """
        for name, endpoint in listeners.items():
            if endpoint.security_protocol not in SASL_PROTOCOLS:
                continue
            for mechanism in self._enabled(name):
                if mechanism not in OFFERED:
                    why = "Kerberos is not offered" if mechanism == "GSSAPI" else "it is not offered"
                    offered = ", ".join(OFFERED)
                    raise ConfigError(
                        f"sasl.enabled.mechanisms of {endpoint}: {mechanism}: {why}; name any of {offered}"
                    )
                if mechanism == plain.NAME and not login_module(self.config, name, mechanism).users:
                    where = login_module_key(name, mechanism)
                    raise ConfigError(f'{where}: nobody can log in by PLAIN: it needs users, as in user_alice="…"')

    def is_enabled(self, mechanism: str, listeners: Mapping[str, Endpoint]) -> bool:
        """Whether any of the listeners has the mechanism."""
        return any(
            endpoint.security_protocol in SASL_PROTOCOLS and mechanism in self._enabled(name)
            for name, endpoint in listeners.items()
        )

    def new_authenticator(self, listener: str, host: str, max_request_bytes: int) -> SaslServerAuthenticator:
        """Return the authenticator of one connection of ``listener`` from ``host``."""
        config = self.config
        # Settings that have changed since the start may name others.
        mechanisms = [each for each in self._enabled(listener) if each in OFFERED]
        largest = MAX_LOGIN_BYTES + (oauthbearer.MAX_TOKEN_BYTES if oauthbearer.NAME in mechanisms else 0)
        limits = SaslLimits(
            max_receive_bytes=min(config.sasl.sasl_server_max_receive_size, largest, max_request_bytes),
            max_request_bytes=max_request_bytes,
            failure_delay_seconds=config.sasl.connection_failed_authentication_delay_ms / 1000,
            max_reauth_ms={
                each: config.listener_value(listener, "connections.max.reauth.ms", each) for each in mechanisms
            },
        )
        servers = {each: self._new_server(listener, each) for each in mechanisms}
        return SaslServerAuthenticator(servers, self.clock, limits, host, self.attempts)

    def _enabled(self, listener: str) -> tuple[str, ...]:
        mechanisms: tuple[str, ...] = self.config.listener_value(listener, "sasl.enabled.mechanisms")
        return mechanisms

    def _new_server(self, listener: str, mechanism: str) -> NewSaslServer:
        if mechanism == plain.NAME:
            return lambda: PlainSaslServer(login_module(self.config, listener, mechanism).users)
        if mechanism == oauthbearer.NAME:
            return self._new_oauthbearer_server
        return partial(self._new_scram_server, mechanism)

    def _new_oauthbearer_server(self) -> OAuthBearerSaslServer:
        if self.validate_token is None:
            raise ConfigError("OAUTHBEARER needs a restart: no listener had it at the start")
        return OAuthBearerSaslServer(self.validate_token)

    def _new_scram_server(self, mechanism: str) -> ScramSaslServer:
        nonce = nonce_of(self.random.randbytes)
        return ScramSaslServer(ScramMechanism(mechanism), self.find_credential, nonce, self.salt_key, self.find_token)


def login_module_key(listener: str, mechanism: str) -> str:
    """The key of a listener's login module for a mechanism."""
    return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"


def login_module(config: BrokerConfig, listener: str, mechanism: str) -> JaasEntry:
    """The login module of a listener for a mechanism, and its options.

    Raises:
        ConfigError: the setting is not of that form.
    """
    try:
        return parse_jaas(config.listener_value(listener, "sasl.jaas.config", mechanism) or "")
    except ValueError as error:
        name = login_module_key(listener, mechanism)
        raise ConfigError(f"{name}: {error}", key=name) from None
