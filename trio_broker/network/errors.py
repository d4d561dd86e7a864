"""Why a connection of a client ends, with the cause that is counted and the reason that is logged; and what may become
of a request that this broker sends to another one."""

from __future__ import annotations

import enum
import logging


class CloseCause(enum.Enum):
    """The causes that are counted apart; each has a log level."""

    PEER = "peer"
    """The client closed, or its network did."""
    REFUSED = "refused"
    """What the client sent cannot be answered, and is none of the following."""
    TLS = "TLS"
    """A TLS handshake on a listener without TLS."""
    HANDSHAKE = "TLS handshake failed"
    """On a listener with TLS: not finished in time, or refused by either side."""
    NO_TLS = "no TLS"
    """Bytes that are no TLS on a listener with TLS."""
    HTTP = "HTTP"
    """An HTTP request."""
    UNSUPPORTED_VERSION = "unsupported version"
    """A request of an API or a version that is not served."""
    AUTHENTICATION = "authentication"
    """The client did not log in, or its login has expired."""
    TRUNCATED = "truncated frame"
    """The client closed, or its network did, in the middle of a request."""
    IDLE = "idle"
    SLOW_FRAME = "slow frame"
    STUCK_RESPONSE = "stuck response"
    GONE_WHILE_WAITING = "gone while waiting"
    FAILURE = "failure"
    """An error of the broker."""
    STOPPING = "stopping"

    @property
    def log_level(self) -> int:
        """DEBUG for ordinary ends, INFO for a client lost in mid-request, WARNING for errors of the client or of the
        broker."""
        if self is CloseCause.TRUNCATED:
            return logging.INFO
        quiet = (CloseCause.PEER, CloseCause.IDLE, CloseCause.GONE_WHILE_WAITING, CloseCause.STOPPING)
        return logging.DEBUG if self in quiet else logging.WARNING


class CloseConnection(Exception):
    """This connection must end, and its text says why: it becomes one line of the log."""

    def __init__(self, reason: str, cause: CloseCause = CloseCause.REFUSED) -> None:
        super().__init__(reason)
        self.cause = cause

    def without_traceback(self) -> CloseConnection:
        """The same reason without a traceback, to be kept in a variable or raised from a function that was given it.

        A traceback has the frames that the error has passed. Where one of them refers to the error, both, and the
        request that these frames handled, stay in memory until the collector finds the cycle, which may be an hour
        (docs/decisions/0048).
        """
        return CloseConnection(str(self), self.cause)


class NotTls(CloseConnection):
    """The first bytes of a connection on a listener with TLS are something else."""

    def __init__(self, first_bytes: bytes) -> None:
        super().__init__(
            "not TLS: the client speaks without it, and this listener has security.protocol SSL or SASL_SSL",
            CloseCause.NO_TLS,
        )
        self.first_bytes = first_bytes


STOPPING = CloseConnection("the server is stopping", CloseCause.STOPPING)


class ShortRegion(CloseConnection):
    """A file holds fewer bytes than were promised to the client.

    The frame's size is already on the wire, so nothing but closing is left: the client would wait forever for the rest.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason, CloseCause.FAILURE)


class RequestFailed(Exception):
    """A request to another broker was not answered; the text names the broker and says why."""


class RequestNotSent(RequestFailed):
    """It was not sent, so it was not carried out."""


class ResponseLost(RequestFailed):
    """It was sent; whether it was carried out is unknown."""
