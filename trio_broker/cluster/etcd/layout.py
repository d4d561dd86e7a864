"""The keys of one cluster in etcd, and what their values say.

Below a prefix, which ends in ``/`` so that no other prefix begins with it::

    cluster                       the cluster's id; every transaction compares it
    controller                    who has the claim, under a lease; its create revision is what appends compare
    controller_epoch              counted up by each claim
    end                           where the log ends; its mod revision is what appends compare
    log/<base offset>             a record batch, byte for byte as in a segment
    snap-current                  which snapshot is the newest
    snap/<name>/<chunk>           its content
    view/…                        what an operator may read with etcdctl; only its writer reads it here

Values are JSON, but those of batches, chunks and ``controller_epoch``, which is a number in digits.

Source: docs/formats/metadata-in-etcd.md.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from typing import Any, Final

import attrs

from kafka_wire.primitives import NO_UUID, parse_uuid, uuid_text
from trio_broker.cluster.etcd.messages import KeyValue, RangeRequest, RequestOp, TxnResponse, get
from trio_broker.cluster.metadata_image import NO_LEADER
from trio_broker.cluster.metadata_snapshot import SnapshotId
from trio_broker.cluster.metadata_store import Claim, ClaimLost, LeaderAndEpoch


class ForeignMetadata(OSError):
    """What is in etcd is not the metadata of this cluster as this broker has read it: for an operator to look at."""


LAYOUT_VERSION: Final = 1
"""Of these keys and values; a broker refuses those of another one."""


@attrs.frozen
class EtcdLayout:
    """The keys below ``prefix``: each property is a key, or the prefix of keys, that the head of the file explains."""

    prefix: bytes = attrs.field()

    @prefix.validator
    def _ends_in_slash(self, _attribute: object, value: bytes) -> None:
        assert value.endswith(b"/"), value

    @property
    def cluster(self) -> bytes:
        return self.prefix + b"cluster"

    @property
    def controller(self) -> bytes:
        return self.prefix + b"controller"

    @property
    def controller_epoch(self) -> bytes:
        return self.prefix + b"controller_epoch"

    @property
    def end(self) -> bytes:
        return self.prefix + b"end"

    @property
    def current_snapshot(self) -> bytes:
        return self.prefix + b"snap-current"

    @property
    def log(self) -> bytes:
        return self.prefix + b"log/"

    @property
    def snapshots(self) -> bytes:
        return self.prefix + b"snap/"

    @property
    def view(self) -> bytes:
        return self.prefix + b"view/"

    def batch(self, base_offset: int) -> bytes:
        """The key of a batch. Keys are in the order of the offsets, by 20 digits."""
        return self.log + b"%020d" % base_offset

    def chunks(self, snapshot_name: str) -> bytes:
        """The prefix of a snapshot's content."""
        return self.snapshots + snapshot_name.encode() + b"/"


def end_of_prefix(prefix: bytes) -> bytes:
    """The first key behind all that begin with ``prefix``."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def json_bytes(value: dict[str, Any]) -> bytes:
    """``value`` as JSON in one form: values are compared as bytes."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


# --- Values ---


NO_INCARNATION: Final = uuid_text(NO_UUID)
"""Of a holder whose version did not say it."""


@attrs.frozen
class Holder:
    """Which process has the claim: a broker, in one of its lives."""

    node_id: int
    epoch: int
    lease: int
    incarnation_id: bytes = NO_UUID

    def to_bytes(self) -> bytes:
        return json_bytes(
            {
                "brokerid": self.node_id,
                "epoch": self.epoch,
                "incarnation": uuid_text(self.incarnation_id),
                "lease": self.lease,
            }
        )

    @classmethod
    def of(cls, value: bytes) -> Holder:
        stored = json.loads(value)
        incarnation_id = parse_uuid(stored.get("incarnation", NO_INCARNATION))
        return cls(stored["brokerid"], stored["epoch"], stored["lease"], incarnation_id)


@attrs.frozen
class EndOfLog:
    """Where the log ends, and how many bytes were ever appended. ``mod_revision`` is that of its key, 0 if there is
    none."""

    offset: int = 0
    epoch: int = 0
    appended_bytes: int = 0
    mod_revision: int = 0

    def to_bytes(self) -> bytes:
        return json_bytes({"offset": self.offset, "epoch": self.epoch, "bytes": self.appended_bytes})

    @classmethod
    def of(cls, kv: KeyValue | None) -> EndOfLog:
        if kv is None:
            return cls()
        stored = json.loads(kv.value)
        return cls(stored["offset"], stored["epoch"], stored["bytes"], kv.mod_revision)

    def after(self, batch: bytes, records: int, epoch: int) -> EndOfLog:
        """The end when ``batch`` is appended here."""
        return EndOfLog(self.offset + records, epoch, self.appended_bytes + len(batch))


