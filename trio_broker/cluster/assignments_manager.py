"""Reports to the controller in which of its log directories this broker has its replicas.

One request at a time, with what has come up meanwhile. What is reported is looked up when it is sent, so a replica that
was deleted or moved in between is reported as it is then, or not at all. Until the controller has taken note, it is
tried again: a replica whose directory fails unreported would stay in the ISR, and its leader be elected nowhere else.

A broker with one directory reports nothing that the metadata have not: with that directory it fails as a whole.

Source: Kafka's AssignmentsManager; KIP-858.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from typing import Final, Protocol

import trio

from kafka_wire.errors import KafkaError
from trio_broker.cluster.directory_assignments import DirectoryAssignment
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import UNASSIGNED_DIRECTORY
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.network.errors import RequestFailed
from trio_broker.partition.replica_manager import ReplicaManager

log = logging.getLogger(__name__)

MAX_ASSIGNMENTS_PER_REQUEST: Final = 2250
"""Kafka's number: as many replicas as are moved into one directory by one round of a usual reassignment."""

RETRY_SECONDS: Final = 0.5
"""Before a request that failed is sent again: nothing else waits for it."""


class AssignReplicas(Protocol):
    """What this needs of the controller; see ``ControllerClient``."""

    async def assign_replicas(
        self, broker_id: int, broker_epoch: int, assignments: Sequence[DirectoryAssignment]
    ) -> list[KafkaError | None]: ...


class AssignmentsManager:
    """See the head of the file. ``run`` is a task of the broker."""

    def __init__(self, controller: AssignReplicas, replicas: ReplicaManager, metadata_cache: MetadataCache) -> None:
        self._controller = controller
        self._replicas = replicas
        self._metadata_cache = metadata_cache
        self._throttled_log = LogThrottle(log, replicas.clock)
        # Replicas whose directory the metadata may not have right.
        self._unchecked: dict[TopicPartition, None] = {}
        self._changed = trio.Event()

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        """Report the directories of these replicas that the metadata have not right, those that are not here aside."""
        self._unchecked.update(dict.fromkeys(partitions))
        if self._unchecked:
            self._changed.set()

    def check_one(self, partition: TopicPartition) -> None:
        """As ``check``."""
        self.check((partition,))

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            if not self._unchecked:
                self._changed = trio.Event()
                await self._changed.wait()
            checked = list(islice(self._unchecked, MAX_ASSIGNMENTS_PER_REQUEST))
            for each in checked:
                del self._unchecked[each]
            if not await self._report(checked):
                self._unchecked.update(dict.fromkeys(checked))
                await trio.sleep(RETRY_SECONDS)

    async def _report(self, partitions: Sequence[TopicPartition]) -> bool:
        """Report what is to be; return whether the controller has answered."""
        directory_ids = self._replicas.log_manager.directory_ids()
        found = (self._unreported(each, directory_ids) for each in partitions)
        assignments = [each for each in found if each is not None]
        if not assignments:
            await trio.lowlevel.checkpoint()
            return True
        node_id, broker_epoch = self._replicas.config.node.node_id, self._replicas.broker_epoch()
        try:
            results = await self._controller.assign_replicas(node_id, broker_epoch, assignments)
        except (KafkaError, OSError, RequestFailed) as error:
            text = f"the log directories of {len(assignments)} replicas are not reported yet: {error}"
            self._throttled_log.warning("unanswered", text)
            return False
        for each in filter(None, results):
            # The replica is another broker's, or nobody's, by metadata that are on their way here.
            log.info("the log directory of a replica is not noted: %s", each)
        return True

    def _unreported(
        self, topic_partition: TopicPartition, directory_ids: Mapping[PurePath, bytes]
    ) -> DirectoryAssignment | None:
        """What the metadata have to say of a replica that is here, if they do not."""
        partition = self._replicas.find(topic_partition)
        topic = self._metadata_cache.image.topics.get(topic_partition.topic)
        present = None if topic is None else topic.partitions.get(topic_partition.partition)
        if partition is None or present is None or topic is None or topic.topic_id != partition.topic_id:
            return None
        directory_id = directory_ids[partition.log.directory.parent]
        known = present.directory_of(self._replicas.config.node.node_id)
        if known == directory_id or (known == UNASSIGNED_DIRECTORY and len(directory_ids) == 1):
            return None
        return DirectoryAssignment(topic_id=topic.topic_id, index=topic_partition.partition, directory_id=directory_id)
