"""Manifests: the files of a topic's partitions, how much of them counts, and what the files do not say.

A directory alone does not say where a log begins for its readers, which of its records are below the high watermark,
how much of the last file is written, and which transactions were aborted by markers further on. A broker knows, so it
is asked over HTTP (``BrokerManifests``, for a cluster ``cluster_manifests``); without a broker ``offline`` makes
manifests from the files.

Source: docs/formats/segment-manifest.md; docs/decisions/0027-a-segment-manifest-over-http.md.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping
from http.client import HTTPException
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

import attrs

from kafka_wire.limits import MAX_OFFSET
from trio_broker.client.security import ClientSecurity
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.security.tls_failure import failure_of_server
from trio_broker.spark.errors import SourceUnavailable, SparkJobError

MANIFEST_VERSION: Final = 1

MAX_MANIFEST_BYTES: Final = 64 * 1024 * 1024
"""About a million segments; a longer response is no manifest."""

MAX_ERROR_BYTES: Final = 64 * 1024
"""The most that is read of an error response; its text is one sentence."""

DEFAULT_TIMEOUT_SECONDS: Final = 30.0
"""Kafka's ``request.timeout.ms``: the broker may be busy, and a single thread makes all its manifests."""

UNKNOWN_EPOCH: Final = -1
"""The leader epoch of a log whose newest one is not known; batches are not compared with it."""


class NoSuchTopic(SparkJobError):
    """The broker, or the directory, has no such topic or partition."""


class BadManifest(SparkJobError):
    """The response is no manifest, or contradicts itself."""


@attrs.frozen
class LogSegment:
    """One segment: its offsets, the end exclusive, and the number of bytes of its file that count.

    The file of an active segment may have grown since; that of a sealed one has exactly this size. ``inode`` is the
    file's number, None where it is not known: without a broker, or from one whose manifests do not have it.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    is_active: bool = False
    inode: int | None = None

    def is_same_file(self, later: LogSegment) -> bool:
        """Return whether ``later``, from a newer plan, is the same file, which may have been active and have grown."""
        if None in (self.inode, later.inode):
            return attrs.evolve(self, inode=None) == attrs.evolve(later, inode=None)
        if self.is_active:
            return (self.base_offset, self.inode) == (later.base_offset, later.inode)
        return self == later


@attrs.frozen
class IndexEntry:
    """The batch whose last offset is ``offset`` begins at byte ``position`` of its segment's file."""

    offset: int
    position: int


@attrs.frozen
class AbortedRange:
    """An aborted transaction: the records of ``producer_id`` from ``first_offset`` to the marker at ``last_offset``
    are void."""

    producer_id: int
    first_offset: int
    last_offset: int


@attrs.frozen
class PartitionLog:
    """The files of one partition at one moment, on the broker ``node_id``; None where that is not known.

    ``segments`` are in the order of their offsets, and each begins where the one before ends. ``active_positions`` are
    entries of the index of the active segment, which may not have a file yet. ``leader_epoch`` is the newest that a
    batch below ``high_watermark`` can have, or ``UNKNOWN_EPOCH``.
    """

    partition: TopicPartition
    topic_id: str
    log_directory: str
    directory_name: str
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    segments: tuple[LogSegment, ...]
    active_positions: tuple[IndexEntry, ...] = ()
    aborted: tuple[AbortedRange, ...] = ()
    node_id: int | None = None

    def segments_between(self, start_offset: int, end_offset: int) -> tuple[LogSegment, ...]:
        """Return the segments with offsets from ``start_offset`` up to ``end_offset``, exclusive."""
        return tuple(
            segment
            for segment in self.segments
            if segment.base_offset < end_offset and segment.next_offset > start_offset
        )

    def aborted_between(self, start_offset: int, end_offset: int) -> tuple[AbortedRange, ...]:
        """Return the aborted transactions with records in the range, by their first offsets."""
        found = [each for each in self.aborted if each.first_offset < end_offset and each.last_offset >= start_offset]
        return tuple(sorted(found, key=lambda each: each.first_offset))

    def has_same_files(self, later: PartitionLog, start_offset: int, end_offset: int) -> bool:
        """Return whether ``later``, a newer plan, has the same files for the range."""
        mine, others = (log.segments_between(start_offset, end_offset) for log in (self, later))
        return len(mine) == len(others) and all(map(LogSegment.is_same_file, mine, others))

    def without_inodes(self) -> PartitionLog:
        """Return the log with files that are known by their names and sizes alone."""
        return attrs.evolve(self, segments=tuple(attrs.evolve(each, inode=None) for each in self.segments))

    def positions_of(self, segment: LogSegment) -> tuple[IndexEntry, ...]:
        """Return the positions in ``segment`` that are known without its index file."""
        return self.active_positions if segment.is_active else ()

    def between(self, start_offset: int, end_offset: int) -> PartitionLog:
        """Return the log without what a reader of the range does not need, which makes its task smaller."""
        segments = self.segments_between(start_offset, end_offset)
        return attrs.evolve(
            self,
            segments=segments,
            active_positions=self.active_positions if segments and segments[-1].is_active else (),
            aborted=self.aborted_between(start_offset, end_offset),
        )


