"""Clusters of three brokers as processes, ours on one etcd and Apache Kafka's with one controller, in turns with each
other.

Of Kafka's nodes the first is the controller as well. Each broker has a directory of its own and the same settings; all
share the machine's cores with their client.
"""

from __future__ import annotations

import shutil
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import attrs

from bench.kafka import START_SCRIPT_OPTIONS
from bench.subject import QUIET, Peer, scratch
from bench.wire import LEADER_SECONDS, METADATA_VERSION, RETRY_SECONDS, BenchError, ask, connect
from kafka_wire.messages.describe_quorum import DescribeQuorumRequest
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.compat.kafka_process import HOST, KafkaProcess, free_ports
from tests.etcd_server import EtcdServer
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC
from trio_broker.testing.process import BrokerProcess

BROKERS = 3

REPLICATED = {"min.insync.replicas": "2", "default.replication.factor": "3", "auto.create.topics.enable": "false"}

SESSION_MS = 2000

QUORUM_VERSION = 1


def why_no_cluster() -> str | None:
    """What is missing for several brokers of ours; None when nothing is."""
    return None if shutil.which("etcd") else "there is no etcd on the PATH"


@attrs.frozen
class Cluster:
    """Brokers that run, by number, and the processes beside them that keep their metadata."""

    brokers: Mapping[int, BrokerProcess | KafkaProcess]
    beside: Sequence[int] = ()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def pids(self) -> list[int]:
        """All processes whose work is the cluster's."""
        return [*(broker.pid for broker in self.brokers.values()), *self.beside]

    @property
    def any(self) -> Peer:
        return next(iter(self.brokers.values()))

    def metadata(self, topic: str | None = None, of: int | None = None) -> MetadataResponse:
        """What a broker says of the brokers and of ``topic``."""
        asked = [] if topic is None else [MetadataRequestTopic(name=topic)]
        with connect(self.brokers[of].port if of is not None else self.any.port) as sock:
            return ask(sock, MetadataRequest(topics=asked, allow_auto_topic_creation=False), METADATA_VERSION)

    def controller(self) -> int:
        """The id of the controller, as DescribeQuorum says: Metadata names any broker."""
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
        with connect(self.any.port) as sock:
            response = ask(sock, DescribeQuorumRequest(topics=[topic]), QUORUM_VERSION)
        return response.topics[0].partitions[0].leader_id

    def leaders(self, topic: str, of: int | None = None) -> dict[int, int]:
        """The leader of each partition, -1 where there is none; nothing of a topic that is not known."""
        return {each.partition_index: each.leader_id for each in self.metadata(topic, of).topics[0].partitions}

    def wait_until_replicated(self, topic: str) -> None:
        """Return once every partition has all brokers in sync. Raises BenchError after ``LEADER_SECONDS``."""
        end = time.monotonic() + LEADER_SECONDS
        while True:
            partitions = self.metadata(topic).topics[0].partitions
            if partitions and all(len(each.isr_nodes) == len(self.brokers) for each in partitions):
                return
            if time.monotonic() > end:
                raise BenchError(f"{topic} is not in sync on all brokers")
            time.sleep(RETRY_SECONDS)


Node = TypeVar("Node", BrokerProcess, "KafkaNode")


@attrs.define
class KafkaNode(KafkaProcess):
    """One of several nodes of Kafka. The controller listens at ``controller``, in the first one."""

    node_id: int = 1
    controller: str = ""

    def settings(self, port: int, controller_port: int) -> dict[str, str]:
        is_controller = self.node_id == 1
        listeners = [f"PLAINTEXT://{HOST}:{port}", *([f"CONTROLLER://{self.controller}"] if is_controller else [])]
        return {
            **KafkaProcess.settings(self, port, controller_port),
            "node.id": str(self.node_id),
            "process.roles": "broker,controller" if is_controller else "broker",
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": ",".join(listeners),
            "offsets.topic.replication.factor": "3",
            **self.overrides,
        }


def started(stack: ExitStack, nodes: Mapping[int, Node]) -> Mapping[int, Node]:
    """Start all at the same time: one alone of Kafka's waits for a controller."""

    def start(node: Node) -> None:
        node.start()
        stack.callback(node.stop)

    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(start, nodes.values()))
    return nodes


@contextmanager
def kafka_cluster(parent: Path, overrides: Mapping[str, str]) -> Iterator[Cluster]:
    """Three brokers of Apache Kafka."""
    with scratch(parent) as directory, ExitStack() as stack:
        controller = f"{HOST}:{free_ports(1)[0]}"
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        nodes = {
            number: KafkaNode(
                *(directory / f"kafka-{number}", {**REPLICATED, **overrides}, START_SCRIPT_OPTIONS),
                cluster_id=cluster_id,
                node_id=number,
                controller=controller,
            )
            for number in range(1, BROKERS + 1)
        }
        yield Cluster(started(stack, nodes))


@contextmanager
def broker_cluster(parent: Path, overrides: Mapping[str, str], brokers: int = BROKERS) -> Iterator[Cluster]:
    """So many brokers of ours, on an etcd of their own."""
    with scratch(parent) as directory, ExitStack() as stack:
        etcd = EtcdServer(directory)
        etcd.start()
        stack.callback(etcd.kill)
        assert etcd.process is not None
        nodes = {
            number: BrokerProcess(
                directory / f"broker-{number}",
                {
                    **REPLICATED,
                    "node.id": str(number),
                    "metadata.store": f"etcd://{HOST}:{etcd.port}",
                    **overrides,
                },
                QUIET,
                has_admin=False,
            )
            for number in range(1, brokers + 1)
        }
        yield Cluster(started(stack, nodes), [etcd.process.pid])
