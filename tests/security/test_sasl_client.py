"""Our own clients log in: the blocking one, the command line, and brokers at each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.sasl.mechanisms import SaslCredentials
from kafka_wire.schema import default_instance
from trio_broker.cli import main
from trio_broker.client.address import parse_addresses
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import ClientError
from trio_broker.client.security import ClientSecurity, parse_security
from trio_broker.testing.broker_thread import BrokerThread
from trio_broker.testing.cluster_thread import ClusterThread

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = 'user_alice="alice-secret" user_broker="broker-secret"'
SETTINGS: dict[str, Any] = {
    "listeners": "CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": f'{MODULE} username="broker" password="broker-secret" {USERS};',
    "connection.failed.authentication.delay.ms": "1",
}
ALICE = SaslCredentials("PLAIN", "alice", "alice-secret")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with BrokerThread(**SETTINGS) as broker:
        yield broker.bootstrap_servers


def opened(servers: str, sasl: SaslCredentials | None) -> BrokerConnection:
    addresses = parse_addresses(servers)
    return BrokerConnection.open(
        addresses[0], ConnectionSettings(addresses, "test", ClientSecurity(sasl=sasl)), Deadline(10)
    )


def test_a_client_logs_in_and_asks(servers):
    connection = opened(servers, ALICE)
    assert connection.ask(default_instance(MetadataRequest), Deadline(10)).brokers
    connection.close()


@pytest.mark.parametrize(
    ("sasl", "reason"),
    [
        (SaslCredentials("PLAIN", "alice", "x"), "SASL_AUTHENTICATION_FAILED.*Invalid username or password"),
        (SaslCredentials("SCRAM-SHA-256", "alice", "x"), "UNSUPPORTED_SASL_MECHANISM.*none of its mechanisms, PLAIN"),
    ],
)
def test_a_client_that_is_refused_says_why(servers, sasl, reason):
    with pytest.raises(ClientError, match=reason):
        opened(servers, sasl)


def test_the_command_line_logs_in_by_a_client_s_properties(servers, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} username="alice" password="alice-secret";\n'
    )
    listed = CliRunner().invoke(main, ["topics", "list", "-b", servers, "--command-config", str(file)])
    assert (listed.exit_code, "error" in listed.output.lower()) == (0, False)
    refused = CliRunner().invoke(main, ["topics", "list", "-b", servers, "--command-timeout", "2"])
    assert refused.exit_code == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism: GSSAPI is none of"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config: it must be"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f"{MODULE} password=hunter2;",
            },
            "a username and a password",
        ),
    ],
)
def test_properties_nobody_can_log_in_by_are_refused_without_their_secrets(settings, reason):
    with pytest.raises(ValueError, match=reason) as refused:
        parse_security(settings)
    assert "hunter2" not in str(refused.value)
    assert parse_security({}) == ClientSecurity()


def test_brokers_of_a_cluster_log_in_at_each_other(tmp_path: Path):
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} username="alice" password="alice-secret";\n'
    )
    # Logins that end while it runs, so that connections between the brokers are replaced.
    with ClusterThread(
        3, connections_max_reauth_ms=2000, **{k.replace(".", "_"): v for k, v in SETTINGS.items()}
    ) as cluster:
        login = ["-b", cluster.bootstrap_servers, "--command-config", str(file)]
        created = CliRunner().invoke(
            main, ["topics", "create", "orders", "--partitions", "3", "--replication-factor", "3", *login]
        )
        assert created.exit_code == 0, created.output
        produced = CliRunner().invoke(main, ["produce", "orders", *login], input="a\nb\nc\n")
        assert produced.exit_code == 0, produced.output
        principals = {
            str(connection.principal)
            for node_id in cluster.running
            for connection in cluster.broker(node_id).server.connections()
        }
        assert "User:broker" in principals
