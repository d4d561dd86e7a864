"""A producer whose transaction records belong to."""

from __future__ import annotations

from typing import Final

import attrs

from kafka_wire.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


@attrs.frozen
class ProducerIdAndEpoch:
    """A producer, as its batches name it."""

    producer_id: int
    epoch: int


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
"""Records outside of any transaction."""
