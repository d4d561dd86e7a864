"""Groups that change their protocol: conversations in ``conversations/migration_*.txt``."""

from __future__ import annotations

import pytest

from tests.coordinator import conversations
from tests.coordinator.consumer.consumer_driver import ConsumerDriver
from trio_broker.coordinator.consumer import upgrade


@pytest.mark.parametrize("path", conversations.files("migration_*.txt"), ids=lambda path: path.stem)
def test_a_group_that_migrates_answers_as_written(path):
    conversations.play(path, ConsumerDriver())


@pytest.mark.parametrize(("readable", "answer"), [(3, "GROUP_ID_NOT_FOUND"), (4, "epoch 2, assigned -")])
def test_a_group_whose_members_name_more_topics_than_are_read_at_once_stays_what_it_is(monkeypatch, readable, answer):
    # Two topics of the one member, one of the other, and one in an assignment.
    monkeypatch.setattr(upgrade, "MAX_READ_TOPICS", readable)
    play = ConsumerDriver()
    play("topic", {"name": "foo", "partitions": "2"})
    play("settings", {"group_initial_rebalance_delay_ms": "0"})
    for client, topics in (("a", "foo,bar"), ("b", "foo")):
        play("classic_join", {"client": client, "topics": topics, "version": "3"})
    play("tick", {})
    play("classic_sync", {"member": "a-1", "generation": "1", "assign": "a-1=foo:0,1"})
    assert play("join", {"member": "c", "topics": "foo"}).startswith(answer)
