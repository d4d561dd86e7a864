"""The records of the metadata log: topics, partitions, brokers and configs, one change each.

A record's value is three unsigned varints and a message: the version of this frame, always 1; the type of the record,
which takes the place of an API key; the version of the type; then its fields in the flexible form of the wire. The
fold of all records in order is the cluster's metadata. Keys are empty.

Here are all types that a cluster of Kafka 4.3 writes. Any other is a ``WireError``: to skip a record would be to run on
metadata that is not the cluster's.

Version notes (all other types have version 0 alone):

* PartitionRecord, PartitionChangeRecord: 1 adds log directories (KIP-858), 2 the eligible leaders (KIP-966).
* RegisterBrokerRecord: 1 adds ``in_controlled_shutdown`` (KIP-841), 2 ``is_migrating_zk_broker`` (KIP-866), 3 log
  directories (KIP-858), 4 cordoned ones (KIP-1066).
* BrokerRegistrationChangeRecord: 1 adds ``in_controlled_shutdown``, 2 log directories, 3 cordoned ones.

Source: Kafka's metadata/src/main/resources/common/metadata/*.json, and MetadataRecordSerde for the frame.
"""

from __future__ import annotations

from typing import Any, Final

from kafka_wire.codec import decode_whole, encode_bytes
from kafka_wire.errors import WireError
from kafka_wire.primitives import (
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    UInt16,
    Uuid,
    read_unsigned_varint,
    unsigned_varint,
)
from kafka_wire.schema import field, message, struct

FRAME_VERSION: Final = 1
"""The version of the three numbers before the record; Kafka has never had another."""


# --- Topics and partitions ---


@message(key=2, versions="0", flexible="0+")
class TopicRecord:
    """A topic was created. Its partitions follow in records of their own."""

    name: String
    topic_id: Uuid


@message(key=9, versions="0", flexible="0+")
class RemoveTopicRecord:
    """A topic is gone, with its partitions and its configs."""

    topic_id: Uuid


@message(key=3, versions="0-2", flexible="0+")
class PartitionRecord:
    """A partition as it is created: where it lives and who leads it.

    ``replicas`` are in the order in which they are preferred as leaders; ``directories`` goes beside it, one log
    directory id for each. ``leader`` is -1 for none. ``leader_epoch`` rises with every change of leader,
    ``partition_epoch`` with every change at all. ``leader_recovery_state`` is 1 after an unclean election. The two
    lists of eligible leaders are null when the cluster keeps none (KIP-966).
    """

    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = field(default=-1)
    leader_recovery_state: Int8 = field(default=0, tag=0)
    leader_epoch: Int32 = field(default=-1)
    partition_epoch: Int32 = field(default=-1)
    directories: list[Uuid] = field("1+", factory=list)
    eligible_leader_replicas: list[Int32] | None = field("2+", default=None, tag=1)
    last_known_elr: list[Int32] | None = field("2+", default=None, tag=2)


