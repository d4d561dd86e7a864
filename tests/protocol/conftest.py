"""What the protocol's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

KAFKA_MESSAGES = Path(__file__).parents[2].parent / "shared" / "kafka-messages"


@pytest.fixture(scope="session")
def kafka_messages() -> Path:
    """Kafka's own message schemas, to check ours against; tests that want them skip where they are not at hand."""
    if not KAFKA_MESSAGES.is_dir():
        pytest.skip("Kafka's message schemas are not at hand")
    return KAFKA_MESSAGES