@attrs.frozen
class CurrentSnapshot:
    """The newest snapshot: its name, how it is cut, and how many bytes had been appended to the log when it was taken.
    ``mod_revision`` is that of its key."""

    name: str
    id: SnapshotId
    chunks: int
    size_bytes: int
    appended_bytes: int
    mod_revision: int = 0

    def to_bytes(self) -> bytes:
        return json_bytes(
            {
                "name": self.name,
                "offset": self.id.end_offset,
                "epoch": self.id.epoch,
                "chunks": self.chunks,
                "size": self.size_bytes,
                "bytes": self.appended_bytes,
            }
        )

    @classmethod
    def of(cls, kv: KeyValue | None) -> CurrentSnapshot | None:
        if kv is None:
            return None
        stored = json.loads(kv.value)
        snapshot_id = SnapshotId(stored["offset"], stored["epoch"])
        return cls(
            stored["name"], snapshot_id, stored["chunks"], stored["size"], stored["bytes"], kv.mod_revision
        )  # fmt: skip


def cluster_bytes(cluster_id: str) -> bytes:
    """The value of ``cluster``, the same bytes on every broker: transactions compare them."""
    return json_bytes({"cluster": cluster_id, "layout": LAYOUT_VERSION})


def stored_cluster_id(value: bytes) -> str:
    """The id of the cluster whose keys they are."""
    return str(json.loads(value)["cluster"])


def cluster_id_of(value: bytes) -> str:
    """The cluster whose keys they are, and their layout, for a message about those of another one."""
    stored = json.loads(value)
    return f"cluster {stored['cluster']} in layout {stored['layout']}"


# --- All of them at once ---


@attrs.frozen
class ClusterState:
    """What the keys beside the log say, in one revision."""

    revision: int
    cluster: bytes | None
    controller: KeyValue | None
    holder: Holder | None
    """What ``controller`` says."""
    controller_epoch: KeyValue | None
    epoch: int
    """The newest that was begun."""
    end: EndOfLog
    snapshot: CurrentSnapshot | None
    read: Sequence[KeyValue] = ()
    """What else was asked for, such as batches of the log."""

    @property
    def leader(self) -> LeaderAndEpoch:
        holder = self.holder
        if holder is None:
            return LeaderAndEpoch(NO_LEADER, self.epoch)
        return LeaderAndEpoch(holder.node_id, self.epoch, holder.incarnation_id)

    @property
    def stored_bytes(self) -> int:
        """Of the newest snapshot and the log behind it."""
        if self.snapshot is None:
            return self.end.appended_bytes
        return self.snapshot.size_bytes + self.end.appended_bytes - self.snapshot.appended_bytes


def state_operations(layout: EtcdLayout, more: RangeRequest | None = None) -> Sequence[RequestOp]:
    """What reads a ``ClusterState``, and some other keys in the same revision."""
    keys = (layout.cluster, layout.controller, layout.controller_epoch, layout.end, layout.current_snapshot)
    return [*map(get, keys), *([RequestOp(range=more)] if more is not None else ())]


def state_of(response: TxnResponse) -> ClusterState:
    """What ``state_operations`` have read, the only ones of a transaction or behind a deletion.

    Raises:
        ForeignMetadata: a value is not what is written there.
    """
    found = [each.range.kvs for each in response.responses if each.range is not None]
    cluster, controller, epoch, end, snapshot = (kvs[0] if kvs else None for kvs in found[:5])
    try:
        return ClusterState(
            response.revision,
            None if cluster is None else cluster.value,
            controller,
            None if controller is None else Holder.of(controller.value),
            epoch,
            0 if epoch is None else int(epoch.value),
            EndOfLog.of(end),
            CurrentSnapshot.of(snapshot),
            found[5] if len(found) > 5 else (),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ForeignMetadata(errno.EIO, f"a key of the metadata in etcd has a strange value: {error!r}") from error


# --- The claim in a state ---


def birth_of(claim: Claim) -> int:
    """The create revision of the controller's key, which is the ``token`` of a claim."""
    assert isinstance(claim.token, int), claim
    return claim.token


def is_held(claim: Claim, state: ClusterState) -> bool:
    """Whether the controller of ``state`` is that of ``claim``."""
    return state.controller is not None and state.controller.create_revision == birth_of(claim)


def require_held(claim: Claim, state: ClusterState) -> None:
    """Refuse to go on under a claim that another broker has ended.

    Raises:
        ClaimLost: ``claim`` is over in ``state``.
    """
    if not is_held(claim, state):
        raise ClaimLost.of(claim)
