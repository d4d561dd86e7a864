"""How long what is outside of this process may take, for all that asks it, with or without an event loop."""

from __future__ import annotations

from typing import Final

CONNECT_SECONDS: Final = 10.0
"""The longest wait for one address to take a connection, Kafka's default of ``socket.connection.setup.timeout.ms``: a
host that drops packets silently must not hold its caller for the minutes after which a kernel gives up, and has to
leave time for the next address."""
