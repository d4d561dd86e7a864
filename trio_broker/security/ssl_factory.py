"""The keys and certificates of one listener with TLS, as OpenSSL takes them.

They are read and checked as a whole before they count: where they are unreadable, open to others, expired or do not fit
together, the old ones stay, and nobody is disconnected.

Source: Kafka's DefaultSslEngineFactory; docs/decisions/0106.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    pkcs12,
)

from trio_broker.config.errors import ConfigError
from trio_broker.config.ssl_config import PROTOCOLS, SslConfig
from trio_broker.security.kafka_principal import ANONYMOUS, USER_TYPE, KafkaPrincipal
from trio_broker.security.ssl_principal_mapper import SslPrincipalMapper, distinguished_name

OTHERS: Final = 0o077
"""The rights of anybody but the owner of a file."""

JKS: Final = b"\xfe\xed\xfe\xed"
"""How a file of Java's own form begins."""

CONVERSION: Final = "keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12"

CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


Versions = dict[str, tuple[int, int, int]]


@attrs.frozen
class KeyStore:
    """A private key and the chain of its certificate, in PEM."""

    key: bytes = attrs.field(repr=False)
    chain: bytes

    @property
    def pem(self) -> bytes:
        """Both, as they stand in one file."""
        return self.key + self.chain


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

    def _take(self, config: SslConfig) -> None:
        try:
            mapper = SslPrincipalMapper.parse(config.ssl_principal_mapping_rules)
            context = server_context(config, self.now())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"listener {self.listener}: {reason}") from None
        self.config, self.context, self._mapper = config, context, mapper


def versions_of(config: SslConfig) -> Versions:
    """Return the files that ``config`` names, each with what tells a new version of it."""
    return {path: version_of(path) for path in (config.ssl_keystore_location, config.ssl_truststore_location) if path}


def version_of(path: str) -> tuple[int, int, int]:
    """Return what differs between two versions of a file; the same for every one that is not there."""
    try:
        found = Path(path).stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def server_context(config: SslConfig, now: datetime) -> ssl.SSLContext:
    """Return what a listener with ``config`` shakes hands by.

    Raises:
        OSError, ValueError: a file or a value is not what it should be; the text names the key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chosen = set(config.ssl_enabled_protocols)
    if not chosen or not chosen <= set(PROTOCOLS):
        raise ValueError(f"ssl.enabled.protocols: TLSv1.2, TLSv1.3 or both are served, not {','.join(sorted(chosen))}")
    context.minimum_version = min(VERSIONS[each] for each in chosen)
    context.maximum_version = max(VERSIONS[each] for each in chosen)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Kafka's clients do not resume, and a ticket is a packet.
    context.num_tickets = 0
    if config.ssl_cipher_suites:
        try:
            context.set_ciphers(":".join(config.ssl_cipher_suites))
        except ssl.SSLError:
            raise ValueError(f"ssl.cipher.suites: OpenSSL knows none of {config.ssl_cipher_suites}") from None
    store = key_store(config)
    check_certificate(store, now)
    with private_file(store.pem) as path:
        context.load_cert_chain(path)
    context.verify_mode = CLIENT_AUTH[config.ssl_client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        # As in Java: a certificate in the truststore is trusted without one of its issuer.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=trusted(config))
    return context


def key_store(config: SslConfig) -> KeyStore:
    """Return the key, without a password, and its chain."""
    key, chain = config.ssl_keystore_key, config.ssl_keystore_certificate_chain
    if key and chain:
        return KeyStore(
            decrypted(key.encode(), config.ssl_key_password, "ssl.keystore.key"),
            certificates_in(chain.encode(), "ssl.keystore.certificate.chain"),
        )
    location = config.ssl_keystore_location
    if not location:
        raise ValueError("ssl.keystore.location is not set, which TLS needs (or ssl.keystore.key and its chain)")
    name = f"ssl.keystore.location: {location}"
    content = read(location, name, private=True)
    if config.ssl_keystore_type == "PEM":
        return KeyStore(decrypted(content, config.ssl_key_password, name), certificates_in(content, name))
    found = opened_pkcs12(content, config.ssl_keystore_password, name)
    if found.key is None or found.cert is None:
        raise ValueError(f"{name}: there is no private key with a certificate in it")
    certificates = [found.cert, *found.additional_certs]
    return KeyStore(
        found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        b"".join(each.certificate.public_bytes(Encoding.PEM) for each in certificates),
    )


def trusted(config: SslConfig) -> str:
    """Return the certificates by which clients are trusted."""
    if given := config.ssl_truststore_certificates:
        return certificates_in(given.encode(), "ssl.truststore.certificates").decode()
    location = config.ssl_truststore_location
    if not location:
        raise ValueError(f"ssl.client.auth={config.ssl_client_auth} needs ssl.truststore.location: whom to trust")
    name = f"ssl.truststore.location: {location}"
    content = read(location, name)
    if config.ssl_truststore_type == "PEM":
        return certificates_in(content, name).decode()
    found = opened_pkcs12(content, config.ssl_truststore_password, name)
    certificates = [*([found.cert] if found.cert else []), *found.additional_certs]
    return b"".join(each.certificate.public_bytes(Encoding.PEM) for each in certificates).decode()


def check_certificate(store: KeyStore, now: datetime) -> None:
    """Refuse a certificate that is not valid now, or not that of the key."""
    certificate = x509.load_pem_x509_certificates(store.chain)[0]
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise ValueError(
            f"the certificate of {certificate.subject.rfc4514_string()} is valid from "
            f"{certificate.not_valid_before_utc:%Y-%m-%d} to {certificate.not_valid_after_utc:%Y-%m-%d} only"
        )
    key = load_pem_private_key(store.key, None).public_key()
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if key.public_bytes(*form) != certificate.public_key().public_bytes(*form):
        raise ValueError(f"the private key is not that of the certificate of {certificate.subject.rfc4514_string()}")


def read(location: str, name: str, *, private: bool = False) -> bytes:
    path = Path(location)
    try:
        if private and path.stat().st_mode & OTHERS:
            raise ValueError(f"{name}: others may read the private key; chmod 600 it")
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror}") from None
    if content.startswith(JKS):
        raise ValueError(f"{name}: JKS is not read; {CONVERSION}")
    return content


def decrypted(content: bytes, password: str | None, name: str) -> bytes:
    try:
        key = load_pem_private_key(content, password.encode() if password else None)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: no private key that ssl.key.password opens: {one_line(error)}") from None
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def certificates_in(content: bytes, name: str) -> bytes:
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise ValueError(f"{name}: no certificates in PEM: {one_line(error)}") from None
    return b"".join(each.public_bytes(Encoding.PEM) for each in found)


def opened_pkcs12(content: bytes, password: str | None, name: str) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(content, password.encode() if password else None)
    except ValueError as error:
        raise ValueError(f"{name}: no PKCS12 that its password opens: {one_line(error)}") from None


def one_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """A file in memory with ``content``: OpenSSL's contexts take keys from files only, and none may be on a disk."""
    number = os.memfd_create("key store")
    try:
        os.write(number, content)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
