"""A broker that clients reach by TLS and each kind of login, and what each client is to do there.

A case is a login, a topic and a group: its client writes a record, and reads one as a member of the group. The user has
every right to what begins with ``open`` and none to what begins with ``closed``, whichever way it logs in; by TLS alone
it is the anonymous one. A client's driver takes cases and says of each how both ended: ``ok``, or the error by the name
that users of that client know.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.security.oauth_tokens import AUDIENCE, ISSUER, claims_at, key_named, key_set, signed
from tests.waits import flushed, within
from trio_broker.broker import Broker
from trio_broker.config.authorizer_config import STANDARD_AUTHORIZER
from trio_broker.security.certificate_authority import CertificateAuthority
from trio_broker.security.private_files import write_private_file
from trio_broker.security.ssl_factory import server_context
from trio_broker.testing.broker_thread import BrokerThread

SECONDS = 30.0

USER, PASSWORD = "alice", "right"
ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
OK = "ok"

LOGINS = ("tls", "mtls", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""By TLS alone, by a certificate, and by the mechanisms of SASL over TLS."""

REFUSALS = ("wrong password", "wrong authority", "expired certificate", "closed topic", "closed group")
"""What a client may meet, each by SCRAM."""

DAYS_BEHIND = timedelta(days=10)
"""When the certificate that has ended was valid."""

SETTINGS: Mapping[str, str] = {
    "listeners": "TLS://127.0.0.1:0,MTLS://127.0.0.1:0,LOGIN://127.0.0.1:0,EXPIRED://127.0.0.1:0",
    "listener.security.protocol.map": "TLS:SSL,MTLS:SSL,LOGIN:SASL_SSL,EXPIRED:SASL_SSL",
    "listener.name.mtls.ssl.client.auth": "required",
    "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "sasl.oauthbearer.expected.audience": AUDIENCE,
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": f"User:{ADMIN}",
    # One broker: what it asks itself comes from nobody.
    "inter.broker.listener.name": "LOGIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "auto.create.topics.enable": "false",
    # Of applications that are missed soon.
    "group.min.session.timeout.ms": "1000",
}

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{ADMIN}" password="{ADMIN_PASSWORD}" '
    f'user_{ADMIN}="{ADMIN_PASSWORD}" user_{USER}="{PASSWORD}";'
)


@attrs.frozen
class Case:
    """Files are PEM; ``certificate`` has the key as well. Without ``mechanism`` there is no login by SASL."""

    name: str
    servers: str
    ca: str
    certificate: str = ""
    mechanism: str = ""
    password: str = PASSWORD
    token: str = ""
    topic: str = "open"
    group: str = "open"
    user: str = USER

    @property
    def librdkafka(self) -> dict[str, str]:
        """The settings of confluent-kafka and kcat, without those of a token."""
        login = {"sasl.mechanisms": self.mechanism, "sasl.username": self.user, "sasl.password": self.password}
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": self.protocol,
            "ssl.ca.location": self.ca,
            **(
                {"ssl.certificate.location": self.certificate, "ssl.key.location": self.certificate}
                if self.certificate
                else {}
            ),
            **(login if self.mechanism else {}),
        }

    @property
    def java(self) -> dict[str, str]:
        """The properties of Kafka's own clients for a login by a password over TLS, without the address."""
        module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
        return {
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
            f'username="{self.user}" password="{self.password}";',
        }

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.mechanism else "SSL"


