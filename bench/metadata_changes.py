"""What a change of one partition's replicas in sync costs the event loop, by the partitions of its topic.

The parts of a broker but its network, opened on an empty directory; the record is published, and not appended, so that
no disk is in it. CPU of the loop's thread, the least of some changes.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import trio

from bench.outcome import Options, Outcome
from bench.subject import scratch
from kafka_wire.stored.metadata import PartitionChangeRecord
from trio_broker.bootstrap import open_services
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.replication_control import NewPartitions, NewTopic
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.runtime.real import real_runtime

TOPIC_PARTITIONS = (10, 2_000, 10_000)
CREATED_AT_ONCE = 2_000
CHANGES = 30


def metadata_changes(options: Options) -> Outcome:
    """Milliseconds a change."""
    outcome = Outcome("metadata-changes")
    table = outcome.table("One changed ISR: CPU of the event loop", "partitions of the topic", "ms")
    for count in TOPIC_PARTITIONS:
        partitions = max(2, options.volume(count))
        with scratch(options.directory) as directory:
            seconds = trio.run(partial(seconds_of_a_change, directory / "data", partitions))
        table.add(partitions, seconds * 1e3)
        outcome.measures[f"metadata-changes-{count}"] = seconds * 1e3
    return outcome


async def seconds_of_a_change(directory: Path, partitions: int) -> float:
    config = BrokerConfig({"log.dirs": str(directory), "log.durability": "page-cache"})
    async with open_services(config, real_runtime(), {}) as services:
        controller = services.controller
        assert isinstance(controller, Controller)
        await controller.create_topics([NewTopic(name="wide", num_partitions=1)])
        for count in (*range(CREATED_AT_ONCE, partitions, CREATED_AT_ONCE), partitions):
            await controller.create_partitions([NewPartitions(name="wide", count=count)])
        assert len(controller.image.topics["wide"].partitions) == partitions
        return min([await seconds_to_publish(controller, number % partitions) for number in range(CHANGES)])


async def seconds_to_publish(controller: Controller, partition: int) -> float:
    image = controller.loader.image
    topic = image.topics["wide"]
    change = PartitionChangeRecord(partition_id=partition, topic_id=topic.topic_id, isr=[controller.node_id])
    began = time.thread_time()
    delta = MetadataDelta(image)
    delta.replay(change)
    await controller.loader.publisher.publish(delta, delta.apply(offset=image.offset + 1, epoch=image.epoch))
    return time.thread_time() - began
