"""Transactions on the keys of one cluster, repeated until etcd answers.

A transaction may only be repeated here if its conditions let it happen once; all of the store's do.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import trio

from trio_broker.cluster.etcd.client import Etcd
from trio_broker.cluster.etcd.errors import EtcdError, EtcdOutOfSpace, EtcdRefused, EtcdUnknown
from trio_broker.cluster.etcd.layout import (
    ClusterState,
    EtcdLayout,
    ForeignMetadata,
    birth_of,
    cluster_bytes,
    cluster_id_of,
    state_of,
    state_operations,
)
from trio_broker.cluster.etcd.messages import (
    Compare,
    RangeRequest,
    RequestOp,
    TxnResponse,
    created_at,
    delete,
    has_value,
    put,
)
from trio_broker.cluster.metadata_store import Claim
from trio_broker.common.log_throttle import LogThrottle

log = logging.getLogger(__name__)

T = TypeVar("T")

ANSWER_SECONDS: Final = 8.0
"""For how long a transaction is repeated that has no answer: etcd elects a new leader in some two seconds."""

RETRY_SECONDS: Final = 0.1
"""Between two tries; a call that is not answered has taken a second already."""

WAIT_SECONDS: Final = 1.0
"""Between two tries of what cannot go on without etcd; where nothing listens, one is over at once."""

OLDEST_VERSION: Final = (3, 4, 23)
"""Of the older ones nothing was tried."""

LOSING_VERSIONS: Final = ((3, 5, 0), (3, 5, 1), (3, 5, 2))
"""Members of these may come to differ after a crash (etcd's issue 13766)."""

NEVER: Final = -1
"""No key was born at this revision: a transaction that compares it does what it does on failure."""


class EtcdTransactions:
    """The transactions of a broker of the cluster ``cluster_id``."""

    def __init__(self, etcd: Etcd, layout: EtcdLayout, cluster_id: str) -> None:
        self.etcd, self.layout = etcd, layout
        self.cluster_id = cluster_id

    @property
    def in_own_cluster(self) -> Compare:
        """That the keys are this cluster's."""
        return has_value(self.layout.cluster, cluster_bytes(self.cluster_id))

    def while_held(self, claim: Claim, *more: Compare) -> Sequence[Compare]:
        """That ``claim`` lasts, and ``more``."""
        return [self.in_own_cluster, created_at(self.layout.controller, birth_of(claim)), *more]

    async def settled(
        self, compare: Sequence[Compare], success: Sequence[RequestOp], failure: Sequence[RequestOp] = ()
    ) -> TxnResponse:
        """Make a transaction, until it is answered.

        Raises:
            EtcdUnknown: it is not, and may have been made.
            EtcdUnavailable: it is not, and was not made.
            EtcdRefused: etcd refuses it.
        """
        gives_up_at, unknown = trio.current_time() + ANSWER_SECONDS, None
        while True:
            try:
                return await self.etcd.txn(compare, success, failure)
            except EtcdRefused as error:
                # Of this try: an earlier one may have been made all the same.
                raise unknown or error from error
            except EtcdError as error:
                if isinstance(error, EtcdUnknown):
                    unknown = error
                if trio.current_time() >= gives_up_at:
                    raise unknown or error from error
                log.debug("a transaction is repeated: %s", error)
                await trio.sleep(RETRY_SECONDS)

    async def entered(self) -> ClusterState:
        """Enter the cluster's id where there is none, and return the state, which may be another cluster's.

        Raises:
            OSError: etcd refuses or does not answer, or may lose data.
        """
        await self.require_version()
        # Read first: an etcd that is full refuses each transaction that could put, and brokers are to start.
        state = await self.state_of_any()
        if state.cluster is None:
            cluster = self.layout.cluster
            await self.made([created_at(cluster, 0)], [put(cluster, cluster_bytes(self.cluster_id))])
            state = await self.state_of_any()
        return state

    async def require_version(self) -> None:
        """Refuse an etcd that may lose data.

        Raises:
            OSError: it may, or does not answer.
        """
        try:
            require_version((await self.etcd.status()).version)
        except EtcdError as error:
            raise as_os_error(error) from error

    async def state(self, more: RangeRequest | None = None) -> ClusterState:
        """Return a state of the keys, with what ``more`` asks for in the same revision. It may be some seconds old.

        Raises:
            OSError: the keys belong to another cluster, or etcd refuses or does not answer.
        """
        state = state_of(await self.made([], state_operations(self.layout, more)))
        self.require_own(state)
        return state

    async def present_state(self, more: RangeRequest | None = None) -> ClusterState:
        """Return a state in which everything is that was answered before.

        Raises:
            OSError: as ``state``.
        """
        state = await self.state_of_any(more)
        self.require_own(state)
        return state

    async def state_of_any(self, more: RangeRequest | None = None) -> ClusterState:
        """As ``present_state``, of whichever cluster the keys are."""
        # etcd orders what could write by its log; plain reads of etcd 3.4 have been stale.
        could_write = delete(self.layout.cluster)
        never = created_at(self.layout.cluster, NEVER)
        return state_of(await self.made([never], [could_write], state_operations(self.layout, more)))

    async def made(
        self, compare: Sequence[Compare], success: Sequence[RequestOp], failure: Sequence[RequestOp] = ()
    ) -> TxnResponse:
        """As ``settled``, with an ``OSError`` for each error."""
        try:
            return await self.settled(compare, success, failure)
        except EtcdError as error:
            raise as_os_error(error) from error

    def require_own(self, state: ClusterState) -> None:
        """Refuse keys that are not this cluster's, or no longer there.

        Raises:
            OSError: they are not.
        """
        prefix = self.layout.prefix.decode()
        if state.cluster is None:
            raise ForeignMetadata(
                errno.ENOENT, f"etcd has no metadata of a cluster under {prefix}: it was emptied or never entered"
            )
        if state.cluster != cluster_bytes(self.cluster_id):
            raise ForeignMetadata(
                errno.EINVAL,
                f"the metadata under {prefix} in etcd is of {cluster_id_of(state.cluster)},"
                f" and the data directory of cluster {self.cluster_id}",
            )


async def until_answered(call: Callable[[], Awaitable[T]], throttle: LogThrottle) -> T:
    """Return what ``call`` does, however long etcd does not answer."""
    while True:
        try:
            return await call()
        except TimeoutError as error:
            throttle.warning("answer", f"the metadata of the cluster is waited for: {error.strerror}")
        await trio.sleep(WAIT_SECONDS)


def require_version(version: str) -> None:
    """Refuse an etcd that is known to lose what it has taken; ``version`` is as in 3.5.12.

    Raises:
        OSError: it is one.
    """
    numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
    if numbers and (numbers < OLDEST_VERSION or numbers[:3] in LOSING_VERSIONS):
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise OSError(
            errno.EPROTONOSUPPORT, f"etcd {version} may lose data: it has to be {oldest} or newer, not 3.5.0 to 3.5.2"
        )


def as_os_error(error: EtcdError) -> OSError:
    """What ``error`` is to a caller that does not know etcd."""
    if isinstance(error, EtcdOutOfSpace):
        return OSError(
            errno.ENOSPC,
            "etcd's database has reached its quota: compact and defragment it, then etcdctl alarm disarm",
        )
    if isinstance(error, EtcdRefused):
        return OSError(errno.EPERM, f"etcd refuses: {error}")
    return OSError(errno.ETIMEDOUT, f"etcd does not answer: {error}")
