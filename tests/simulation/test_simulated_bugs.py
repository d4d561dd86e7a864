"""The simulation finds brokers, and disks, that do not keep their promises."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.checking.commits import COMMITS_STAY
from tests.simulation.simulation import EACH_VALUE_ONCE, simulate
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets
from trio_broker.runtime.inode import Inode
from trio_broker.storage.producer_state import ProducerStates

SEEDS = range(6, 36)
"""Far more than it takes; the first that shows the bug is the last that runs."""


def is_found(promise: Callable[[str], bool]) -> bool:
    return any(promise(violation.promise) for seed in SEEDS for violation in simulate(seed).violations)


def test_a_disk_that_does_not_sync_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Inode, "sync", lambda self: None)
    assert is_found(lambda promise: True)


@pytest.mark.soak
def test_a_broker_that_forgets_what_an_idempotent_producer_sent_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ProducerStates, "duplicate_of", lambda self, header: None)
    monkeypatch.setattr(ProducerStates, "check_sequence", lambda self, header: None)
    assert is_found(EACH_VALUE_ONCE.__eq__)


def test_a_group_that_forgets_commits_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(CommittedOffsets, "put", lambda self, key, value: None)
    assert is_found(COMMITS_STAY.__eq__)
