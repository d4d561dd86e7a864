"""Private keys, certificate chains and trusted certificates: read from files or settings, and checked.

PEM is the default form; PKCS12 is read as well, JKS is not. A private key that others may read is refused.

Source: Kafka's DefaultSslEngineFactory; docs/decisions/0106.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from stat import S_ISREG
from typing import Final, TypeAlias

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

from trio_broker.config.ssl_config import SslConfig
from trio_broker.security.private_files import read_private_file

JKS: Final = b"\xfe\xed\xfe\xed"
"""How a file of Java's own form begins."""

CONVERSION: Final = "keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12"

Versions: TypeAlias = tuple[tuple[int, int, int], ...]


@attrs.frozen
class KeyStore:
    """A private key and the chain of its certificate, in PEM."""

    key: bytes = attrs.field(repr=False)
    chain: bytes

    @property
    def pem(self) -> bytes:
        """Both, as they stand in one file."""
        return self.key + self.chain


def versions_of(config: SslConfig) -> Versions:
    """Return what tells a new version of each file that ``config`` names."""
    paths = config.ssl_keystore_location, config.ssl_truststore_location
    return tuple(version_of(path) for path in paths if path)


def version_of(path: str) -> tuple[int, int, int]:
    """Return what differs between two versions of a file; the same for every one that is not there."""
    try:
        found = Path(path).stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def has_key_store(config: SslConfig) -> bool:
    """Whether there is a key and a certificate to show."""
    return bool(config.ssl_keystore_location or config.ssl_keystore_key)


def key_store(config: SslConfig) -> KeyStore:
    """Return the key, without a password, and its chain.

    Raises:
        OSError, ValueError: there is none, or it is not what it should be; the text names the key of the settings.
    """
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


def trusted(config: SslConfig) -> str | None:
    """Return the certificates by which the other side is trusted, None where neither file nor setting has any."""
    if given := config.ssl_truststore_certificates:
        return certificates_in(given.encode(), "ssl.truststore.certificates").decode()
    location = config.ssl_truststore_location
    if not location:
        return None
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
        # A client may name the path: a device has no end, and who opens a pipe waits for what is written into it.
        if not S_ISREG(path.stat().st_mode):
            raise ValueError(f"{name}: no regular file")
        content = read_private_file(path) if private else path.read_bytes()
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
