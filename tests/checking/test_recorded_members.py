"""A recorded member gets over what its library does wrong with any broker."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.checking.history import Op, Recorder, read_history
from tests.checking.recorded_members import METADATA_AGE_MS, ConfluentCooperative
from tests.waits import eventually, within
from trio_broker.testing.broker_thread import broker_in_thread

TOPIC = "grown"
PARTITIONS = 3
WAIT_SECONDS = 60.0


class GrowingMember(ConfluentCooperative):
    """Its topic gains a partition while it gives the first of its own away, as its library learns meanwhile."""

    has_grown = False

    def _revoked(self, consumer: object, partitions: list[Any]) -> None:
        if not self.has_grown:
            self.has_grown = True
            admin = AdminClient({"bootstrap.servers": self.servers})
            within(admin.create_partitions([NewPartitions(TOPIC, PARTITIONS + 1)])[TOPIC].result, WAIT_SECONDS)
            time.sleep(2 * METADATA_AGE_MS / 1000)
        super()._revoked(consumer, partitions)


# Soak: a rebalance waits for a member that does not join it, and then the member for its library.
@pytest.mark.compat
@pytest.mark.soak
def test_a_cooperative_member_whose_topic_grows_while_it_gives_a_partition_away_begins_anew(tmp_path: Path) -> None:
    def has(member: ConfluentCooperative, *counts: int) -> bool:
        member.turn()
        return len(member.consumer.assignment()) in counts

    with broker_in_thread(group_min_session_timeout_ms=500) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        servers = broker.bootstrap_servers
        with closing(GrowingMember(Recorder(tmp_path, "first", "group"), servers, TOPIC)) as first:
            eventually(lambda: has(first, PARTITIONS), WAIT_SECONDS)
            with closing(ConfluentCooperative(Recorder(tmp_path, "second", "group"), servers, TOPIC)) as second:
                eventually(lambda: has(first, PARTITIONS - 1) and has(second, 1, 2), WAIT_SECONDS)
            eventually(lambda: has(first, PARTITIONS + 1), WAIT_SECONDS)
            [lost] = [event for event in read_history(tmp_path) if event.op is Op.LOST]
            assert (lost.process, len(lost.partitions)) == ("first", PARTITIONS - 1)
