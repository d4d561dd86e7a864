"""What an etcd keeps: keys with their revisions, leases, and the history since the last compaction. No time, no I/O.

Limits and codes are those of etcd 3.4 to 3.7 with its defaults.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from trio_broker.cluster.etcd.errors import EtcdLeaseGone, EtcdOutOfSpace, EtcdRefused, GrpcStatus
from trio_broker.cluster.etcd.messages import (
    Compare,
    CompareTarget,
    DeleteRangeRequest,
    Event,
    KeyValue,
    PutRequest,
    RangeRequest,
    RangeResponse,
    RequestOp,
    ResponseHeader,
    ResponseOp,
    TxnRequest,
    TxnResponse,
)
from trio_broker.cluster.etcd.protobuf import encode

MAX_OPERATIONS: Final = 128
MAX_REQUEST_BYTES: Final = 1536 * 1024
INVALID_ARGUMENT: Final = 3
PUT, DELETE = 0, 1


@attrs.define
class EtcdState:
    """The state behind etcd's log: each method is one entry of that, done at once."""

    revision: int = 1
    compact_revision: int = 0
    no_space: bool = False
    versions: dict[bytes, list[tuple[int, KeyValue | None]]] = attrs.field(factory=dict)
    """What each key became at which revisions; None is a deletion."""
    history: list[tuple[int, Event]] = attrs.field(factory=list)
    leases: dict[int, set[bytes]] = attrs.field(factory=dict)
    _lease_ids: Iterator[int] = attrs.field(factory=lambda: itertools.count(7_000_000))

    # --- Reading ---

    def at(self, key: bytes, revision: int) -> KeyValue | None:
        versions = self.versions.get(key, [])
        index = bisect.bisect_right(versions, revision, key=lambda version: version[0])
        return versions[index - 1][1] if index else None

    def keys_in(self, key: bytes, range_end: bytes) -> list[bytes]:
        if not range_end:
            return [key] if key in self.versions else []
        return sorted(each for each in self.versions if key <= each < range_end)

    def range(self, request: RangeRequest, *, as_of: int | None = None) -> RangeResponse:
        """``as_of`` is an older revision at which a stale member answers."""
        present = self.revision if as_of is None else as_of
        revision = request.revision or present
        if revision < self.compact_revision:
            raise EtcdRefused(11, "etcdserver: mvcc: required revision has been compacted")
        if revision > present:
            raise EtcdRefused(11, "etcdserver: mvcc: required revision is a future revision")
        found = [kv for key in self.keys_in(request.key, request.range_end) if (kv := self.at(key, revision))]
        kvs = found[: request.limit] if request.limit else found
        if request.keys_only:
            kvs = [attrs.evolve(kv, value=b"") for kv in kvs]
        return RangeResponse(header=self.header(present), kvs=kvs, more=len(kvs) < len(found))

    def header(self, revision: int | None = None) -> ResponseHeader:
        return ResponseHeader(cluster_id=1, member_id=1, revision=revision or self.revision)

    # --- Transactions ---

    def txn(self, request: TxnRequest, *, as_of: int | None = None) -> TxnResponse:
        self._require_valid(request)
        read_only = all(op.range is not None for op in (*request.success, *request.failure))
        revision = as_of if read_only and as_of is not None else self.revision
        succeeded = all(self._holds(compare, revision) for compare in request.compare)
        operations = request.success if succeeded else request.failure
        changing = self.revision + 1
        responses = [self._done(op, changing, revision) for op in operations]
        if self.history and self.history[-1][0] == changing:
            self.revision = revision = changing
        return TxnResponse(header=self.header(revision), succeeded=succeeded, responses=responses)

    def _require_valid(self, request: TxnRequest) -> None:
        # Values are what is large; the rest is encoded only where it could matter.
        values = sum(len(op.put.value) for op in (*request.success, *request.failure) if op.put is not None)
        if values > MAX_REQUEST_BYTES // 2 and len(encode(request)) > MAX_REQUEST_BYTES:
            raise EtcdRefused(INVALID_ARGUMENT, "etcdserver: request is too large")
        for operations in (request.compare, request.success, request.failure):
            if len(operations) > MAX_OPERATIONS:
                raise EtcdRefused(INVALID_ARGUMENT, "etcdserver: too many operations in txn request")
        for operations in (request.success, request.failure):
            puts = [op.put.key for op in operations if op.put is not None]
            deletions = [op.delete_range for op in operations if op.delete_range is not None]
            if len(set(puts)) < len(puts) or any(is_in(key, each) for key in puts for each in deletions):
                raise EtcdRefused(INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request")
        put = [op.put for op in (*request.success, *request.failure) if op.put is not None]
        if put and self.no_space:
            raise EtcdOutOfSpace(8, "etcdserver: mvcc: database space exceeded")
        if any(each.lease and each.lease not in self.leases for each in put):
            raise EtcdLeaseGone(GrpcStatus.NOT_FOUND, "etcdserver: requested lease not found")

    def _holds(self, compare: Compare, revision: int) -> bool:
        kv = self.at(compare.key, revision)
        match CompareTarget(compare.target):
            case CompareTarget.VERSION:
                return (kv.version if kv else 0) == compare.version
            case CompareTarget.CREATE:
                return (kv.create_revision if kv else 0) == compare.create_revision
            case CompareTarget.MOD:
                return (kv.mod_revision if kv else 0) == compare.mod_revision
            case CompareTarget.VALUE:
                return kv is not None and kv.value == compare.value

    def _done(self, op: RequestOp, changing: int, revision: int) -> ResponseOp:
        if op.put is not None:
            self._put(op.put, changing)
        elif op.delete_range is not None:
            self._delete(op.delete_range, changing)
        elif op.range is not None:
            # A range sees the puts before it in its own transaction.
            changed = bool(self.history) and self.history[-1][0] == changing
            return ResponseOp(range=self.range(op.range, as_of=changing if changed else revision))
        return ResponseOp()

    def _put(self, put: PutRequest, revision: int) -> None:
        before = self.at(put.key, revision)
        kv = KeyValue(
            key=put.key,
            value=put.value,
            lease=put.lease,
            create_revision=before.create_revision if before else revision,
            mod_revision=revision,
            version=before.version + 1 if before else 1,
        )
        if before and before.lease:
            self.leases.get(before.lease, set()).discard(put.key)
        if put.lease:
            self.leases[put.lease].add(put.key)
        self._change(put.key, revision, kv, PUT)

    def _delete(self, request: DeleteRangeRequest, revision: int) -> None:
        for key in self.keys_in(request.key, request.range_end):
            if (kv := self.at(key, revision)) is not None:
                self.leases.get(kv.lease, set()).discard(key)
                self._change(key, revision, None, DELETE)

    def _change(self, key: bytes, revision: int, kv: KeyValue | None, event_type: int) -> None:
        self.versions.setdefault(key, []).append((revision, kv))
        self.history.append((revision, Event(type=event_type, kv=kv or KeyValue(key=key, mod_revision=revision))))

    # --- Leases and the history ---

    def grant(self) -> int:
        if self.no_space:
            raise EtcdOutOfSpace(8, "etcdserver: mvcc: database space exceeded")
        lease_id = next(self._lease_ids)
        self.leases[lease_id] = set()
        return lease_id

    def revoke(self, lease_id: int) -> None:
        if (keys := self.leases.pop(lease_id, None)) is None:
            raise EtcdLeaseGone(GrpcStatus.NOT_FOUND, "etcdserver: requested lease not found")
        if keys:
            for key in sorted(keys):
                self._delete(DeleteRangeRequest(key=key), self.revision + 1)
            self.revision += 1

    def compact(self, revision: int) -> None:
        """Forget what was before ``revision``."""
        self.compact_revision = max(self.compact_revision, revision)
        self.history = [each for each in self.history if each[0] >= revision]
        for key, versions in list(self.versions.items()):
            index = bisect.bisect_right(versions, revision, key=lambda version: version[0])
            kept = versions[max(index - 1, 0) :]
            if all(kv is None for _, kv in kept):
                del self.versions[key]
            else:
                self.versions[key] = kept

    def events_from(self, revision: int, key: bytes, range_end: bytes) -> Sequence[tuple[int, Event]]:
        deleted = DeleteRangeRequest(key=key, range_end=range_end)
        index = bisect.bisect_left(self.history, revision, key=lambda each: each[0])
        return [each for each in self.history[index:] if each[1].kv and is_in(each[1].kv.key, deleted)]


def is_in(key: bytes, request: DeleteRangeRequest) -> bool:
    return request.key <= key < request.range_end if request.range_end else key == request.key
