"""A real Kafka as a process: the broker that ours is compared with.

One node that is broker and controller at once (KRaft), on loopback, in a directory of its own, with the least memory it
runs in. It comes from the jars of ``tests/compat/java/pom.xml``; where they or Java are missing, the test is skipped.

The process ends when its standard input does, so it cannot outlive the test run even if that is killed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType

import attrs

from tests.java_programs import Java, compiled_java, locked
from tests.waits import within

HEAP = "-Xmx256m"
"""An idle Kafka with a few topics needs about 100 MB."""

START_SECONDS = 120.0
"""It takes about five on a machine that is otherwise idle."""

STOP_SECONDS = 60.0
"""A clean stop writes the archive of its classes, once, which takes twenty."""

HOST = "127.0.0.1"
NODE_ID = 1

STARTED = "started"
"""What RunKafka.java prints when the broker answers."""


class KafkaDidNotStart(Exception):
    """The process ended, or stayed silent, before it answered. The message holds what it printed."""


@attrs.define
class KafkaProcess:
    """One Kafka. Use it as a context manager; ``overrides`` are settings under Kafka's names.

    With ``standalone`` its only voter is in the metadata, as Kafka's quick start has it, and not in the settings.
    """

    directory: Path
    overrides: Mapping[str, str] = attrs.field(factory=dict)
    java_options: Sequence[str] | None = None
    """Of its JVM, if they are not those of the tests."""
    standalone: bool = False
    cluster_id: str = ""
    """That of the nodes that it joins; a new one if it is empty."""
    archive_at_exit: Sequence[str] = ()
    """The option to keep the classes that it has loaded when it is stopped cleanly."""
    bootstrap_servers: str = ""
    output: list[str] = attrs.field(factory=list)
    _process: subprocess.Popen[str] | None = None
    _reader: threading.Thread | None = None
    _said_something_final: threading.Event = attrs.field(factory=threading.Event)

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.rpartition(":")[2])

    @property
    def pid(self) -> int:
        assert self._process is not None, "Kafka was not started"
        return self._process.pid

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    def settings(self, port: int, controller_port: int) -> dict[str, str]:
        """Every setting that the process is given."""
        controller = f"{HOST}:{controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": str(NODE_ID),
            **(
                {"controller.quorum.bootstrap.servers": controller}
                if self.standalone
                else {"controller.quorum.voters": f"{NODE_ID}@{controller}"}
            ),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{controller}",
            "log.dirs": str(self.data_directory),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **self.overrides,
        }

    def start(self) -> KafkaProcess:
        """Format the directory unless that was done before, start the process, and wait until it answers.

        Raises:
            KafkaDidNotStart: it ended first, or took longer than ``START_SECONDS``.
        """
        java = compiled_java()
        if not self.archive_at_exit:
            archive_classes(java)
        self.directory.mkdir(parents=True, exist_ok=True)
        port, controller_port = free_ports(2)
        properties = self.directory / "server.properties"
        settings = self.settings(port, controller_port)
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._said_something_final.clear()
        self._process = subprocess.Popen(
            [
                *("java", *(self.java_options or (*java.quick_start, HEAP)), *self.archive_at_exit),
                *("-cp", java.class_path, "RunKafka", str(properties), *filter(None, [self.cluster_id])),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Those of a Spark session in this process name an archive of Spark's classes.
            env={name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"},
        )
        self._reader = threading.Thread(target=self._read_output, name="kafka output", daemon=True)
        self._reader.start()
        if not within(self._said_something_final.wait, START_SECONDS) or STARTED not in self.output:
            self.stop()
            raise KafkaDidNotStart("\n".join(self.output))
        self.bootstrap_servers = f"{HOST}:{port}"
        return self

    def _read_output(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output.append(line.rstrip("\n"))
            if self.output[-1] == STARTED:
                self._said_something_final.set()
        self._said_something_final.set()

    def stop(self, *, clean: bool = False) -> int:
        """End the process and return its exit code: as a kill would, or with ``clean`` as an operator does."""
        process, reader = self._process, self._reader
        assert process is not None, "Kafka was not started"
        assert reader is not None
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdin.closed:
            return process.wait()
        if clean:
            process.stdin.write("\n")
        process.stdin.close()
        try:
            code = within(process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        reader.join()
        process.stdout.close()
        return code

    def __enter__(self) -> KafkaProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


@cache
def archive_classes(java: Java) -> None:
    """Let a Kafka keep its classes in an archive, unless one has done so before: a third of a start is to load them.

    All JVMs since map that, those of tools and clients too (Java's class data sharing, as ``tests/spark`` has it).
    """
    folder = java.archive.parent
    with locked(folder / "lock of the archive"), tempfile.TemporaryDirectory(dir=folder) as directory:
        if not java.archive.exists():
            made = Path(directory, java.archive.name)
            kafka = KafkaProcess(Path(directory), archive_at_exit=[f"-XX:ArchiveClassesAtExit={made}"]).start()
            if kafka.stop(clean=True) == 0:
                made.rename(java.archive)


def free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens; unlike ours, Kafka must receive its controller's beforehand."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
