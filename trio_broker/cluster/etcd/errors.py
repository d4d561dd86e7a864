"""What a call of etcd may come to, besides an answer."""

from __future__ import annotations

import enum
from typing import Final


class MalformedMessage(ValueError):
    """The bytes are no such protobuf message."""


class EtcdError(Exception):
    """A call has no answer of use. The subclass says whether it was carried out."""


class EtcdUnknown(EtcdError):
    """The call may have been carried out, or may be yet: a deadline, a lost connection, a member without a leader."""


class EtcdUnavailable(EtcdError):
    """The call was not carried out, and may be later: nobody could be reached, or etcd has too many requests."""


class EtcdRefused(EtcdError):
    """The call was not carried out, and will not be: a limit, a missing permission, a mistake of ours."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} (gRPC code {code})")
        self.code = code


class EtcdNotAuthenticated(EtcdRefused):
    """The token has expired, or none was sent and one is needed."""


class EtcdLeaseGone(EtcdRefused):
    """There is no such lease: it has ended, or was revoked."""


class EtcdOutOfSpace(EtcdRefused):
    """etcd's database has reached its quota: puts and new leases are refused until an operator has made room."""


class GrpcStatus(enum.IntEnum):
    """The codes of gRPC that mean something here."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    ABORTED = 10
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


UNKNOWN_CODES: Final = frozenset(
    {
        GrpcStatus.CANCELLED,
        GrpcStatus.UNKNOWN,
        GrpcStatus.DEADLINE_EXCEEDED,
        GrpcStatus.ABORTED,
        GrpcStatus.INTERNAL,
        GrpcStatus.UNAVAILABLE,
        GrpcStatus.DATA_LOSS,
    }
)


def error_of(code: int, text: str) -> EtcdError:
    """The error that a gRPC status stands for.

    Source: etcd's api/v3rpc/rpctypes/error.go.
    """
    if code in UNKNOWN_CODES:
        return EtcdUnknown(f"{text} (gRPC code {code})")
    if code == GrpcStatus.RESOURCE_EXHAUSTED:
        return EtcdOutOfSpace(code, text) if "database space exceeded" in text else EtcdUnavailable(text)
    if code == GrpcStatus.NOT_FOUND and "lease" in text:
        return EtcdLeaseGone(code, text)
    if code == GrpcStatus.UNAUTHENTICATED or "user name is empty" in text:
        return EtcdNotAuthenticated(code, text)
    return EtcdRefused(code, text)
