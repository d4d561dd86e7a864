"""The messages of etcd's API that the store uses, with the fields that it uses.

Source: etcd's api/etcdserverpb/rpc.proto and api/mvccpb/kv.proto; the same numbers since etcd 3.0.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import attrs

from trio_broker.cluster.etcd.protobuf import field, repeated


@attrs.frozen(kw_only=True)
class KeyValue:
    """A key, its value, and the revisions of its birth and of its last change."""

    key: bytes = field(1, bytes)
    create_revision: int = field(2, int)
    mod_revision: int = field(3, int)
    version: int = field(4, int)
    value: bytes = field(5, bytes)
    lease: int = field(6, int)


@attrs.frozen(kw_only=True)
class ResponseHeader:
    """Which cluster and member answered, and the revision of its store then."""

    cluster_id: int = field(1, int)
    member_id: int = field(2, int)
    revision: int = field(3, int)


# --- Keys ---


@attrs.frozen(kw_only=True)
class RangeRequest:
    """The keys from ``key`` up to ``range_end``, or ``key`` alone. ``limit`` and ``revision`` are none at 0."""

    key: bytes = field(1, bytes)
    range_end: bytes = field(2, bytes)
    limit: int = field(3, int)
    revision: int = field(4, int)
    keys_only: bool = field(8, bool)


@attrs.frozen(kw_only=True)
class RangeResponse:
    header: ResponseHeader = field(1, ResponseHeader)
    kvs: Sequence[KeyValue] = repeated(2, KeyValue)
    more: bool = field(3, bool)


@attrs.frozen(kw_only=True)
class PutRequest:
    key: bytes = field(1, bytes)
    value: bytes = field(2, bytes)
    lease: int = field(3, int)


@attrs.frozen(kw_only=True)
class DeleteRangeRequest:
    key: bytes = field(1, bytes)
    range_end: bytes = field(2, bytes)


@attrs.frozen(kw_only=True)
class RequestOp:
    """One of the three."""

    range: RangeRequest | None = field(1, RangeRequest, optional=True)
    put: PutRequest | None = field(2, PutRequest, optional=True)
    delete_range: DeleteRangeRequest | None = field(3, DeleteRangeRequest, optional=True)


@attrs.frozen(kw_only=True)
class ResponseOp:
    """The answer to a range of a Txn; puts and deletions have none that is of use."""

    range: RangeResponse | None = field(1, RangeResponse, optional=True)


class CompareTarget(enum.IntEnum):
    """What of a key is compared. All four are 0 or empty of a key that is not there."""

    VERSION = 0
    CREATE = 1
    MOD = 2
    VALUE = 3


@attrs.frozen(kw_only=True)
class Compare:
    """A condition of a Txn: that ``target`` of ``key`` equals the one operand that is given."""

    target: int = field(2, int)
    key: bytes = field(3, bytes)
    version: int | None = field(4, int, optional=True)
    create_revision: int | None = field(5, int, optional=True)
    mod_revision: int | None = field(6, int, optional=True)
    value: bytes | None = field(7, bytes, optional=True)


def created_at(key: bytes, revision: int) -> Compare:
    """That ``key`` is still the one born at ``revision``; with 0, that it is not there."""
    return Compare(target=CompareTarget.CREATE, key=key, create_revision=revision)


def modified_at(key: bytes, revision: int) -> Compare:
    """That ``key`` was last changed at ``revision``."""
    return Compare(target=CompareTarget.MOD, key=key, mod_revision=revision)


def has_value(key: bytes, value: bytes) -> Compare:
    """That ``key`` is there, with ``value``."""
    return Compare(target=CompareTarget.VALUE, key=key, value=value)


def put(key: bytes, value: bytes, *, lease: int = 0) -> RequestOp:
    return RequestOp(put=PutRequest(key=key, value=value, lease=lease))


def get(key: bytes) -> RequestOp:
    return RequestOp(range=RangeRequest(key=key))


def delete(key: bytes, range_end: bytes = b"") -> RequestOp:
    return RequestOp(delete_range=DeleteRangeRequest(key=key, range_end=range_end))


@attrs.frozen(kw_only=True)
class TxnRequest:
    """``success`` is done if all of ``compare`` holds, ``failure`` if not; each has 128 entries at most."""

    compare: Sequence[Compare] = repeated(1, Compare)
    success: Sequence[RequestOp] = repeated(2, RequestOp)
    failure: Sequence[RequestOp] = repeated(3, RequestOp)


@attrs.frozen(kw_only=True)
class TxnResponse:
    header: ResponseHeader = field(1, ResponseHeader)
    succeeded: bool = field(2, bool)
    responses: Sequence[ResponseOp] = repeated(3, ResponseOp)

    @property
    def revision(self) -> int:
        """Of the store behind it."""
        return self.header.revision


# --- Leases ---


@attrs.frozen(kw_only=True)
class LeaseGrantRequest:
    """``ttl`` in seconds. etcd chooses the id, and gives none twice."""

    ttl: int = field(1, int)


@attrs.frozen(kw_only=True)
class LeaseGrantResponse:
    """``ttl`` is the one that was granted, which may be longer than the one asked for."""

    id: int = field(2, int)
    ttl: int = field(3, int)


@attrs.frozen(kw_only=True)
class LeaseKeepAliveRequest:
    id: int = field(1, int)


@attrs.frozen(kw_only=True)
class LeaseKeepAliveResponse:
    """``ttl`` is 0 where there is no such lease any more."""

    id: int = field(2, int)
    ttl: int = field(3, int)


@attrs.frozen(kw_only=True)
class LeaseRevokeRequest:
    id: int = field(1, int)


@attrs.frozen(kw_only=True)
class LeaseRevokeResponse:
    header: ResponseHeader = field(1, ResponseHeader)


# --- Watches ---


@attrs.frozen(kw_only=True)
class WatchCreateRequest:
    """What is watched, from the present on."""

    key: bytes = field(1, bytes)
    range_end: bytes = field(2, bytes)


@attrs.frozen(kw_only=True)
class WatchRequest:
    create_request: WatchCreateRequest | None = field(1, WatchCreateRequest, optional=True)


@attrs.frozen(kw_only=True)
class Event:
    """A change of a key; ``type`` is 0 for a put and 1 for a deletion."""

    type: int = field(1, int)
    kv: KeyValue | None = field(2, KeyValue, optional=True)


@attrs.frozen(kw_only=True)
class WatchResponse:
    """Events in the order of their revisions, or the news that the watch exists or ended."""

    header: ResponseHeader = field(1, ResponseHeader)
    created: bool = field(3, bool)
    canceled: bool = field(4, bool)
    compact_revision: int = field(5, int)
    cancel_reason: str = field(6, str)
    events: Sequence[Event] = repeated(11, Event)


# --- The server itself ---


@attrs.frozen(kw_only=True)
class AuthenticateRequest:
    name: str = field(1, str)
    password: str = field(2, str)


@attrs.frozen(kw_only=True)
class AuthenticateResponse:
    token: str = field(2, str)


@attrs.frozen(kw_only=True)
class StatusRequest:
    pass


@attrs.frozen(kw_only=True)
class StatusResponse:
    """``errors`` names the alarms, such as NOSPACE."""

    version: str = field(2, str)
    db_size: int = field(3, int)
    errors: Sequence[str] = repeated(8, str)
