"""Before a controller fences all other brokers because it hears none of them, it offers its claim to them.

It may be the last one that lives, or the one that nobody reaches, whose store of metadata is reached by all: by a wrong
``advertised.listeners``, or a network that is cut. It gives the claim up for a moment, in which any other that lives
takes it, and goes on from there; that one fences it, and it comes back by its own heartbeats, if it can. A claim that
nobody took is claimed again, and then the silent ones are fenced.

Source: Raft's check quorum, and LeaderState.timeUntilCheckQuorumExpires in Kafka's KafkaRaftClient.
"""

from __future__ import annotations

import logging
from typing import Final

import attrs
import trio

from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeatManager
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_store import Claim

OFFER_SECONDS: Final = 2.0
"""How long a claim is left to others: they look for it each second, where they did not hear at once."""

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class ClaimOffer:
    """The offer of the claim of the controller that is broker ``node_id``."""

    node_id: int
    sessions: BrokerHeartbeatManager
    is_declined: bool = attrs.field(default=False, init=False)
    """Whether nobody else took the claim, and nobody was heard since."""
    _offered: Claim | None = attrs.field(default=None, init=False)
    _holding: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def holding(self, claim: Claim) -> trio.CancelScope:
        """The scope in which ``claim`` is held, that ends when it is offered."""
        self.is_declined = self._offered is not None and claim.epoch == self._offered.epoch + 1
        self._offered, self._holding = None, trio.CancelScope()
        return self._holding

    def make_if_alone(self, claim: Claim, image: MetadataImage, now: float) -> bool:
        """Offer ``claim`` if no other broker is heard, unless nobody wanted it; return whether it is offered."""
        if not self.sessions.is_alone(self.node_id, image, now):
            self.is_declined = False
        elif not self.is_declined:
            log.warning("no other broker is heard: the next controller is the one that claims first")
            self._offered = claim
            self._holding.cancel()
        return self._offered is not None

    async def wait_taken(self) -> None:
        """Give the others time for a claim that is offered."""
        if self._offered is not None:
            await trio.sleep(OFFER_SECONDS)