@message(key=5, versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """What changed about a partition; a field at its default did not.

    For ``leader`` the default is -2, because -1 means that there is no leader now. A change of leader raises the leader
    epoch by one, and every record of this kind raises the partition epoch by one, though neither is written down.
    """

    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    isr: list[Int32] | None = field(default=None, tag=0)
    leader: Int32 = field(default=-2, tag=1)
    replicas: list[Int32] | None = field(default=None, tag=2)
    removing_replicas: list[Int32] | None = field(default=None, tag=3)
    adding_replicas: list[Int32] | None = field(default=None, tag=4)
    leader_recovery_state: Int8 = field(default=-1, tag=5)
    directories: list[Uuid] | None = field("1+", default=None, tag=8)
    eligible_leader_replicas: list[Int32] | None = field("2+", default=None, tag=6)
    last_known_elr: list[Int32] | None = field("2+", default=None, tag=7)


@message(key=28, versions="0", flexible="0+")
class ClearElrRecord:
    """The lists of eligible leaders of a topic are void, or those of every topic when the name is empty."""

    topic_name: String


# --- Configs and features ---


@message(key=4, versions="0", flexible="0+")
class ConfigRecord:
    """One config of a resource was set, or removed when ``value`` is None.

    ``resource_type`` is 2 for a topic, 4 for a broker, 16 for client metrics, 32 for a group. The empty broker name
    stands for the dynamic default of the cluster.
    """

    resource_type: Int8
    resource_name: String
    name: String
    value: String | None = field(secret=True)


@message(key=12, versions="0", flexible="0+")
class FeatureLevelRecord:
    """A feature runs at this level from here on; 0 switches it off. ``metadata.version`` opens every log."""

    name: String
    feature_level: Int16


# --- Brokers and controllers ---


@message(key=0, versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    """A broker process registered. It is fenced until it has caught up and says so.

    ``incarnation_id`` is new with every start of the process; ``broker_epoch`` is the offset of this very record in
    Kafka. ``log_dirs`` are the ids of the broker's log directories that work; ``cordoned_log_dirs`` those of them that
    take no new replicas, None when the broker has not reported them.
    """

    broker_id: Int32
    is_migrating_zk_broker: Boolean = field("2+", default=False)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: String | None
    fenced: Boolean = field(default=True)
    in_controlled_shutdown: Boolean = field("1+", default=False)
    log_dirs: list[Uuid] = field("3+", factory=list, tag=0)
    cordoned_log_dirs: list[Uuid] | None = field("4+", default=None, tag=1)


@struct
class BrokerEndpoint:
    """A listener of a broker. ``security_protocol`` is 0 plaintext, 1 SSL, 2 SASL over plaintext, 3 SASL over SSL."""

    name: String
    host: String
    port: UInt16
    security_protocol: Int16


@struct
class BrokerFeature:
    """The levels of a feature that a broker knows."""

    name: String
    min_supported_version: Int16
    max_supported_version: Int16


@message(key=17, versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    """What changed about a registered broker; a field at its default did not.

    ``fenced`` is 1 when it was fenced and -1 when the fence came down; ``in_controlled_shutdown`` is 1 when it began to
    leave.
    """

    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = field(default=0, tag=0)
    in_controlled_shutdown: Int8 = field("1+", default=0, tag=1)
    log_dirs: list[Uuid] = field("2+", factory=list, tag=2)
    cordoned_log_dirs: list[Uuid] | None = field("3+", default=None, tag=3)


@message(key=7, versions="0", flexible="0+")
class FenceBrokerRecord:
    """A broker was fenced. Older logs have this where newer ones have BrokerRegistrationChangeRecord."""

    id: Int32
    epoch: Int64


@message(key=8, versions="0", flexible="0+")
class UnfenceBrokerRecord:
    """A fence came down. Older logs have this where newer ones have BrokerRegistrationChangeRecord."""

    id: Int32
    epoch: Int64


@message(key=1, versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """A broker was taken out of the cluster."""

    broker_id: Int32
    broker_epoch: Int64


@message(key=27, versions="0", flexible="0+")
class RegisterControllerRecord:
    """A controller process registered."""

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Boolean
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]


@struct
class ControllerEndpoint:
    """A listener of a controller, as in ``BrokerEndpoint``."""

    name: String
    host: String
    port: UInt16
    security_protocol: Int16


@struct
class ControllerFeature:
    """The levels of a feature that a controller knows."""

    name: String
    min_supported_version: Int16
    max_supported_version: Int16


@message(key=29, versions="0", flexible="0+")
class UnregisterControllerRecord:
    """A controller process was taken out of the cluster, by a Kafka from 4.4 on."""

    controller_id: Int32


# --- Producer ids ---


@message(key=15, versions="0", flexible="0+")
class ProducerIdsRecord:
    """A broker took a block of producer ids; the ids before ``next_producer_id`` are given away for good."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    next_producer_id: Int64


# --- Access control ---


@message(key=18, versions="0", flexible="0+")
class AccessControlEntryRecord:
    """An access control entry was added. The numbers are those of Kafka's enums."""

    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message(key=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    """An access control entry is gone."""

    id: Uuid


@message(key=11, versions="0", flexible="0+")
class UserScramCredentialRecord:
    """What a user's password is checked with, for one mechanism (1: SHA-256, 2: SHA-512)."""

    name: String
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes = field(secret=True)
    server_key: Bytes = field(secret=True)
    iterations: Int32


@message(key=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """A user has no password of this mechanism any more."""

    name: String
    mechanism: Int8


@message(key=10, versions="0", flexible="0+")
class DelegationTokenRecord:
    """A delegation token was created or renewed. Timestamps are in milliseconds since 1970."""

    owner: String
    requester: String
    renewers: list[String]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: String


@message(key=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    """A delegation token is gone."""

    token_id: String


# --- Quotas ---


@message(key=14, versions="0", flexible="0+")
class ClientQuotaRecord:
    """A quota of users, clients or addresses was set, or removed."""

    entity: list[EntityData]
    key: String
    value: Float64
    remove: Boolean


@struct
class EntityData:
    """One part of whom a quota holds for; without a name, the default of the type."""

    entity_type: String
    entity_name: String | None


# --- The log itself ---


@message(key=21, versions="0", flexible="0+")
class ZkMigrationStateRecord:
    """How far the way from ZooKeeper had come (0: none, 3: at its end), in a cluster that came from there."""

    zk_migration_state: Int8


@message(key=23, versions="0", flexible="0+")
class BeginTransactionRecord:
    """The records from here to the end of the transaction count together or not at all (KIP-868)."""

    name: String | None = field(default=None, tag=0)


@message(key=24, versions="0", flexible="0+")
class EndTransactionRecord:
    """The transaction that is open counts."""


@message(key=25, versions="0", flexible="0+")
class AbortTransactionRecord:
    """The records since the beginning of the transaction do not count."""

    reason: String | None = field(default=None, tag=0)


@message(key=20, versions="0", flexible="0+")
class NoOpRecord:
    """Nothing. The controller writes one now and then to see the log move."""


# --- The frame ---

METADATA_RECORDS: Final[tuple[type[Any], ...]] = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    TopicRecord,
    PartitionRecord,
    ConfigRecord,
    PartitionChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    RemoveTopicRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
    FeatureLevelRecord,
    ClientQuotaRecord,
    ProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    NoOpRecord,
    ZkMigrationStateRecord,
    RemoveUserScramCredentialRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    RemoveDelegationTokenRecord,
    RegisterControllerRecord,
    ClearElrRecord,
    UnregisterControllerRecord,
)
"""Every record this module knows, in the order of their types."""

IF_NEWER: Final = ", as a newer version may write"
"""Said of a record that is not known: most likely an operator has gone back to an older version."""

_RECORD_OF_TYPE: Final[dict[int, type[Any]]] = {record.API_KEY: record for record in METADATA_RECORDS}


def encode_metadata_record(record: Any, version: int | None = None) -> bytes:
    """Return the value under which ``record`` goes into the metadata log.

    Without a ``version`` it is the newest of the record's type.

    Raises:
        ValueError: ``version`` does not exist, or cannot say what the record says.
    """
    chosen = record.VERSIONS.high if version is None else version
    prefix = b"".join(unsigned_varint(number) for number in (FRAME_VERSION, record.API_KEY, chosen))
    return prefix + encode_bytes(record, chosen)


def decode_metadata_record(value: bytes | memoryview) -> Any:
    """Return the record that ``value`` holds.

    Raises:
        WireError: the frame is of another version, the type or its version is not known, the fields do not decode, or
            bytes are left over; unlike a client's request, a record was written by a broker, so these would be damage.
    """
    view = memoryview(value)
    frame_version, position = read_unsigned_varint(view, 0)
    if frame_version != FRAME_VERSION:
        raise WireError(f"metadata record in frame version {frame_version}, not {FRAME_VERSION}{IF_NEWER}")
    record_type, position = read_unsigned_varint(view, position)
    kind = _RECORD_OF_TYPE.get(record_type)
    if kind is None:
        raise WireError(f"metadata record of unknown type {record_type}{IF_NEWER}")
    version, position = read_unsigned_varint(view, position)
    if version not in kind.VERSIONS:
        raise WireError(f"{kind.__name__} in version {version}, not {kind.VERSIONS}{IF_NEWER}")
    return decode_whole(kind, version, view, position)
