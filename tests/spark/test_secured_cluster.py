"""Jobs over TLS with a login: source, sink and the topics of a pipeline, and where their secrets do not show."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner

from trio_broker.cli import main
from trio_broker.security.certificate_authority import CertificateAuthority
from trio_broker.security.private_files import write_private_file
from trio_broker.testing.broker_thread import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECRET: Final = "hunter2"
Properties = dict[str, str]


@pytest.fixture(scope="module")
def properties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Properties]:
    """Those of a client of a broker with the topics ``orders`` and ``copy``, with its address."""
    now, directory = datetime.now(UTC), tmp_path_factory.mktemp("tls")
    authority = CertificateAuthority.create("authority", now)
    client = authority.issue_client("alice", now)
    (directory / "ca.pem").write_bytes(authority.trusted)
    write_private_file(directory / "broker.pem", authority.issue_server("broker", ["127.0.0.1"], now).pem)
    settings: dict[str, Any] = {
        "listeners": "LOGIN://127.0.0.1:0,PLAIN://127.0.0.1:0",
        "listener.security.protocol.map": "LOGIN:SASL_SSL,PLAIN:PLAINTEXT",
        "inter.broker.listener.name": "PLAIN",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{MODULE} user_alice="{SECRET}";',
    }
    with BrokerThread(**settings) as broker:
        broker.create_topic("orders", 2)
        broker.create_topic("copy", 2)
        yield {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(directory / "ca.pem"),
            "ssl.keystore.key": client.key.decode(),
            "ssl.keystore.certificate.chain": client.chain.decode(),
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{MODULE} username="alice" password="{SECRET}";',
        }


@pytest.mark.spark
def test_a_job_writes_and_reads_and_its_plan_has_no_secret(spark: SparkSession, properties: Properties) -> None:
    options = {f"kafka.{name}": value for name, value in properties.items()}
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("trio_broker").options(**options).option("topic", "orders").mode("append").save()
    frame = spark.read.format("trio_broker").options(**options).option("subscribe", "orders").load()
    assert frame.count() == 10
    plan = frame._jdf.queryExecution().toString()
    assert "orders" in plan or "trio_broker" in plan
    assert SECRET not in plan
    assert "PRIVATE KEY" not in plan


def test_a_pipeline_looks_for_its_topics_with_the_same_properties(properties: Properties, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("\n".join(f"{name}={value}".replace("\n", "\\n") for name, value in properties.items()))
    command = ["pipeline", "replay", "--topic", "orders", "--to-topic", "copy", "--dry-run", "--checkpoint", "none"]
    command += ["-b", properties["bootstrap.servers"]]
    done = CliRunner().invoke(main, [*command, "--command-config", str(file)])
    assert done.exit_code == 0, done.output
    # The passwords of this cluster are not sent to another one.
    other = [*command, "--to-bootstrap-server", properties["bootstrap.servers"]]
    refused = CliRunner().invoke(main, [*other, "--command-config", str(file)])
    assert refused.exit_code == 1
    assert "security.protocol=SSL or SASL_SSL" in refused.output
    done = CliRunner().invoke(main, [*other, "--command-config", str(file), "--to-command-config", str(file)])
    assert done.exit_code == 0, done.output
