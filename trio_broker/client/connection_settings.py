"""How a client reaches a cluster; the same for all connections of a command, a producer or a job."""

from __future__ import annotations

from typing import Final

import attrs

from trio_broker.client.address import Address
from trio_broker.client.security import ClientSecurity

SYSTEMS_CHOICE: Final = -1
"""The size of the socket's receive buffer that leaves it to the system, which then adapts it; Kafka's meaning of -1."""


@attrs.frozen
class ConnectionSettings:
    """``bootstrap`` are the addresses that the user gave; ``client_id`` is in every request.

    ``receive_buffer_bytes`` is the size of each socket's buffer.
    """

    bootstrap: tuple[Address, ...]
    client_id: str
    security: ClientSecurity = attrs.field(factory=ClientSecurity)
    receive_buffer_bytes: int = SYSTEMS_CHOICE
