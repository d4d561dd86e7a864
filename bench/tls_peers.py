"""Brokers that are reached by TLS and without it: ours, by keys of two kinds, and Kafka.

All are reached on loopback, and nobody asks for a login, so that what differs between two listeners is TLS alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import attrs
import trustme

from bench.kafka import START_SCRIPT_OPTIONS, why_no_kafka
from bench.outcome import Options, Outcome
from bench.small import PAGE_CACHE
from bench.subject import Peer, broker, scratch
from tests.compat.kafka_process import HOST, KafkaProcess, free_ports
from tests.security.tls_files import write_key_store
from trio_broker.security.certificate_authority import CertificateAuthority
from trio_broker.security.private_files import write_private_file
from trio_broker.testing.process import LISTENING, BrokerProcess

PLAIN, TLS, RSA = "PLAINTEXT", "SSL", "RSA"
"""Our listeners: without TLS, with a key of the curve P-256, and with an RSA key of 2048 bits."""


@attrs.frozen
class TlsFiles:
    """The keys of the listeners, and what clients trust of those with ``TLS``."""

    directory: Path

    @classmethod
    def written_to(cls, directory: Path) -> TlsFiles:
        files, now = cls(directory), datetime.now(UTC)
        authority = CertificateAuthority.create("bench", now)
        files.trusted.write_bytes(authority.trusted)
        write_private_file(files.key_store, authority.issue_server("broker", [HOST], now).pem)
        write_key_store(files.rsa_key_store, trustme.CA().issue_cert(HOST, key_type=trustme.KeyType.RSA))
        return files

    @property
    def trusted(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def key_store(self) -> Path:
        return self.directory / "broker.pem"

    @property
    def rsa_key_store(self) -> Path:
        return self.directory / "rsa.pem"

    @property
    def librdkafka(self) -> dict[str, str]:
        """What a client needs besides the address."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.trusted)}


@attrs.define
class TlsKafka(KafkaProcess):
    """Kafka with a listener by TLS beside the usual one."""

    files: TlsFiles = attrs.field(kw_only=True)
    tls_port: int = attrs.field(factory=lambda: free_ports(1)[0])

    def settings(self, port: int, controller_port: int) -> dict[str, str]:
        # attrs makes a new class for slots, so super() without arguments would look in the one that is gone.
        usual = KafkaProcess.settings(self, port, controller_port)
        return {
            **usual,
            "listeners": f"{usual['listeners']},SSL://{HOST}:{self.tls_port}",
            # Its default knows the controller's only while all others are without TLS.
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.files.key_store),
        }


@attrs.frozen
class TlsPeer:
    """A broker that runs, and the port of each of its listeners."""

    process: Peer
    ports: Mapping[str, int]


@contextmanager
def tls_broker(options: Options, files: TlsFiles) -> Iterator[TlsPeer]:
    """Our broker with all listeners, in the page cache."""
    settings = {
        # The last one is that of the process's own port.
        "listeners": ",".join(f"{name}://{HOST}:0" for name in (RSA, TLS, PLAIN)),
        "listener.security.protocol.map": f"{RSA}:SSL,{TLS}:SSL,{PLAIN}:PLAINTEXT",
        f"listener.name.{RSA.lower()}.ssl.keystore.location": str(files.rsa_key_store),
        f"listener.name.{TLS.lower()}.ssl.keystore.location": str(files.key_store),
    }
    with broker(options.directory, {**PAGE_CACHE, **settings}) as process:
        yield TlsPeer(process, ports_of(process))


def ports_of(process: BrokerProcess) -> dict[str, int]:
    """The ports that the broker printed at its start, by listener."""
    found = filter(None, map(LISTENING.match, process.output))
    return {each["listener"]: int(each["address"].rpartition(":")[2]) for each in found}


@contextmanager
def tls_peers(options: Options, outcome: Outcome) -> Iterator[tuple[TlsFiles, Mapping[str, TlsPeer]]]:
    """Kafka, where it is to be had, and our broker, both up at the same time."""
    with ExitStack() as stack:
        files = TlsFiles.written_to(stack.enter_context(scratch(options.directory)))
        peers = {}
        if missing := why_no_kafka():
            outcome.remarks.append(f"without Kafka: {missing}")
        else:
            directory = stack.enter_context(scratch(options.directory))
            kafka = TlsKafka(directory, java_options=START_SCRIPT_OPTIONS, files=files)
            stack.enter_context(kafka)
            peers["Kafka"] = TlsPeer(kafka, {PLAIN: kafka.port, TLS: kafka.tls_port})
        peers["trio-broker"] = stack.enter_context(tls_broker(options, files))
        yield files, peers