@attrs.frozen
class TopicLogFiles:
    """A topic's partitions that can be read, and the reasons why others cannot; both by number."""

    topic: str
    topic_id: str
    cluster_id: str
    logs: Mapping[int, PartitionLog]
    failures: Mapping[int, str] = attrs.field(factory=dict)

    def log(self, partition: int) -> PartitionLog:
        """Return the log of a partition.

        Raises:
            SourceUnavailable: it cannot be read.
            NoSuchTopic: there is no such partition.
        """
        if found := self.logs.get(partition):
            return found
        if failure := self.failures.get(partition):
            raise SourceUnavailable(f"{TopicPartition(self.topic, partition)}: {failure}")
        raise NoSuchTopic(f"topic {self.topic!r} has no partition {partition}")


class ManifestSource(Protocol):
    """Returns the files of a topic."""

    def topic_manifest(self, topic: str, ends: Mapping[int, int], /) -> TopicLogFiles:
        """Return the partitions in ``ends`` of a topic as they are now.

        ``ends`` has the offset that each had reached before. A log that ends before it is shorter than it was, and not
        just known to its broker less far.

        Raises:
            NoSuchTopic: there is no such topic, or not all of the partitions.
            SourceUnavailable: no broker answers.
            BadManifest: the response is no manifest.
        """
        ...

    def for_workers(self) -> ManifestSource | None:
        """Return the source that a task asks again when files have changed; None where they never change."""
        ...


