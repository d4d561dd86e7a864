"""A certificate authority of one's own, for brokers and clients whose certificates nobody else issues.

Keys are of the curve P-256: a broker's signature in a handshake costs a fraction of that of an RSA key. The certificate
of a broker is that of a client as well, because brokers show it to each other on both sides of a connection.

Nothing is revoked; certificates end with their time.

Source: RFC 5280; docs/security.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trio_broker.security.key_store import KeyStore, check_certificate

AUTHORITY_DAYS: Final = 3650
"""How long an authority is valid: as long as nobody wants to hand out another one to all clients."""

CERTIFICATE_DAYS: Final = 825
"""How long what it issues is valid: the longest that Apple's systems accept of a server."""

CLOCK_DIFFERENCE: Final = timedelta(hours=1)
"""Certificates are valid from that long ago, for machines whose clocks are behind."""


@attrs.frozen
class CertificateAuthority:
    """The key by which certificates are signed, and its own certificate, which clients and brokers trust."""

    certificate: x509.Certificate
    _key: ec.EllipticCurvePrivateKey = attrs.field(repr=False)

    @classmethod
    def create(cls, name: str, now: datetime, *, days: int = AUTHORITY_DAYS) -> CertificateAuthority:
        """Return a new authority with the common name ``name``, of at most 64 characters."""
        key, subject = new_key(), subject_of(name)
        certificate = (
            builder_of(subject, key, now - CLOCK_DIFFERENCE, now + timedelta(days=days))
            .issuer_name(subject)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(key_usage(is_authority=True), critical=True)
            .sign(key, SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def of(cls, key_store: KeyStore, now: datetime) -> CertificateAuthority:
        """Return the authority whose own ``key_store`` this is.

        Raises:
            ValueError: it is that of no authority, is not valid now, or its key is another one.
        """
        check_certificate(key_store, now)
        certificate = x509.load_pem_x509_certificate(key_store.chain)
        key = load_pem_private_key(key_store.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"the key of {certificate.subject.rfc4514_string()} is of no elliptic curve")
        return cls(certificate, key)

    @property
    def key_store(self) -> KeyStore:
        """What has to be kept to issue more: the private key, and the certificate."""
        return KeyStore(pem_of(self._key), self.trusted)

    @property
    def trusted(self) -> bytes:
        """What others need to trust all that is issued: the certificate, in PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    def issue_server(self, name: str, hosts: Iterable[str], now: datetime, *, days: int = CERTIFICATE_DAYS) -> KeyStore:
        """Return a new key with a certificate for a broker with the common name ``name``.

        ``hosts`` are the domain names and addresses by which clients and other brokers reach it.

        Raises:
            ValueError: a host is neither, or ``name`` is empty or of more than 64 characters.
        """
        usages = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._issue(name, now, days, usages, [general_name(host) for host in hosts])

    def issue_client(self, name: str, now: datetime, *, days: int = CERTIFICATE_DAYS) -> KeyStore:
        """Return a new key with a certificate for a client, whose principal is ``User:CN=<name>``.

        Raises:
            ValueError: ``name`` is empty or of more than 64 characters.
        """
        return self._issue(name, now, days, (ExtendedKeyUsageOID.CLIENT_AUTH,))

    def _issue(
        self,
        name: str,
        now: datetime,
        days: int,
        usages: Iterable[x509.ObjectIdentifier],
        hosts: Iterable[x509.GeneralName] = (),
    ) -> KeyStore:
        key = new_key()
        end = min(now + timedelta(days=days), self.certificate.not_valid_after_utc)
        builder = (
            builder_of(subject_of(name), key, now - CLOCK_DIFFERENCE, end)
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        return KeyStore(pem_of(key), builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def builder_of(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    """Return what authorities and those they issue for have in common."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def subject_of(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
