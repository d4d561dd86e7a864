"""How clients reach a broker of a test that has TLS or a login: its settings, and those of clients of each kind.

The certificates are of an authority that is made for the broker, and are valid for a day.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs

from kafka_wire.sasl.scram import ScramMechanism
from trio_broker.cluster.scram_control import ScramUpsertion
from trio_broker.common.security_protocol import SASL_PROTOCOLS, TLS_PROTOCOLS, SecurityProtocol
from trio_broker.security.certificate_authority import CertificateAuthority
from trio_broker.security.private_files import write_private_file

USER: Final = "alice"
"""Who clients are: by SCRAM, or in their certificate."""

PASSWORD: Final = "alice-secret"

MECHANISM: Final = ScramMechanism.SHA_512
ITERATIONS: Final = 4096
SALT: Final = b"of a test"

HOSTS: Final = ("127.0.0.1", "localhost")

PROTOCOLS: Final = {
    None: SecurityProtocol.PLAINTEXT,
    "tls": SecurityProtocol.SSL,
    "mtls": SecurityProtocol.SSL,
    "scram": SecurityProtocol.SASL_PLAINTEXT,
    "scram+tls": SecurityProtocol.SASL_SSL,
}
"""By what a test asks for: TLS, TLS with certificates of clients, a login by SCRAM, or both."""

MUTUAL: Final = "mtls"
SCRAM: Final = frozenset({"scram", "scram+tls"})


@attrs.frozen
class ClientSettings:
    """``directory`` has the certificates: ``ca.pem``, ``broker.pem`` and, for clients, ``client.pem``."""

    security: str | None
    bootstrap_servers: str
    directory: Path

    @property
    def java(self) -> dict[str, str]:
        """The properties of a client of Kafka's, and of the commands of this package."""
        login = (
            f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
        )
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self._protocol.name,
            **self._tls({"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca_file}),
            **self._mutual({"ssl.keystore.type": "PEM", "ssl.keystore.location": self.client_file}),
            **self._login({"sasl.mechanism": MECHANISM.value, "sasl.jaas.config": login}),
        }

    @property
    def librdkafka(self) -> dict[str, str]:
        """The settings of confluent-kafka and others on librdkafka."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self._protocol.name,
            **self._tls({"ssl.ca.location": self.ca_file}),
            **self._mutual({"ssl.certificate.location": self.client_file, "ssl.key.location": self.client_file}),
            **self._login(
                {"sasl.mechanism": MECHANISM.value, "sasl.username": USER, "sasl.password": PASSWORD},
            ),
        }

    @property
    def kafka_python(self) -> dict[str, str]:
        """The keyword arguments of kafka-python's clients."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self._protocol.name,
            **self._tls({"ssl_cafile": self.ca_file}),
            **self._mutual({"ssl_certfile": self.client_file, "ssl_keyfile": self.client_file}),
            **self._login(
                {
                    "sasl_mechanism": MECHANISM.value,
                    "sasl_plain_username": USER,
                    "sasl_plain_password": PASSWORD,
                }
            ),
        }

    @property
    def ca_file(self) -> str:
        return str(self.directory / "ca.pem")

    @property
    def client_file(self) -> str:
        return str(self.directory / "client.pem")

    @property
    def _protocol(self) -> SecurityProtocol:
        return PROTOCOLS[self.security]

    def _tls(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        return settings if self._protocol in TLS_PROTOCOLS else {}

    def _mutual(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        return settings if self.security == MUTUAL else {}

    def _login(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        return settings if self._protocol in SASL_PROTOCOLS else {}


def broker_settings(security: str, directory: Path) -> dict[str, str]:
    """Return the settings of a broker, whose certificates are written to ``directory``.

    Raises:
        ValueError: there is no such ``security``.
    """
    if security not in PROTOCOLS:
        raise ValueError(f"security={security!r} is none of {', '.join(filter(None, PROTOCOLS))}")
    protocol = PROTOCOLS[security]
    settings = {"listeners": f"{protocol.name}://127.0.0.1:0"}
    if protocol in TLS_PROTOCOLS:
        write_certificates(directory)
        settings["ssl.keystore.location"] = str(directory / "broker.pem")
    if security == MUTUAL:
        settings |= {"ssl.client.auth": "required", "ssl.truststore.location": str(directory / "ca.pem")}
    if protocol in SASL_PROTOCOLS:
        settings["sasl.enabled.mechanisms"] = MECHANISM.value
    return settings


def write_certificates(directory: Path) -> None:
    now = datetime.now(UTC)
    authority = CertificateAuthority.create("test", now, days=1)
    (directory / "ca.pem").write_bytes(authority.trusted)
    write_private_file(directory / "broker.pem", authority.issue_server("broker", HOSTS, now, days=1).pem)
    write_private_file(directory / "client.pem", authority.issue_client(USER, now, days=1).pem)


def user_of_scram() -> ScramUpsertion:
    """The user as the metadata has it."""
    salted = MECHANISM.salted_password(PASSWORD, SALT, ITERATIONS)
    return ScramUpsertion(USER, MECHANISM.number, ITERATIONS, SALT, salted)