@attrs.frozen
class BrokerManifests:
    """Manifests of broker ``broker_id``, of the partitions that it has, from the admin app at ``url``.

    A response of another cluster than ``cluster_id`` is refused, since another broker may have the address by now. None
    accepts any cluster. ``token`` is a viewer's, for a server with a login; without one the user of ``security`` logs
    in, by HTTPS alone, since a password would be read on the way. HTTPS trusts and shows what ``security`` does.
    """

    url: str
    broker_id: int
    cluster_id: str | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    token: str | None = attrs.field(default=None, repr=False)
    security: ClientSecurity = attrs.field(factory=ClientSecurity, repr=False)

    def topic_manifest(self, topic: str, partitions: Collection[int] = ()) -> TopicLogFiles:
        """Return these partitions of a topic, or all that the broker has; errors as ``ManifestSource``."""
        query = "&".join(f"partition={number}" for number in sorted(partitions))
        brokers = f"{self.url.rstrip('/')}/api/v1/brokers"
        url = f"{brokers}/{self.broker_id}/topics/{quote(topic, safe='')}/manifest" + (f"?{query}" if query else "")
        manifest = parse_manifest(self._get(url), topic)
        if self.cluster_id is not None and manifest.cluster_id != self.cluster_id:
            raise SourceUnavailable(
                f"{self._subject(url)} is answered for cluster {manifest.cluster_id}, not for {self.cluster_id}: "
                "is it another broker?"
            )
        return manifest

    def _subject(self, url: str) -> str:
        return f"option 'adminUrl': GET {url}"

    def _get(self, url: str) -> bytes:
        scheme = urlsplit(self.url).scheme
        if scheme not in ("http", "https"):
            raise SourceUnavailable(f"option 'adminUrl': {self.url!r} is not an address that begins with http://")
        try:
            request = urllib.request.Request(url, headers=self._credentials(scheme))
            context = self.security.context() if scheme == "https" else None
            with _opener(context).open(request, timeout=self.timeout_seconds) as answer:
                body: bytes = answer.read(MAX_MANIFEST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(url, error.code, error.read(MAX_ERROR_BYTES)) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(reason, ssl.SSLError):
                reason = f"no TLS: {failure_of_server(reason)}"
            raise SourceUnavailable(f"{self._subject(url)}: {reason or type(error).__name__}") from error
        if len(body) > MAX_MANIFEST_BYTES:
            raise BadManifest(f"{self._subject(url)}: the answer is longer than {MAX_MANIFEST_BYTES} bytes")
        return body

    def _credentials(self, scheme: str) -> dict[str, str]:
        """The header by which the job logs in, if it can."""
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        sasl = self.security.sasl
        # The admin page knows no delegation tokens.
        if scheme != "https" or sasl is None or sasl.is_token:
            return {}
        return {"Authorization": f"Basic {b64encode(f'{sasl.user}:{sasl.secret}'.encode()).decode()}"}

    def _refusal(self, url: str, status: int, body: bytes) -> SparkJobError:
        try:
            reason = str(json.loads(body)["detail"])
        except (ValueError, LookupError, TypeError):
            reason = "no reason is given: is this the admin address of a trio-broker?"
        kind = NoSuchTopic if status == 404 else SourceUnavailable
        return kind(f"{self._subject(url)}: HTTP status {status}: {reason}")


def _opener(context: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """HTTP without the environment's proxies and without redirects: the address means this one server."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=context),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener


# --- Parsing ---


def parse_manifest(body: bytes, topic: str) -> TopicLogFiles:
    """Return the manifest of ``topic`` in the broker's JSON.

    Raises:
        BadManifest: it is no manifest, is another topic's, or contradicts itself.
    """
    try:
        return _manifest(json.loads(body), topic)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise BadManifest(f"the manifest of topic {topic!r} cannot be read: {error}") from error


def _manifest(tree: Any, topic: str) -> TopicLogFiles:
    if tree["version"] != MANIFEST_VERSION:
        raise ValueError(f"version {tree['version']!r} is not {MANIFEST_VERSION}")
    if tree["topic"] != topic:
        raise ValueError(f"it is that of {tree['topic']!r}")
    topic_id, node_id = _text(tree, "topic_id"), _number(tree, "node_id", 0)
    logs, failures = {}, {}
    for each in tree["partitions"]:
        number = _number(each, "partition", 0)
        if number in logs or number in failures:
            raise ValueError(f"partition {number} is there twice")
        if each["log"] is None:
            failures[number] = _text(each, "error")
        else:
            logs[number] = _log(each["log"], TopicPartition(topic, number), topic_id, node_id)
    return TopicLogFiles(topic, topic_id, _text(tree, "cluster_id"), logs, failures)


def _log(tree: Any, partition: TopicPartition, topic_id: str, node_id: int) -> PartitionLog:
    name = _text(tree, "directory_name")
    if "/" in name or name in ("", ".", ".."):
        raise ValueError(f"{name!r} is no name of a directory")
    log = PartitionLog(
        partition=partition,
        topic_id=topic_id,
        log_directory=_text(tree, "log_directory"),
        directory_name=name,
        leader_epoch=_number(tree, "leader_epoch", -1),
        log_start_offset=_number(tree, "log_start_offset", 0),
        last_stable_offset=_number(tree, "last_stable_offset", 0),
        high_watermark=_number(tree, "high_watermark", 0),
        segments=with_active_end(
            LogSegment(
                _number(each, "base_offset", 0),
                _number(each, "next_offset", 0),
                _number(each, "size_bytes", 0),
                inode=_inode(each),
            )
            for each in tree["segments"]
        ),
        active_positions=tuple(
            IndexEntry(_number(each, "offset", 0), _number(each, "position", 0)) for each in tree["active_positions"]
        ),
        aborted=tuple(
            AbortedRange(
                _number(each, "producer_id", 0), _number(each, "first_offset", 0), _number(each, "last_offset", 0)
            )
            for each in tree["aborted_transactions"]
        ),
        node_id=node_id,
    )
    check_log(log)
    return log


def with_active_end(segments: Iterable[LogSegment]) -> tuple[LogSegment, ...]:
    """Return the segments of a log, the last one marked as active."""
    row = tuple(segments)
    return (*row[:-1], attrs.evolve(row[-1], is_active=True)) if row else ()


def check_log(log: PartitionLog) -> None:
    """Refuse a log whose offsets contradict each other.

    Raises:
        ValueError: the text names the contradiction.
    """
    if not log.segments:
        raise ValueError(f"{log.partition} has no segments")
    offset = log.segments[0].base_offset
    for segment in log.segments:
        if segment.base_offset != offset or segment.next_offset < offset:
            raise ValueError(f"{log.partition}: {segment} does not begin at offset {offset}")
        offset = segment.next_offset
    if not log.segments[0].base_offset <= log.log_start_offset <= log.high_watermark <= offset:
        raise ValueError(
            f"{log.partition}: start {log.log_start_offset} and high watermark {log.high_watermark} are not within "
            f"the segments, which run from {log.segments[0].base_offset} to {offset}"
        )
    if log.last_stable_offset > log.high_watermark:
        raise ValueError(f"{log.partition}: last stable offset {log.last_stable_offset} above {log.high_watermark}")


def _number(tree: Any, name: str, minimum: int) -> int:
    value = tree[name]
    if type(value) is not int or not minimum <= value <= MAX_OFFSET:
        raise ValueError(f"{name} is {value!r}")
    return value


def _inode(tree: Any) -> int | None:
    """Return the file's number; the manifests of older brokers have none. It may need all of 64 bits."""
    value = tree.get("inode")
    if value is not None and type(value) is not int:
        raise ValueError(f"inode is {value!r}")
    return value


def _text(tree: Any, name: str) -> str:
    value = tree[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}")
    return value
