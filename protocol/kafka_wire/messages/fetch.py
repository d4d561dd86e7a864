"""Fetch (api key 1): read record batches from partitions, waiting for them if there are none yet.

Consumers poll with it and followers replicate with it. Byte limits are soft: the first partition that has anything
yields at least one whole batch (KIP-74).

Version notes:

* 4: the oldest one served; isolation levels, and record batches (magic 2) only.
* 5: ``log_start_offset`` both ways.
* 6: KAFKA_STORAGE_ERROR may be answered.
* 7: fetch sessions (KIP-227): a session names its partitions once, then only what changed.
* 8: a throttled broker answers first and then pauses (KIP-219).
* 9: the consumer says which leader epoch it believes in (KIP-320).
* 10: batches may be compressed with zstd (KIP-110).
* 11: ``rack_id``, and a closer replica to read from (KIP-392).
* 12: flexible versions; divergence and the current leader come with the answer (KIP-595).
* 13: topics go by id (KIP-516).
* 14: OFFSET_MOVED_TO_TIERED_STORAGE may be answered (KIP-405).
* 15: a follower names itself and its epoch in ``replica_state`` (KIP-903).
* 16: the addresses of new leaders (KIP-951).
* 17: the follower's log directory (KIP-853).
* 18: the follower's high watermark (KIP-1166).

Source: Kafka's FetchRequest.json and FetchResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import NO_UUID, Int8, Int16, Int32, Int64, Records, String, Uuid
from kafka_wire.schema import Request, field, message, struct

NAMES_UP_TO = 12
"""The last version that names topics. Later ones have topic ids, which brokers before 2.8 do not return."""

NO_BYTE_LIMIT = 2**31 - 1
"""The ``max_bytes`` of a reader that leaves the size of the answer to the broker."""

HIGH_WATERMARK_NOT_SUPPORTED = 2**63 - 1
"""A follower's high watermark when the follower is too old to send one (KIP-1166)."""


@message(key=1, versions="4-18", flexible="12+")
class FetchRequest(Request["FetchResponse"]):
    """Which partitions to read, from where, and how long to wait.

    The answer may be held for ``max_wait_ms`` until ``min_bytes`` are there. ``isolation_level`` is a number of
    ``IsolationLevel``. ``session_id`` and ``session_epoch`` are
    (0, -1) when no session is wanted and (0, 0) when one is asked for. ``replica_id`` is the follower's node id, -1 for
    consumers; from version 15 on it is in ``replica_state``.
    """

    cluster_id: String | None = field("12+", default=None, tag=0, ignorable=True)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState = field("15+", factory=lambda: ReplicaState(), tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=NO_BYTE_LIMIT)
    isolation_level: Int8 = field(default=0)
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field("7+", factory=list)
    rack_id: String = field("11+", default="", ignorable=True)


@struct
class ReplicaState:
    replica_id: Int32 = field(default=-1)
    replica_epoch: Int64 = field(default=-1)


@struct
class FetchTopic:
    """The partitions of one topic; named up to version 12, identified from 13 on."""

    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=NO_UUID, ignorable=True)
    partitions: list[FetchPartition]


@struct
class FetchPartition:
    """One partition to read.

    ``current_leader_epoch`` -1 means "do not check". ``last_fetched_epoch`` is the epoch of the last record the
    follower holds, -1 for none. ``log_start_offset``, ``replica_directory_id`` and ``high_watermark`` are a follower's;
    the last is -1 when unknown and ``HIGH_WATERMARK_NOT_SUPPORTED`` when the follower cannot tell.
    """

    partition: Int32
    current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = field("17+", default=NO_UUID, tag=0, ignorable=True)
    high_watermark: Int64 = field("18+", default=HIGH_WATERMARK_NOT_SUPPORTED, tag=1, ignorable=True)


@struct
class ForgottenTopic:
    """Partitions that leave the fetch session."""

    topic: String = field("7-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=NO_UUID, ignorable=True)
    partitions: list[Int32]


@message(key=1, versions="4-18", flexible="12+")
class FetchResponse:
    """The batches read, by topic and partition.

    In a session that is under way only partitions with news are listed. ``session_id`` 0 means no session.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field("16+", factory=list, tag=0)


@struct
class FetchableTopicResponse:
    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=NO_UUID, ignorable=True)
    partitions: list[PartitionData]


@struct
class PartitionData:
    """One partition's batches and watermarks.

    ``records`` are whole batches; the first may begin before the offset asked for. Clients in the wild break on null,
    so a broker sends zero bytes instead. ``aborted_transactions`` is null or empty unless committed records alone were
    asked for. ``preferred_read_replica`` sends the consumer away from this broker; -1 keeps it here.
    ``diverging_epoch`` and ``snapshot_id`` are for followers.
    """

    partition_index: Int32
    error_code: Int16 = field(default=0)
    high_watermark: Int64
    last_stable_offset: Int64 = field(default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field("12+", factory=lambda: EpochEndOffset(), tag=0)
    current_leader: LeaderIdAndEpoch = field("12+", factory=lambda: LeaderIdAndEpoch(), tag=1)
    snapshot_id: SnapshotId = field("12+", factory=lambda: SnapshotId(), tag=2)
    aborted_transactions: list[AbortedTransaction] | None
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: Records | None


@struct
class EpochEndOffset:
    """The last epoch the leader and the follower have in common, and where it ends here; -1 for "no divergence"."""

    epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


@struct
class LeaderIdAndEpoch:
    """The leader the client should go to instead; -1 in both fields says nothing."""

    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class SnapshotId:
    """The snapshot to fetch when the log no longer reaches back far enough; -1 for none."""

    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


@struct
class AbortedTransaction:
    """A transaction whose records, from ``first_offset`` up to its abort marker, the consumer must skip."""

    producer_id: Int64
    first_offset: Int64


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)
