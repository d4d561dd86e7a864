"""A broker with a transaction coordinator that tries again at once, and a client of it."""

from __future__ import annotations

import pytest

from tests.handlers.transaction_client import running_transactions
from trio_broker.coordinator.transactions import transaction_marker_channel_manager


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr(transaction_marker_channel_manager, "MARKER_RETRY_SECONDS", 0.001)


@pytest.fixture
async def client(memory_path):
    async with running_transactions(memory_path) as client:
        yield client
