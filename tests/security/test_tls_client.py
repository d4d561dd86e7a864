"""Our own client speaks TLS, and says in one line why where it cannot."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.schema import default_instance
from trio_broker.cli import main
from trio_broker.client.address import Address
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import ClientError
from trio_broker.client.security import SecurityKeyError, parse_security
from trio_broker.security.certificate_authority import CertificateAuthority
from trio_broker.security.private_files import write_private_file
from trio_broker.testing.broker_thread import BrokerThread

NOW = datetime.now(UTC)
CA = CertificateAuthority.create("authority", NOW)
CLIENT = CA.issue_client("alice", NOW)
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@attrs.frozen
class Listeners:
    """The ports of a broker's listeners, by name, and files."""

    ports: dict[str, int]
    directory: Path

    def ask(self, listener: str, host: str = "localhost", **keys: str) -> int:
        """Ask for Metadata by a client with these keys, and return how many brokers there are."""
        properties = {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self.directory / "ca.pem"),
            **{name.replace("_", "."): value for name, value in keys.items()},
        }
        address = Address(host, self.ports[listener])
        settings = ConnectionSettings((address,), "test", parse_security(properties))
        connection = BrokerConnection.open(address, settings, Deadline(10))
        try:
            return len(connection.ask(default_instance(MetadataRequest), Deadline(10)).brokers)
        finally:
            connection.close()

    def refusal(self, listener: str, host: str = "localhost", **keys: str) -> str:
        with pytest.raises(ClientError) as refused:
            self.ask(listener, host, **keys)
        assert "\n" not in str(refused.value)
        return str(refused.value)


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    directory = tmp_path_factory.mktemp("tls")
    (directory / "ca.pem").write_bytes(CA.trusted)
    write_private_file(directory / "broker.pem", CA.issue_server("broker", ["localhost"], NOW).pem)
    write_private_file(directory / "alice.pem", CLIENT.pem)
    settings: dict[str, Any] = {
        "listeners": "PLAIN://127.0.0.1:0,ADDRESS://127.0.0.1:0,TLS://localhost:0,MUTUAL://localhost:0,LOGIN://localhost:0",
        "listener.security.protocol.map": "PLAIN:PLAINTEXT,ADDRESS:SSL,TLS:SSL,MUTUAL:SSL,LOGIN:SASL_SSL",
        "inter.broker.listener.name": "PLAIN",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.location": str(directory / "ca.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{MODULE} user_alice="secret";',
    }
    with BrokerThread(**settings) as broker:
        ports = {each.listener_name: each.port for each in broker.broker.bound_endpoints}
        yield Listeners(ports, directory)


def test_a_client_shows_what_it_is_asked_for_and_trusts_whom_it_is_given(listeners):
    assert listeners.ask("TLS") == 1
    assert listeners.ask("MUTUAL", ssl_keystore_location=str(listeners.directory / "alice.pem")) == 1
    inline = {"ssl_keystore_key": CLIENT.key.decode(), "ssl_keystore_certificate_chain": CLIENT.chain.decode()}
    assert listeners.ask("MUTUAL", **inline, ssl_enabled_protocols="TLSv1.2") == 1
    jaas = f'{MODULE} username="alice" password="secret";'
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_jaas_config": jaas}
    assert listeners.ask("LOGIN", **login) == 1
    # The certificate is for the name.
    assert listeners.ask("TLS", "127.0.0.1", ssl_endpoint_identification_algorithm="") == 1


def test_stores_of_pkcs12_are_read(listeners, tmp_path):
    certificate, key = x509.load_pem_x509_certificate(CLIENT.chain), load_pem_private_key(CLIENT.key, None)
    sealed = BestAvailableEncryption(b"sesame")
    write_private_file(
        tmp_path / "alice.p12",
        pkcs12.serialize_key_and_certificates(b"alice", key, certificate, [CA.certificate], sealed),  # type: ignore[arg-type]
    )
    (tmp_path / "ca.p12").write_bytes(
        pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(CA.certificate, b"ca")], sealed)
    )
    stores = {
        "ssl_keystore_location": str(tmp_path / "alice.p12"),
        "ssl_keystore_type": "PKCS12",
        "ssl_truststore_location": str(tmp_path / "ca.p12"),
        "ssl_truststore_type": "PKCS12",
    }
    assert listeners.ask("MUTUAL", **stores, ssl_keystore_password="sesame", ssl_truststore_password="sesame") == 1
    refused = listeners.refusal("MUTUAL", **stores, ssl_truststore_password="abracadabra")
    assert "no PKCS12 that its password opens" in refused
    assert "abracadabra" not in refused


