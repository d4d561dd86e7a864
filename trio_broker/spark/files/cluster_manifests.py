"""Manifests of a cluster's topics: of each partition from a broker that has it, and whose directory is seen here.

That is the leader, or another replica where the leader's directory is not among those that the readers see. A replica's
manifest counts once it has all that the leader shows: below the high watermark all replicas have the same records, but
a follower learns of it a moment later. So a partition is read once, from whichever broker.

While a broker is lost and others take over what it led, its partitions are asked for again, until
``kafka.request.timeout.ms`` are over. A cluster of one broker has no other.

Source: docs/decisions/0104-files-of-a-cluster.md; docs/formats/segment-manifest.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import attrs

from kafka_wire.error_codes import ErrorCode
from trio_broker.client.deadline import Deadline, attempts
from trio_broker.client.errors import ClientError, Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.offsets import find_ranges
from trio_broker.client.topics import PartitionDescription, TopicDescription, find_topics
from trio_broker.common.log_range import LogRange
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import SourceUnavailable
from trio_broker.spark.files.admin_address import admin_url_of
from trio_broker.spark.files.manifest import (
    DEFAULT_TIMEOUT_SECONDS,
    BrokerManifests,
    ManifestSource,
    NoSuchTopic,
    PartitionLog,
    TopicLogFiles,
)
from trio_broker.spark.files.segment_files import properties_in
from trio_broker.spark.options.kafka_settings import KafkaSettings
from trio_broker.spark.wire.cluster import id_text


@attrs.frozen
class ClusterManifests:
    """A ``ManifestSource``: the brokers of a cluster, whose data directories readers see at ``paths``.

    ``admin_urls`` are those of their admin apps in any order; without, each broker says where its own listens.
    ``token`` is a viewer's, for apps with a login; by HTTPS the cluster's user will do. Picklable; every call connects
    anew.
    """

    kafka: KafkaSettings
    admin_urls: tuple[str, ...] = ()
    token: str | None = attrs.field(default=None, repr=False)
    paths: tuple[str, ...] = ()

    def for_workers(self) -> ManifestSource:
        return self

    def topic_manifest(self, topic: str, ends: Mapping[int, int], /) -> TopicLogFiles:
        with KafkaClient(self.kafka.connection, Deadline(self.kafka.request_timeout_ms / 1000)) as client:
            try:
                return _Search(self, client, topic, ends).run()
            except ClientError as error:
                where = ", ".join(map(str, self.kafka.bootstrap_servers))
                raise SourceUnavailable(f"kafka.bootstrap.servers {where}: {error}") from None

    def brokers_seen(self) -> frozenset[int]:
        """Return the ids of the brokers whose directories are seen here; none where that is not known."""
        found = map(properties_in, map(Path, self.paths))
        return frozenset(each.node_id for each in found if each is not None)


@attrs.define
class _Search:
    """The search for the manifests of one topic: what was found, and for the other partitions why not, by number.

    ``short_logs`` end before ``ends``: they were cut, or come from a leader of before that has not noticed.
    """

    manifests: ClusterManifests
    client: KafkaClient
    topic: str
    ends: Mapping[int, int]
    logs: dict[int, PartitionLog] = attrs.field(factory=dict)
    short_logs: dict[int, PartitionLog] = attrs.field(factory=dict)
    failures: dict[int, str] = attrs.field(factory=dict)

    def run(self) -> TopicLogFiles:
        """Return the files of the partitions in ``ends``.

        Raises:
            NoSuchTopic: there is no such topic, or not all of the partitions.
            OptionError: a broker does not say where its admin app is.
            ClientError: the cluster does not answer.
        """
        for _ in attempts(self.client.deadline):
            topic = self._described()
            by_number = {each.index: each for each in topic.partitions}
            if unknown := self.ends.keys() - by_number.keys():
                raise NoSuchTopic(f"topic {self.topic!r} has no partition {min(unknown)}")
            missing = sorted(self.ends.keys() - self.logs.keys())
            self._ask_about([by_number[number] for number in missing], id_text(topic.topic_id))
            if not self.failures or not self.client.may_replace:
                break
            self.client.forget()
        cluster_id = self.client.brokers().cluster_id or ""
        logs = self.short_logs | self.logs
        failures = {number: reason for number, reason in self.failures.items() if number not in logs}
        return TopicLogFiles(self.topic, id_text(topic.topic_id), cluster_id, logs, failures)

    def _described(self) -> TopicDescription:
        found = find_topics(self.client, [self.topic])[self.topic]
        if isinstance(found, TopicDescription):
            return found
        if found.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NoSuchTopic(str(found))
        raise found

    def _ask_about(self, missing: Collection[PartitionDescription], topic_id: str) -> None:
        """Ask for these partitions: their leaders first, then their other brokers in turn, each for all it may have."""
        seen = self.manifests.brokers_seen()
        shown = self._shown(each.index for each in missing)
        waiting = {each.index: _replicas(each, seen) for each in missing if each.index in shown}
        no_directory = "no directory of a broker that has it is among 'path'"
        self.failures |= {number: no_directory for number, brokers in waiting.items() if not brokers}
        while asked := _next_brokers({number: waiting[number] for number in waiting.keys() - self.logs.keys()}):
            for node_id, numbers in asked.items():
                self._ask(node_id, topic_id, {number: shown[number] for number in numbers})

    def _shown(self, numbers: Iterable[int]) -> dict[int, LogRange]:
        """Return what the leader of each partition shows to readers."""
        shown = {}
        partitions = [TopicPartition(self.topic, each) for each in numbers]
        for partition, found in find_ranges(self.client, partitions).items():
            if isinstance(found, Refused):
                self.failures[partition.partition] = str(found)
            else:
                shown[partition.partition] = found
        return shown

    def _ask(self, node_id: int, topic_id: str, shown: Mapping[int, LogRange]) -> None:
        """Take the logs of a broker that have all that is ``shown``, and note what is wrong with the others."""
        try:
            found = self._manifest_of(node_id, shown)
        except (ClientError, NoSuchTopic, SourceUnavailable) as error:
            self.failures |= dict.fromkeys(shown, f"broker {node_id}: {error}")
            return
        for number, wanted in shown.items():
            log = found.logs.get(number)
            if log is None:
                self.failures[number] = f"broker {node_id}: {found.failures[number]}"
            elif log.topic_id == topic_id and log.high_watermark >= wanted.latest:
                # A follower learns of deleted records a moment later than the leader, which deletes at any moment.
                log = attrs.evolve(log, log_start_offset=max(log.log_start_offset, wanted.earliest))
                if log.high_watermark >= self.ends[number]:
                    self.logs[number] = log
                    self.failures.pop(number, None)
                else:
                    self.short_logs[number] = log
                    self.failures[number] = f"broker {node_id} has offsets up to {log.high_watermark} alone"
            else:
                self.failures[number] = (
                    f"broker {node_id} has topic {log.topic_id} up to offset {log.high_watermark}, and the leader"
                    f" topic {topic_id} up to {wanted.latest}"
                )

    def _manifest_of(self, node_id: int, numbers: Collection[int]) -> TopicLogFiles:
        with self.client.repeatable_request():
            cluster_id = self.client.brokers().cluster_id
            urls = self.manifests.admin_urls or (admin_url_of(self.client, node_id),)
        problem: NoSuchTopic | SourceUnavailable | None = None
        for url in urls:
            seconds = min(DEFAULT_TIMEOUT_SECONDS, self.client.deadline.remaining_seconds)
            source = BrokerManifests(
                url, node_id, cluster_id, max(seconds, 1.0), self.manifests.token, self.manifests.kafka.security
            )
            try:
                return source.topic_manifest(self.topic, numbers)
            # Which of several addresses is the broker's shows when it answers.
            except (NoSuchTopic, SourceUnavailable) as error:
                problem = problem or error
        assert problem is not None, "there is an address"
        raise problem


def _replicas(partition: PartitionDescription, seen: Collection[int]) -> list[int]:
    """Return the brokers that have a partition, of those ``seen`` if any are: the leader, those in sync, the others."""
    found = dict.fromkeys((partition.leader_id, *partition.in_sync_replicas, *partition.replicas))
    return [node_id for node_id in found if node_id >= 0 and (not seen or node_id in seen)]


def _next_brokers(waiting: Mapping[int, list[int]]) -> dict[int, list[int]]:
    """Take the first broker of each partition away, and return the partitions of each of these brokers."""
    asked: dict[int, list[int]] = defaultdict(list)
    for number, brokers in sorted(waiting.items()):
        if brokers:
            asked[brokers.pop(0)].append(number)
    return asked
