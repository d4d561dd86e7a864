"""The committed offsets of the groups of one ``__consumer_offsets`` partition, in memory.

A commit is kept as the bytes that the log has for it, and decoded when it is read. So loading is quick (a value is
checked, not decoded), a commit takes some 150 bytes, and the garbage collector has nothing to walk over: there is one
object for each commit, and it holds no others.

``put`` checks the bytes, so decoding them later does not fail.

Source: Kafka's OffsetMetadataManager; docs/formats/consumer-offsets.md for the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from kafka_wire.errors import WireError
from kafka_wire.stored.groups import GroupRecord, OffsetCommitKey, OffsetCommitValue, decode_group_record
from kafka_wire.stored.offset_commits import (
    NO_EXPIRE_TIMESTAMP,
    PARTITION_BYTES,
    CommitFields,
    commit_key_prefix,
    committed_offset,
    encode_commit_key,
    encode_commit_value,
    is_usual_commit_value,
    read_commit_value,
)
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.coordinator.offsets.pending_offsets import PendingOffsets

ANY_KEY = encode_commit_key("", "", 0)
"""For decoding a value, which takes a key as well."""

Values = dict[int, bytes]
"""Encoded values by partition."""


@attrs.frozen(weakref_slot=False)
class OffsetAndMetadata:
    """The next offset that a group will read in one partition.

    ``leader_epoch`` is -1 and ``topic_id`` is ``NO_UUID`` where they are not known. ``expire_timestamp_ms`` is set for
    commits of old clients with a retention of their own.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    topic_id: bytes