def test_what_is_wrong_is_said_in_one_line(listeners, tmp_path):
    other = CertificateAuthority.create("other", NOW)
    (tmp_path / "other.pem").write_bytes(other.trusted)
    untrusted = listeners.refusal("TLS", ssl_truststore_location=str(tmp_path / "other.pem"))
    assert "nobody in the truststore has signed its certificate" in untrusted
    # The system's authorities do not know it either.
    assert "nobody in the truststore" in listeners.refusal("TLS", ssl_truststore_location="")
    assert "its certificate is for other names: IP address mismatch" in listeners.refusal("TLS", "127.0.0.1")
    assert "ssl.keystore.location" in listeners.refusal("MUTUAL")
    assert "ssl.keystore.location" in listeners.refusal("MUTUAL", ssl_enabled_protocols="TLSv1.2")
    write_private_file(tmp_path / "mallory.pem", other.issue_client("mallory", NOW).pem)
    mistrusted = listeners.refusal("MUTUAL", ssl_keystore_location=str(tmp_path / "mallory.pem"))
    assert "does not trust the certificate of ssl.keystore.location" in mistrusted
    assert "a listener without TLS?" in listeners.refusal("PLAIN")
    assert "a listener that wants TLS" in listeners.refusal("TLS", security_protocol="PLAINTEXT")
    assert "ssl.truststore.location: /none: No such file" in listeners.refusal("TLS", ssl_truststore_location="/none")


def test_an_expired_certificate_of_the_broker_is_refused(listeners, tmp_path):
    # A broker of ours does not start with one, and goes on with one that expires while it runs.
    write_private_file(tmp_path / "old.pem", CA.issue_server("broker", ["localhost"], NOW - timedelta(9), days=1).pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "old.pem")
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: context.wrap_socket(server.accept()[0], server_side=True))
        old = attrs.evolve(listeners, ports={"OLD": server.getsockname()[1]})
        assert "its certificate is refused: certificate has expired" in old.refusal("OLD")


def test_a_renewed_truststore_counts_for_the_next_connection(listeners, tmp_path):
    path = tmp_path / "ca.pem"
    path.write_bytes(CertificateAuthority.create("other", NOW).trusted)
    assert "nobody in the truststore" in listeners.refusal("TLS", ssl_truststore_location=str(path))
    write_private_file(path, CA.trusted)
    assert listeners.ask("TLS", ssl_truststore_location=str(path)) == 1


def test_the_command_line_speaks_tls_by_a_client_s_properties(listeners, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SSL\nssl.truststore.location={listeners.directory / 'ca.pem'}\n")
    options = ["-b", f"localhost:{listeners.ports['TLS']}", "--command-config", str(file)]
    written = CliRunner().invoke(main, ["produce", "orders", *options], input="a\n")
    assert written.exit_code == 0, written.output
    options[1] = f"localhost:{listeners.ports['ADDRESS']}"
    for command, text in ((["topics", "create"], ", the address that the cluster gives for it"), (["produce"], "")):
        refused = CliRunner().invoke(main, [*command, "more", *options], input="a\n")
        assert refused.exit_code == 1
        assert f"IP address mismatch, certificate is not valid for '127.0.0.1'{text}\n" in refused.output


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: 'TLS' is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (
            {"ssl.truststore.path": "x"},
            "ssl.truststore.path: this client does not have it; did you mean ssl.truststore.",
        ),
        ({"ssl.engine.factory.class": "x"}, "ssl.engine.factory.class: this client does not have it"),
        ({"security.protocol": "SSL", "ssl.keystore.type": "JKS"}, "ssl.keystore.type: 'JKS' is refused"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"}, "https, or empty"),
    ],
)
def test_what_the_client_does_not_have_is_refused(properties, reason):
    with pytest.raises(SecurityKeyError, match=reason):
        parse_security(properties)


def test_a_password_is_in_no_repr():
    given = {"security.protocol": "SSL", "ssl.key.password": "hunter2", "ssl.keystore.key": "hunter2"}
    security = parse_security({**given, "ssl.keystore.password": "hunter2", "ssl.truststore.password": "hunter2"})
    assert security.tls is not None
    assert security.tls.ssl_key_password == "hunter2"
    assert "hunter2" not in repr(security)