@attrs.frozen
class SecuredBroker:
    """The ports of the listeners, by name, and the files of clients."""

    ports: Mapping[str, int]
    directory: Path

    def servers(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def case(self, login: str, **fields: Any) -> Case:
        """How ``login`` is done rightly, but for ``fields``."""
        ca = str(self.directory / "ca.pem")
        if login == "tls":
            made = Case(login, self.servers("TLS"), ca)
        elif login == "mtls":
            made = Case(login, self.servers("MTLS"), ca, str(self.directory / "client.pem"))
        else:
            made = Case(login, self.servers("LOGIN"), ca, mechanism=login, token=token())
        return attrs.evolve(made, **fields)

    @property
    def admin(self) -> Case:
        """The login of the super user."""
        return self.case("PLAIN", user=ADMIN, password=ADMIN_PASSWORD)

    def refused(self, name: str) -> Case:
        """The case of ``REFUSALS`` with this name."""
        fields: dict[str, dict[str, str]] = {
            "wrong password": {"password": "wrong"},
            "wrong authority": {"ca": str(self.directory / "other.pem")},
            "expired certificate": {"servers": self.servers("EXPIRED")},
            "closed topic": {"topic": "closed"},
            "closed group": {"group": "closed"},
        }
        return self.case("SCRAM-SHA-512", name=name, **fields[name])

    def cases(self, client: str, *left_out: str) -> list[Case]:
        """All of them for a client, with a group of its own each."""
        wanted = [self.case(login) for login in LOGINS]
        wanted += [
            self.case(login, name=f"{login}, closed topic", topic="closed")
            for login in LOGINS
            if login != "SCRAM-SHA-512"
        ]
        wanted += [self.refused(name) for name in REFUSALS]
        return [
            attrs.evolve(each, group=f"{each.group}-{client}-{each.name}".replace(" ", "-"))
            for each in wanted
            if not any(name in each.name for name in left_out)
        ]


def token() -> str:
    return signed(claims_at(time.time_ns() // 1_000_000), key_named("a"))


def write_files(directory: Path) -> None:
    """The certificates of brokers and clients, and the keys of who signs tokens."""
    now = datetime.now(UTC)
    then = now - 2 * DAYS_BEHIND
    authority = CertificateAuthority.create("authority", then, days=30)
    (directory / "ca.pem").write_bytes(authority.trusted)
    (directory / "other.pem").write_bytes(CertificateAuthority.create("other", now).trusted)
    hosts = ["127.0.0.1"]
    write_private_file(directory / "broker.pem", authority.issue_server("broker", hosts, now).pem)
    write_private_file(directory / "expired.pem", authority.issue_server("broker", hosts, then, days=15).pem)
    write_private_file(directory / "client.pem", authority.issue_client(USER, now).pem)
    (directory / "keys.json").write_bytes(key_set(key_named("a")))


@contextmanager
def secured_broker(directory: Path) -> Iterator[SecuredBroker]:
    write_files(directory)
    settings: dict[str, Any] = {
        **SETTINGS,
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.keystore.location": str(directory / "broker.pem"),
        "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
        "listener.name.login.plain.sasl.jaas.config": JAAS,
        "listener.name.expired.plain.sasl.jaas.config": JAAS,
    }
    with BrokerThread(**settings) as broker:
        show_expired_certificate(broker.broker, directory)
        ports = {each.listener_name: each.port for each in broker.broker.bound_endpoints}
        secured = SecuredBroker(ports, directory)
        prepare(secured.admin)
        yield secured


def show_expired_certificate(broker: Broker, directory: Path) -> None:
    """Let the listener ``EXPIRED`` be as if it had run since before the end of its certificate: none starts after."""
    factory = broker._tls["EXPIRED"]
    old = attrs.evolve(factory.config, ssl_keystore_location=str(directory / "expired.pem"))
    factory.context = server_context(old, datetime.now(UTC) - DAYS_BEHIND)


def add_entries(client: AdminClient, entries: Sequence[AclBinding]) -> None:
    """Have access control entries created."""
    for created in client.create_acls(list(entries)).values():
        within(created.result, SECONDS)


def prepare(admin: Case) -> None:
    """Create topics with a record each, the user of SCRAM, and its rights."""
    settings: dict[str, Any] = {**admin.librdkafka}
    client = AdminClient(settings)
    for created in client.create_topics([NewTopic(name, 1, 1) for name in ("open", "closed")]).values():
        within(created.result, SECONDS)
    scram = [ScramCredentialInfo(each, 4096) for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)]
    users = [UserScramCredentialUpsertion(USER, each, PASSWORD.encode()) for each in scram]
    for each in users:
        for changed in client.alter_user_scram_credentials([each]).values():
            within(changed.result, SECONDS)
    rights = [
        AclBinding(
            type_, "open", ResourcePatternType.PREFIXED, f"User:{user}", "*", AclOperation.ALL, AclPermissionType.ALLOW
        )
        for type_ in (ResourceType.TOPIC, ResourceType.GROUP)
        for user in (USER, "ANONYMOUS")
    ]
    add_entries(client, rights)
    producer = Producer(settings)
    for topic in ("open", "closed"):
        producer.produce(topic, b"hello")
    assert flushed(producer, SECONDS)


def as_json(cases: list[Case]) -> str:
    return json.dumps([attrs.asdict(each) for each in cases])
