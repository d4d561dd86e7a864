"""Groups that change their protocol: conversations in ``conversations/migration_*.txt``."""

from __future__ import annotations

import pytest

from tests.coordinator import conversations
from tests.coordinator.consumer.consumer_driver import ConsumerDriver


@pytest.mark.parametrize("path", conversations.files("migration_*.txt"), ids=lambda path: path.stem)
def test_a_group_that_migrates_answers_as_written(path):
    conversations.play(path, ConsumerDriver())
