"""What the protocol's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles import absent

KAFKA_MESSAGES = Path(__file__).parents[2].parent / "shared" / "kafka-messages-4.4.0"


@pytest.fixture(scope="session")
def kafka_messages() -> Path:
    """Kafka's own message schemas, to check ours against; see ``tests.oracles`` for where they are not at hand."""
    if not KAFKA_MESSAGES.is_dir():
        absent("schemas", "Kafka's message schemas are not at hand")
    return KAFKA_MESSAGES
