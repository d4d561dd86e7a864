"""The directory of ``start --secure``: all that makes a broker safe, in ordinary files that are made once.

    ca.pem              the certificate that clients trust
    ca-key.pem          by which certificates are issued
    broker.pem          key and certificate of the broker; issued again in time, and where it needs other names
    admin.properties    for clients of the user admin, with its password
    server.properties   the settings of the broker; written last, so that a directory which has it is whole
    admin-tokens        made by the admin page
    .lock               held while files are made, so that of two starts at once one makes them all

Only ``ca.pem`` may be read by others than the owner. The settings name the files by their paths, so that ``--config``
takes them, too: a copy of the directory would be the original, and is refused.

Source: docs/decisions/0112-a-safe-broker-by-one-option.md.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from kafka_wire.sasl.scram import MIN_ITERATIONS, ScramMechanism
from trio_broker.cli.client_properties import properties_text, scram_properties
from trio_broker.common.properties import parse_properties
from trio_broker.common.security_protocol import TLS_PROTOCOLS
from trio_broker.config.authorizer_config import STANDARD_AUTHORIZER
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import BROKER_KEYS
from trio_broker.config.listeners import UNROUTABLE_HOSTS, listener_endpoints
from trio_broker.declaration.declaration import DeclaredCredential
from trio_broker.security.certificate_authority import CertificateAuthority
from trio_broker.security.key_store import KeyStore
from trio_broker.security.private_files import read_private_file, write_private_file
from trio_broker.security.sasl.jaas import parse_jaas

if TYPE_CHECKING:
    from trio_broker.config.broker_config import BrokerConfig

RENEWAL_DAYS: Final = 30
"""A certificate that ends sooner is issued again at a start."""

ADMIN: Final = "admin"
MECHANISM: Final = ScramMechanism.SHA_512
PASSWORD_BYTES: Final = 18
"""Of a password that is made here, 24 characters: nobody guesses 144 bits."""

RENEWAL_SECONDS: Final = 10.0
"""That a start waits for another one of the same directory which is issuing: milliseconds, but on a slow disk."""

RETRY_SECONDS: Final = 0.05

NOT_ISSUED: Final = "is not there"

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")

INSTEAD: Final = "; --config takes a file that is meant so"

HEAD: Final = """\
# Made by trio-broker start --secure: an ordinary configuration, to be changed as you like. The same option takes it
# again at the next start; without it, --config and this file do.
"""


@attrs.frozen
class SecureSettings:
    """What a broker has of its own when its directory is made."""

    log_dirs: str
    listener: str
    admin_listener: str


@attrs.frozen
class SecureDirectory:
    """See the head of the file. Everything blocks, and raises ``ConfigError`` with one line."""

    path: Path

    @property
    def server_properties(self) -> Path:
        return self.path / "server.properties"

    @property
    def admin_properties(self) -> Path:
        return self.path / "admin.properties"

    @property
    def _tokens(self) -> Path:
        return self.path / "admin-tokens"

    @property
    def _lock(self) -> Path:
        return self.path / ".lock"

    @property
    def _authority(self) -> Path:
        return self.path / "ca.pem"

    @property
    def _authority_key(self) -> Path:
        return self.path / "ca-key.pem"

    @property
    def _key_store(self) -> Path:
        return self.path / "broker.pem"

    def make(self, settings: SecureSettings) -> str | None:
        """Make the directory, but for what ``renew`` makes. Return the new password of the user admin, None if all is
        there already."""
        if self.server_properties.exists():
            return None
        try:
            self._require_own_files()
            self.path.mkdir(parents=True, exist_ok=True)
            with self.locked():
                return None if self.server_properties.exists() else self._make_settings(settings)
        except OSError as error:
            raise ConfigError(f"--secure: {error.filename or self.path}: {error.strerror or error}") from None

    def _make_settings(self, settings: SecureSettings) -> str:
        password = self._own_password() or secrets.token_urlsafe(PASSWORD_BYTES)
        write_private_file(self.admin_properties, properties_text(self._client_properties(password)).encode())
        text = HEAD + properties_text(self._broker_properties(settings))
        write_private_file(self.server_properties, text.encode())
        return password

    def check(self, config: BrokerConfig) -> None:
        """Refuse a configuration that was read from ``server.properties`` and is not what the option promises."""
        if reason := self._copied_from(config) or reason_not_safe(config):
            raise ConfigError(f"--secure: {self.server_properties}: {reason}")

    def _copied_from(self, config: BrokerConfig) -> str:
        """Why these are the settings of another directory, empty if they are not: they name its files and none here."""
        names = {"ssl.keystore.location": self._key_store, "ssl.truststore.location": self._authority}
        named = {
            key: Path(path)
            for key, own in (names | {"admin.token.file": self._tokens}).items()
            if (path := config.value(BROKER_KEYS[key])) and Path(path).name == own.name
        }
        places = {path.parent.resolve() for path in named.values()}
        if not places or self.path.resolve() in places:
            return ""
        place = min(places)
        return (
            f"{', '.join(named)} lead to {place}, of which this directory is a copy: remove this file and broker.pem,"
            " and it is made again for here, with --data-dir as you give it"
        )

    def first_credential(self) -> DeclaredCredential | None:
        """The user admin of a new cluster; None where the file with the password was taken away."""
        password = self._own_password()
        if password is None:
            return None
        return DeclaredCredential(
            name=ADMIN, mechanism=MECHANISM, password=password, iterations=MIN_ITERATIONS, origin="--secure"
        )

    def renew(self, hosts: Iterable[str], now: datetime) -> str:
        """Make an authority if there is none, and issue the broker's certificate if it is not of this one, ends soon or
        has not all of ``hosts``. What it names already it goes on to name: another broker may have the same directory,
        and clients that dial it. Return what was done and what somebody has to do, in one line; empty where there is
        nothing."""
        wanted = sorted({*LOCAL_NAMES, *own_name(), *(host for host in hosts if is_name(host))})
        try:
            if self._authority.exists() and not self._reason_to_issue(wanted, now):
                return ""
            with self.locked(RENEWAL_SECONDS):
                return self._issue(wanted, now)
        except OSError as error:
            raise ConfigError(f"--secure: {error.filename or self.path}: {error.strerror or error}") from None
        except ValueError as error:
            raise ConfigError(f"--secure: {self.path}: {error}") from None

    def _issue(self, hosts: Collection[str], now: datetime) -> str:
        """Do what ``renew`` says; another start may have done it just before."""
        if not self._authority.exists():
            self._make_authority(now)
        reason = self._reason_to_issue(hosts, now)
        if not reason:
            return ""
        if not self._authority_key.exists():
            return f"{self._key_store} {reason}, and {self._authority_key} is not there to issue another one"
        authority = CertificateAuthority.of(read_key_store(self._authority_key), now)
        if authority.certificate != read_certificate(self._authority):
            what = f"{self._authority} is not that of {self._authority_key}"
            raise ConfigError(f"--secure: {what}: remove it, and clients need the new one")
        store = authority.issue_server("trio-broker", sorted({*hosts, *self._present_names()}), now)
        write_private_file(self._key_store, store.pem)
        end = min(certificate_in(store.chain).not_valid_after_utc, authority.certificate.not_valid_after_utc)
        soon = ": ca.pem ends, and clients need another one" if is_near(end, now) else ""
        why = "" if reason == NOT_ISSUED else f", since the one before {reason}"
        return f"{self._key_store} is issued until {end:%Y-%m-%d}{why}{soon}"

    def _reason_to_issue(self, hosts: Collection[str], now: datetime) -> str:
        if not self._key_store.exists():
            return NOT_ISSUED
        certificate = read_certificate(self._key_store)
        if is_near(certificate.not_valid_after_utc, now):
            return f"ends on {certificate.not_valid_after_utc:%Y-%m-%d}"
        authority = read_certificate(self._authority)
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, InvalidSignature):
            return "is of another authority"
        missing = set(hosts) - names_in(certificate)
        return f"does not name {', '.join(sorted(missing))}" if missing else ""

    def _present_names(self) -> set[str]:
        """The hosts of the certificate that there is."""
        return names_in(read_certificate(self._key_store)) if self._key_store.exists() else set()

    @contextmanager
    def locked(self, wait_seconds: float = 0) -> Iterator[None]:
        """Hold the directory while files of it are made. The kernel lets go of it with the process."""
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + wait_seconds
        try:
            while not try_lock(descriptor):
                if time.monotonic() >= deadline:
                    raise ConfigError(f"--secure: another start is making {self.path}")
                time.sleep(RETRY_SECONDS)
            yield
        finally:
            os.close(descriptor)

    def _require_own_files(self) -> None:
        """Refuse a directory that is another one: files of the same names would mix with those that are there."""
        paths = (self.server_properties, self.admin_properties, self._authority, self._authority_key, self._tokens)
        own = {self._lock.name, *(each.name for each in paths)}
        # So begins a file that a killed start did not finish.
        unfinished = tuple(f".{name}." for name in own)
        found = [each.name for each in self.path.iterdir()] if self.path.exists() else []
        others = [name for name in found if name not in own and not name.startswith(unfinished)]
        if others:
            raise ConfigError(
                f"--secure: {self.path} has no server.properties, but {min(others)}: name a new directory"
            )

    def _make_authority(self, now: datetime) -> None:
        """Make an authority. Where its key is there already a start was cut short, or ``ca.pem`` is lost: clients that
        have it are to trust what is issued from now on, too."""
        if self._authority_key.exists():
            authority = CertificateAuthority.of(read_key_store(self._authority_key), now)
        else:
            authority = CertificateAuthority.create(f"trio-broker {socket.gethostname()}"[:64].rstrip(), now)
            write_private_file(self._authority_key, authority.key_store.pem)
        write_private_file(self._authority, authority.trusted)
        self._authority.chmod(0o644)

    def _own_password(self) -> str | None:
        if not self.admin_properties.exists():
            return None
        try:
            text = self.admin_properties.read_text(encoding="ascii")
            found = {each.key: each.value for each in parse_properties(text, str(self.admin_properties))}
            credentials = parse_jaas(found.get("sasl.jaas.config", "")).credentials(MECHANISM.value)
        except ValueError as error:
            raise ConfigError(f"--secure: {self.admin_properties}: {error}") from None
        return credentials.secret

    def _client_properties(self, password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority),
            **scram_properties(ADMIN, password, MECHANISM.value),
        }

    def _broker_properties(self, settings: SecureSettings) -> dict[str, str]:
        return {
            "log.dirs": settings.log_dirs,
            "listeners": settings.listener,
            "sasl.enabled.mechanisms": MECHANISM.value,
            "ssl.keystore.location": str(self._key_store),
            "ssl.truststore.location": str(self._authority),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{ADMIN}",
            "admin.listener": settings.admin_listener,
            "admin.security.protocol": "SSL",
            "admin.token.file": str(self._tokens),
        }


def reason_not_safe(config: BrokerConfig) -> str:
    """What is not as the option promises, and the setting that would have it so; empty if all is."""
    if not config.authorizer.authorizer_class_name:
        return f"every client may do everything without authorizer.class.name={STANDARD_AUTHORIZER}{INSTEAD}"
    if config.authorizer.allow_everyone_if_no_acl_found:
        return f"every client may do much with allow.everyone.if.no.acl.found=true{INSTEAD}"
    for endpoint in listener_endpoints(config.socket_server):
        if endpoint.security_protocol not in TLS_PROTOCOLS:
            return f"the listener {endpoint} has no TLS, as SASL_SSL has{INSTEAD}"
    if config.node.admin_listener and config.node.admin_security_protocol != "SSL":
        return f"the admin page has no TLS without admin.security.protocol=SSL{INSTEAD}"
    return ""


def try_lock(descriptor: int) -> bool:
    """Lock an open file, unless another one has it; return whether it is locked now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def own_name() -> list[str]:
    """The name of this machine, if a certificate can have it."""
    name = socket.gethostname()
    return [name] if name and name.isascii() else []


def is_name(host: str) -> bool:
    """Whether a client can dial ``host``, which is not every interface."""
    return bool(host) and host not in UNROUTABLE_HOSTS


def is_near(end: datetime, now: datetime) -> bool:
    return end - now < timedelta(days=RENEWAL_DAYS)


def certificate_in(content: bytes) -> x509.Certificate:
    """The first certificate in a file."""
    return x509.load_pem_x509_certificates(content)[0]


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate in a file, which is named if it has none."""
    try:
        return certificate_in(path.read_bytes())
    except ValueError:
        raise ConfigError(
            f"--secure: {path} has no certificate in PEM; where it is removed, it is made again"
        ) from None


def read_key_store(path: Path) -> KeyStore:
    """The key in a file and its certificate."""
    content = read_private_file(path)
    return KeyStore(content, content)


def names_in(certificate: x509.Certificate) -> set[str]:
    """The hosts that a certificate is for."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
