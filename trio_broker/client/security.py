"""How connections to brokers are secured, and as whom a client logs in, by the properties of a client of Kafka's.

Files are read when a connection is made, and again when they have changed. Settings travel to the workers of a job, and
each reads its own.

Source: Kafka's CommonClientConfigs, SslConfigs and SaslConfigs; docs/security.md.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

import attrs

from kafka_wire.sasl.mechanisms import PlainSaslClient, SaslCredentials
from kafka_wire.sasl.scram import ScramMechanism
from trio_broker.common.did_you_mean import did_you_mean
from trio_broker.common.security_protocol import SASL_PROTOCOLS, TLS_PROTOCOLS, SecurityProtocol
from trio_broker.security.sasl.jaas import parse_jaas

if TYPE_CHECKING:
    import ssl

    from trio_broker.config.config_key import ConfigKey
    from trio_broker.config.ssl_config import SslConfig

MECHANISMS: Final = (PlainSaslClient.mechanism, *(mechanism.value for mechanism in ScramMechanism))
"""By which this client logs in."""

PROTOCOL_KEY: Final = "security.protocol"
MECHANISM_KEY: Final = "sasl.mechanism"
JAAS_KEY: Final = "sasl.jaas.config"

OF_LISTENERS: Final = frozenset({"ssl.client.auth", "ssl.principal.mapping.rules"})
"""Keys of TLS that clients do not have."""

SECURITY_PREFIXES: Final = ("security.", "ssl.", "sasl.")
"""Of Kafka's keys about the security of a client."""

OF_JAVA: Final = frozenset(
    {
        "security.providers",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
"""Keys of Kafka's that choose among parts of Java, and have nothing to act on here."""


class SecurityKeyError(ValueError):
    """A property of a client is refused; neither ``reason`` nor the text has a secret in it."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


@attrs.frozen
class ClientSecurity:
    """``tls`` is what a connection shows and trusts; without, anybody on the way can read and change its bytes.
    ``sasl`` is whom to log in as, None where there is no login."""

    tls: SslConfig | None = None
    sasl: SaslCredentials | None = None

    def secured(self, sock: socket.socket, host: str) -> socket.socket:
        """Return the socket for the requests, once ``sock`` is connected to ``host``.

        Raises:
            ssl.SSLError: the two sides do not come to terms.
            OSError, ValueError: the connection is gone, or a file or value is not what it should be.
        """
        context = self.context()
        return sock if context is None else context.wrap_socket(sock, server_hostname=host)

    def context(self) -> ssl.SSLContext | None:
        """Return what a connection shakes hands by, None without TLS.

        Raises:
            OSError, ValueError: a file or value is not what it should be.
        """
        if self.tls is None:
            return None
        # Imported here: see the head of the module.
        from trio_broker.security.ssl_factory import present_client_context

        return present_client_context(self.tls)


def parse_security(properties: Mapping[str, str]) -> ClientSecurity:
    """Return what those of a client's properties say that are about security; others are left alone.

    Raises:
        SecurityKeyError: one is unknown, this client does not have what it asks for, or the login module has no user
            and password.
    """
    if names := {name for name in properties if name.startswith(SECURITY_PREFIXES)}:
        known = {PROTOCOL_KEY, MECHANISM_KEY, JAAS_KEY, *ssl_keys()}
        if unknown := names - known - OF_JAVA:
            name = min(unknown)
            raise SecurityKeyError(name, f"this client does not have it{did_you_mean(name, known)}")
    text = properties.get(PROTOCOL_KEY, SecurityProtocol.PLAINTEXT.name)
    try:
        protocol = SecurityProtocol[text.strip().upper()]
    except KeyError:
        raise SecurityKeyError(PROTOCOL_KEY, f"{text!r} is none of {', '.join(SecurityProtocol.__members__)}") from None
    return ClientSecurity(
        tls=parse_tls(properties) if protocol in TLS_PROTOCOLS else None,
        sasl=parse_login(properties) if protocol in SASL_PROTOCOLS else None,
    )


@cache
def ssl_keys() -> Mapping[str, ConfigKey]:
    """Return the keys of TLS that a client has, which are those of the broker, by name."""
    # Imported here: most clients have none of them, and the broker's settings are large.
    from trio_broker.config.config_key import keys_of
    from trio_broker.config.ssl_config import SslConfig

    return {key.name: key for key in keys_of(SslConfig) if key.name not in OF_LISTENERS}


def parse_tls(properties: Mapping[str, str]) -> SslConfig:
    """Return what a client's properties say about TLS; errors as ``parse_security``."""
    from trio_broker.config.errors import ConfigError
    from trio_broker.config.ssl_config import SslConfig

    fields = {}
    for name, key in ssl_keys().items():
        try:
            fields[key.field] = key.value_in(properties)
        except ConfigError as error:
            raise SecurityKeyError(name, str(error).removeprefix(f"{name}: ")) from None
    return SslConfig(**fields)


def parse_login(properties: Mapping[str, str]) -> SaslCredentials:
    """Return as whom a client's properties log in; errors as ``parse_security``."""
    mechanism = properties.get(MECHANISM_KEY, "GSSAPI").strip()
    if mechanism not in MECHANISMS:
        raise SecurityKeyError(MECHANISM_KEY, f"{mechanism} is none of {', '.join(MECHANISMS)}")
    try:
        return parse_jaas(properties.get(JAAS_KEY, "")).credentials(mechanism)
    except ValueError as error:
        raise SecurityKeyError(JAAS_KEY, str(error)) from None
