"""Random numbers and uuids, drawn from the ``Random`` of a broker's runtime.

The real one is the system's, since nobody may guess the next id; it is safe in any thread. A
simulated one follows from a seed.
"""

from __future__ import annotations

import uuid
from random import Random as Random

from kafka_wire.primitives import RESERVED_UUIDS, UUID_BYTES, uuid_text


def random_uuid_text(random: Random) -> str:
    """Return a new random uuid (version 4) as Java writes it, with dashes."""
    return str(uuid.UUID(bytes=random.randbytes(UUID_BYTES), version=4))


def random_uuid(random: Random) -> bytes:
    """Return a new random uuid (version 4), none of the reserved ones.

    As Kafka's does, it avoids a text that begins with a dash, which a command line would take for an option.
    """
    while True:
        drawn = uuid.UUID(bytes=random.randbytes(UUID_BYTES), version=4).bytes
        if drawn not in RESERVED_UUIDS and not uuid_text(drawn).startswith("-"):
            return drawn
