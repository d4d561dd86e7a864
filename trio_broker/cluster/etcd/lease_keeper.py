"""A lease of etcd that is held before it is needed, and renewed.

A broker that may become the controller has one all the time: etcd refuses new leases when its database is full, and
still renews old ones. Renewals prove little: that of etcd 3.4 may be for a lease that is gone, and some are answered
late or never. So ``deadline`` counts from before the request, and decides nothing but what is answered without etcd.

Source: etcd's documentation of leases, its issue 15247.
"""

from __future__ import annotations

import logging
from typing import Final

import attrs
import trio

from trio_broker.cluster.etcd.client import Etcd
from trio_broker.cluster.etcd.errors import EtcdError
from trio_broker.cluster.etcd.pulse import Pulse
from trio_broker.common.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

LEASE_SECONDS: Final = 3
"""How long a controller that has died keeps its claim: the next one follows after that, and an election in etcd. A
lease of one second is not granted, and a busy disk would lose one of two."""

RENEWALS_PER_LEASE: Final = 4
"""One may be lost, and the next one be slow."""

RETRY_SECONDS: Final = 0.25


@attrs.define(eq=False)
class HeldLease:
    """A lease, and until when it lives by Trio's clock, unless etcd ends it early."""

    id: int
    ttl_seconds: int
    deadline: float
    is_abandoned: bool = False

    @property
    def is_alive(self) -> bool:
        """As far as is known."""
        return not self.is_abandoned and trio.current_time() < self.deadline


class LeaseKeeper:
    """Grants, renews and replaces the lease, while ``run`` runs."""

    def __init__(self, etcd: Etcd, throttle: LogThrottle) -> None:
        self._etcd = etcd
        self._throttle = throttle
        self._lease: HeldLease | None = None
        self.changed = Pulse()

    async def held(self) -> HeldLease:
        """Wait until there is a lease that lives, and return it."""
        while (lease := self._lease) is None or not lease.is_alive:
            await self.changed.wait()
        return lease

    def abandon(self, lease: HeldLease) -> None:
        """Have ``lease`` ended, and another one granted: what it holds in etcd is to go."""
        lease.is_abandoned = True
        if lease is self._lease:
            self._lease = None
        self.changed.wake()

    async def run(self) -> None:
        while True:
            lease = self._lease = await self._grant()
            self.changed.wake()
            await self._renew_until_gone(lease)
            self.abandon(lease)
            await self.revoke(lease)

    async def _grant(self) -> HeldLease:
        while True:
            requested_at = trio.current_time()
            try:
                granted = await self._etcd.lease_grant(LEASE_SECONDS)
            except EtcdError as error:
                self._throttle.warning("lease", f"etcd grants no lease to become the controller with: {error}")
                await trio.sleep(RETRY_SECONDS)
            else:
                return HeldLease(granted.id, granted.ttl, requested_at + granted.ttl)

    async def _renew_until_gone(self, lease: HeldLease) -> None:
        next_renewal = trio.current_time() + lease.ttl_seconds / RENEWALS_PER_LEASE
        while not lease.is_abandoned:
            if trio.current_time() < next_renewal:
                await self.changed.wait(until=next_renewal)
                continue
            requested_at = trio.current_time()
            try:
                renewed = await self._etcd.lease_keep_alive(lease.id)
            except EtcdError as error:
                logger.debug("lease %d was not renewed: %s", lease.id, error)
                next_renewal = trio.current_time() + RETRY_SECONDS
                continue
            if not renewed.ttl:
                return
            lease.deadline = max(lease.deadline, requested_at + renewed.ttl)
            next_renewal = requested_at + lease.ttl_seconds / RENEWALS_PER_LEASE
            self.changed.wake()

    async def revoke(self, lease: HeldLease) -> None:
        """Try once to have etcd end ``lease``, which ends by itself as well."""
        try:
            await self._etcd.lease_revoke(lease.id)
        except EtcdError as error:
            logger.debug("lease %d is left to expire: %s", lease.id, error)
