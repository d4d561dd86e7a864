"""The keys and certificates of one listener with TLS, as OpenSSL takes them.

They are read and checked as a whole before they count: where they are unreadable, open to others, expired or do not fit
together, the old ones stay, and nobody is disconnected.

To be imported where there is TLS alone: what reads certificates takes 9 MiB of memory, and many brokers and most
clients have none.

Source: Kafka's DefaultSslEngineFactory; docs/decisions/0106.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import attrs

from trio_broker.config.errors import ConfigError
from trio_broker.config.ssl_config import PROTOCOLS, SslConfig
from trio_broker.security.kafka_principal import ANONYMOUS, USER_TYPE, KafkaPrincipal
from trio_broker.security.key_store import (
    Versions,
    check_certificate,
    has_key_store,
    key_store,
    private_file,
    trusted,
    versions_of,
)
from trio_broker.security.ssl_principal_mapper import SslPrincipalMapper, distinguished_name

CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


CACHED_CONTEXTS: Final = 16
"""Of connections to others, each with the authorities that it trusts: there are few settings, and some versions of
their files."""


@attrs.define(eq=False)
class SslFactory:
    """See the head of the file."""

    listener: str
    config: SslConfig
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    context: ssl.SSLContext = attrs.field(init=False)
    _mapper: SslPrincipalMapper = attrs.field(init=False)
    _tried: tuple[SslConfig, Versions] = attrs.field(init=False)
    """What was taken last or refused; the same is not tried again at each look."""

    def __attrs_post_init__(self) -> None:
        self._tried = self.config, versions_of(self.config)
        self._take(self.config)

    def reconfigure(self, config: SslConfig) -> bool:
        """Take ``config`` if it differs, or files have changed; return whether there is anything new.

        Raises:
            ConfigError: it cannot be taken; the one before stays.
        """
        found = config, versions_of(config)
        if found == self._tried:
            return False
        self._tried = found
        self._take(config)
        return True

    def principal(self, certificate: bytes | None) -> KafkaPrincipal:
        """Return the user of a client's certificate.

        Raises:
            NoMatchingRule: no rule takes its name.
        """
        if certificate is None:
            return ANONYMOUS
        return KafkaPrincipal(USER_TYPE, self._mapper.name(distinguished_name(certificate)))

    def validate(self, config: SslConfig) -> tuple[ssl.SSLContext, SslPrincipalMapper]:
        """Return what ``config`` says.

        Raises:
            ConfigError: it cannot be taken.
        """
        try:
            mapper = SslPrincipalMapper.parse(config.ssl_principal_mapping_rules)
            return server_context(config, self.now()), mapper
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"listener {self.listener}: {reason}") from None

    def _take(self, config: SslConfig) -> None:
        self.context, self._mapper = self.validate(config)
        self.config = config


def server_context(config: SslConfig, now: datetime) -> ssl.SSLContext:
    """Return what a listener with ``config`` shakes hands by.

    Raises:
        OSError, ValueError: a file or a value is not what it should be; the text names the key.
    """
    context = context_of(ssl.PROTOCOL_TLS_SERVER, config)
    # Kafka's clients do not resume, and a ticket is a packet.
    context.num_tickets = 0
    load_key_store(context, config, now)
    context.verify_mode = CLIENT_AUTH[config.ssl_client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        if (certificates := trusted(config)) is None:
            raise ValueError(f"ssl.client.auth={config.ssl_client_auth} needs ssl.truststore.location: whom to trust")
        context.load_verify_locations(cadata=certificates)
    return context


def present_client_context(config: SslConfig) -> ssl.SSLContext:
    """Return what a client with ``config`` shakes hands by, of the files as they are now.

    Raises:
        OSError, ValueError: as ``server_context``.
    """
    return _client_context_of(config, versions_of(config))


@lru_cache(CACHED_CONTEXTS)
def _client_context_of(config: SslConfig, versions: Versions) -> ssl.SSLContext:
    return client_context(config, datetime.now(UTC))


def client_context(config: SslConfig, now: datetime) -> ssl.SSLContext:
    """Return what a client with ``config`` shakes hands by; without a truststore it trusts whom the system trusts.

    Raises:
        OSError, ValueError: as ``server_context``.
    """
    context = context_of(ssl.PROTOCOL_TLS_CLIENT, config)
    context.check_hostname = bool(config.ssl_endpoint_identification_algorithm)
    if (certificates := trusted(config)) is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=certificates)
    if has_key_store(config):
        load_key_store(context, config, now)
    return context


def context_of(protocol: int, config: SslConfig) -> ssl.SSLContext:
    """Return what both sides have in common."""
    context = ssl.SSLContext(protocol)
    chosen = set(config.ssl_enabled_protocols)
    if not chosen or not chosen <= set(PROTOCOLS):
        raise ValueError(f"ssl.enabled.protocols: TLSv1.2, TLSv1.3 or both are served, not {','.join(sorted(chosen))}")
    context.minimum_version = min(VERSIONS[each] for each in chosen)
    context.maximum_version = max(VERSIONS[each] for each in chosen)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # As in Java: a certificate in the truststore is trusted without one of its issuer.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if config.ssl_cipher_suites:
        try:
            context.set_ciphers(":".join(config.ssl_cipher_suites))
        except ssl.SSLError:
            raise ValueError(f"ssl.cipher.suites: OpenSSL knows none of {config.ssl_cipher_suites}") from None
    return context


def load_key_store(context: ssl.SSLContext, config: SslConfig, now: datetime) -> None:
    store = key_store(config)
    check_certificate(store, now)
    with private_file(store.pem) as path:
        context.load_cert_chain(path)
