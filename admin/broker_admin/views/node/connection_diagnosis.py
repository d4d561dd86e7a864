"""What a client needs to come back to a broker, as the broker can find out from its own machine."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

import attrs

from trio_broker.network.statistics import FailedHandshake


class ProbeResult(enum.Enum):
    """What answered when the broker connected to an advertised address, as a client would."""

    THIS_BROKER = "this broker"
    ANOTHER_BROKER = "another broker"
    NOT_KAFKA = "not Kafka"
    """Something accepts connections and does not answer as a broker does."""
    REFUSED = "refused"
    """Nothing listens there."""
    UNREACHABLE = "unreachable"
    """No answer in time, or no way there."""
    UNRESOLVED = "unresolved"
    """The name has no address."""


@attrs.frozen
class ListenerFacts:
    """One listener, and the address that Metadata answers its clients with.

    An empty ``advertised_host`` stands for the address that a client has dialled; then the probe goes to the bound one.
    ``remote_peers`` are some of the other machines that are connected now, of ``remote_peer_count``.
    """

    listener_name: str
    bound_host: str
    bound_port: int
    advertised_host: str
    advertised_port: int
    resolved_addresses: tuple[str, ...]
    probe: ProbeResult
    remote_peers: tuple[str, ...]
    remote_peer_count: int


class ConnectionDiagnosisView(Protocol):
    """What the admin app asks to find out why a client cannot connect."""

    async def listener_facts(self) -> Sequence[ListenerFacts]:
        """Every listener; it resolves names and connects to the advertised addresses, some seconds at most."""
        ...

    def failed_handshakes(self) -> Sequence[FailedHandshake]:
        """The last connections that ended before they served anybody, latest first."""
        ...