class CommittedOffsets:
    """All commits of one shard, by group, topic and partition. ``count`` is their number."""

    def __init__(self, on_first_commit: Callable[[str], None] = lambda group_id: None) -> None:
        """``on_first_commit`` is called with each group that has its first commit, which may be pending."""
        self.count = 0
        self._on_first_commit = on_first_commit
        self._groups: dict[str, dict[str, Values]] = {}
        # The same dictionaries by the key's bytes before the partition, so that records are put without decoding keys.
        self._by_prefix: dict[bytes, Values] = {}
        self._pending = PendingOffsets()

    # ---- changing -------------------------------------------------------------------------------------------------

    def apply(self, record: GroupRecord) -> None:
        """Fold one record of a commit; without a value the commit is removed.

        Raises:
            ValueError: a name is too long for a record.
        """
        key, value = record.key, record.value
        assert isinstance(key, OffsetCommitKey), f"not a commit: {record}"
        encoded_key = encode_commit_key(key.group, key.topic, key.partition)
        if value is None:
            self._remove(encoded_key)
            return
        assert isinstance(value, OffsetCommitValue), f"not a commit: {record}"
        encoded = encode_commit_value(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )
        self._supersede(encoded_key)
        self._keep(encoded_key, encoded)

    def put(self, key: bytes, value: bytes | None) -> None:
        """As ``apply``, for an encoded record.

        Raises:
            WireError: key or value is damaged, or the key is not a commit's; nothing has changed.
        """
        if value is None:
            self._remove(key)
            return
        if not is_usual_commit_value(value):
            _fields(value)
        self._supersede(key)
        self._keep(key, value)

    def put_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Keep a commit until the transaction of ``producer_id`` ends; errors as ``put``.

        Raises:
            WireError: it is a tombstone, which no transaction has.
        """
        if value is None:
            raise WireError(f"a tombstone in a transaction of producer {producer_id}")
        if not is_usual_commit_value(value):
            _fields(value)
        group_id = _decoded_key(key).group
        self._pending.add(producer_id, group_id, key, value)
        if group_id not in self._groups:
            self._on_first_commit(group_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> int:
        """The transaction has ended: its commits count now, or never. Returns how many do."""
        counting = self._pending.end(producer_id, committed=committed)
        for key, value in counting:
            assert value is not None, "no transaction has tombstones"
            self._keep(key, value)
        return len(counting)

    def _keep(self, key: bytes, value: bytes) -> None:
        values = self._by_prefix.get(key[:-PARTITION_BYTES])
        if values is None:
            values = self._values_beside(key)
        before = len(values)
        values[int.from_bytes(key[-PARTITION_BYTES:], "big", signed=True)] = value
        self.count += len(values) - before

    def _values_beside(self, key: bytes) -> Values:
        """The values beside ``key``, which is the first of its group and topic, or has the layout of Kafka 0.8."""
        commit = _decoded_key(key)
        if commit.group not in self._groups:
            self._groups[commit.group] = {}
            self._on_first_commit(commit.group)
        values = self._groups[commit.group].setdefault(commit.topic, {})
        prefix = commit_key_prefix(commit.group, commit.topic)
        self._by_prefix.setdefault(prefix, values)
        return values

    def _supersede(self, key: bytes) -> None:
        # Few shards ever have something pending, and commits are the most frequent records of all.
        if not self._pending.is_empty:
            self._pending.supersede(key)

    def _remove(self, key: bytes) -> None:
        if not self._pending.is_empty:
            self._pending.discard(key)
        values = self._by_prefix.get(key[:-PARTITION_BYTES])
        if values is not None and len(values) > 1:
            # Fast path: the names need not be decoded where other commits stay.
            removed = values.pop(int.from_bytes(key[-PARTITION_BYTES:], "big", signed=True), None)
            self.count -= removed is not None
            return
        commit = _decoded_key(key)
        topics = self._groups.get(commit.group, {})
        values = topics.get(commit.topic, {})
        if values.pop(commit.partition, None) is None:
            return
        self.count -= 1
        if not values:
            del self._by_prefix[commit_key_prefix(commit.group, commit.topic)]
            del topics[commit.topic]
        if not topics:
            del self._groups[commit.group]

    # ---- reading --------------------------------------------------------------------------------------------------

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        """The group's commit in one partition, None without one."""
        value = self._topics(group_id).get(topic, {}).get(partition)
        return None if value is None else _committed(value)

    def of_topic(self, group_id: str, topic: str) -> Mapping[int, OffsetAndMetadata]:
        """The group's commits in one topic, by partition; a copy."""
        values = self._topics(group_id).get(topic, {})
        return {partition: _committed(value) for partition, value in values.items()}

    def topics_of(self, group_id: str) -> list[str]:
        """The topics with commits of the group."""
        return list(self._topics(group_id))

    def partitions_of(self, group_id: str, topic: str) -> list[int]:
        """The partitions of ``topic`` with commits of the group."""
        return list(self._topics(group_id).get(topic, ()))

    def offsets_of(self, group_id: str, topic: str) -> list[tuple[int, int]]:
        """The partitions of ``topic`` with commits of the group, each with its offset, for walks over all commits."""
        values = self._topics(group_id).get(topic, {})
        return [(partition, committed_offset(value)) for partition, value in values.items()]

    def count_of(self, group_id: str) -> int:
        """How many commits the group has."""
        return sum(map(len, self._topics(group_id).values()))

    def has_offsets(self, group_id: str) -> bool:
        """Whether the group has any commit."""
        return group_id in self._groups

    def has_offset(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether the group has a commit in one partition."""
        return partition in self._topics(group_id).get(topic, {})

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction that has not ended has a commit of the group in one partition."""
        return not self._pending.is_empty and encode_commit_key(group_id, topic, partition) in self._pending

    def pending_count(self, group_id: str) -> int:
        """How many commits of ``group_id`` wait for the end of a transaction."""
        return self._pending.count_of(group_id)

    def has_pending_in(self, group_id: str) -> bool:
        """Whether a transaction that has not ended has any commit of the group."""
        return self._pending.has_group(group_id)

    def pending_of(self, group_id: str) -> list[TopicPartition]:
        """Where a transaction that has not ended has a commit of the group."""
        return list(dict.fromkeys(place for place, _ in self._pending_of(group_id)))

    def pending_commits(self, group_id: str, place: TopicPartition) -> list[OffsetAndMetadata]:
        """The commits of the group in one partition by transactions that have not ended."""
        return [_committed(value) for where, value in self._pending_of(group_id) if where == place]

    def _pending_of(self, group_id: str) -> Iterator[tuple[TopicPartition, bytes]]:
        for key, value in self._pending.commits_of(group_id) if self._pending.has_group(group_id) else ():
            assert value is not None, "no transaction has tombstones"
            commit = _decoded_key(key)
            yield TopicPartition(commit.topic, commit.partition), value

    def groups(self) -> Iterable[str]:
        """The groups with commits; a view, not to be held while commits change."""
        return self._groups.keys()

    def groups_with_topic(self, topic: str) -> list[str]:
        """The groups with commits in ``topic``, and those that may have some once a transaction ends."""
        with_pending = (
            group_id
            for group_id in self._pending.groups()
            if any(place.topic == topic for place, _ in self._pending_of(group_id))
        )
        return list(dict.fromkeys([*(each for each, topics in self._groups.items() if topic in topics), *with_pending]))

    def _topics(self, group_id: str) -> Mapping[str, Values]:
        return self._groups.get(group_id, {})


def _decoded_key(key: bytes) -> OffsetCommitKey:
    record = decode_group_record(key, None)
    if record is None or not isinstance(record.key, OffsetCommitKey):
        raise WireError(f"not the key of a commit: {key[:32].hex()}")
    return record.key


def _committed(value: bytes) -> OffsetAndMetadata:
    fields = _fields(value)
    expires = None if fields.expire_timestamp == NO_EXPIRE_TIMESTAMP else fields.expire_timestamp
    return OffsetAndMetadata(
        fields.offset, fields.leader_epoch, fields.metadata, fields.commit_timestamp, expires, fields.topic_id
    )


def _fields(value: bytes) -> CommitFields | OffsetCommitValue:
    """The fields of ``value``; decoded by the schema if it does not have the usual layout.

    Raises:
        WireError: it is damaged.
    """
    fields = read_commit_value(value)
    if fields is not None:
        return fields
    record = decode_group_record(ANY_KEY, value)
    assert record is not None, "the key is a commit's"
    assert isinstance(record.value, OffsetCommitValue), f"not the value of a commit: {record.value}"
    return record.value
