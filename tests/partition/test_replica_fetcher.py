"""Followers copy what their leaders have, and cut what those have not, whatever happens in between."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.fetch import FetchRequest
from tests.partition.replicating_brokers import epochs_of
from trio_broker.partition.flusher import Flusher
from trio_broker.partition.follower_appends import FollowerAppends
from trio_broker.partition.partition import Durability
from trio_broker.partition.writer import PartitionWriter
from trio_broker.storage.leader_epochs import LeaderEpochs
from trio_broker.storage.log import Log

SOON = 2.0
"""Seconds after which followers have what there is: several fetches, and the pause after an error."""

HELD_BACK = 0.5
"""Seconds for which a leader without news holds back the answer to a Fetch."""


@pytest.fixture(params=["page-cache", "fsync"])
async def brokers(request, start_brokers):
    return await start_brokers(log_durability=request.param)


async def test_records_arrive_with_their_epochs_and_the_high_watermark_follows(brokers, autojump_clock):
    await brokers.decide(1, 5)
    await brokers[1].append(b"a", b"b")
    await brokers[1].append(b"c")
    await trio.sleep(SOON)
    leader, follower = brokers[1].partition(), brokers[2].partition()
    assert brokers[2].values() == [b"a", b"b", b"c"]
    assert epochs_of(follower) == epochs_of(leader) == [(5, 0)]
    assert leader.high_watermark == follower.high_watermark == 3


async def test_a_fetch_says_who_asks_and_what_it_has(brokers, autojump_clock):
    await brokers.decide(1, 5)
    await brokers[1].append(b"a")
    await trio.sleep(SOON)
    request = [each for each in brokers[1].seen if each.topics][-1]
    assert isinstance(request, FetchRequest)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 102)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10 << 20)
    [[asked]] = [topic.partitions for topic in request.topics]
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (1, 5, 5)
    assert (asked.partition_max_bytes, asked.log_start_offset) == (1 << 20, 0)


async def test_a_follower_that_was_ahead_cuts_what_its_new_leader_has_not(brokers, autojump_clock):
    await brokers.decide(1, 5)
    await brokers[1].append(b"both")
    await trio.sleep(SOON)
    brokers[1].is_away = True
    await brokers[1].append(b"lost 1")
    await brokers[1].append(b"lost 2")
    await brokers.decide(2, 6)
    await brokers[2].append(b"new")
    await trio.sleep(SOON)
    assert brokers[1].values() == brokers[2].values() == [b"both", b"new"]
    assert epochs_of(brokers[1].partition()) == [(5, 0), (6, 1)]
    assert brokers[1].partition().high_watermark == 2


async def test_several_elections_are_cut_back_epoch_by_epoch(brokers, autojump_clock):
    """Each of the two has led an epoch of which the other has heard nothing."""
    await brokers.decide(1, 5)
    await brokers[1].append(b"both")
    await trio.sleep(SOON)
    brokers[1].is_away = brokers[2].is_away = True
    await brokers.decide(1, 6, on=(1,))
    await brokers[1].append(b"of 1 in 6", b"again")
    await brokers.decide(2, 7, on=(2,))
    await brokers[2].append(b"of 2 in 7")
    await brokers.decide(1, 8, on=(1,))
    await brokers[1].append(b"of 1 in 8")
    brokers[1].is_away = brokers[2].is_away = False
    await brokers.decide(2, 9)
    await brokers[2].append(b"of 2 in 9")
    await trio.sleep(SOON)
    assert brokers[1].values() == brokers[2].values() == [b"both", b"of 2 in 7", b"of 2 in 9"]
    assert epochs_of(brokers[1].partition()) == epochs_of(brokers[2].partition()) == [(5, 0), (7, 1), (9, 2)]


async def test_nothing_is_cut_at_the_high_watermark_of_the_follower(brokers, autojump_clock):
    """KIP-101: the follower does not know yet that the last record is committed."""
    everywhere: dict[str, Any] = {"replicas": (1, 2, 3), "isr": (1, 2, 3)}
    await brokers.decide(1, 5, **everywhere)
    await brokers[1].append(b"a")
    await trio.sleep(SOON)
    followers = [brokers[each].partition() for each in (2, 3)]

    async def go_away_when_all_have_the_record(request):
        brokers[1].is_away = all(each.log_end_offset == 2 for each in followers)

    brokers[1].before_answer = go_away_when_all_have_the_record
    await brokers[1].append(b"b")
    await trio.sleep(SOON)
    assert [(each.log_end_offset, each.high_watermark) for each in followers] == [(2, 1)] * 2
    await brokers.decide(3, 6, **everywhere)
    await trio.sleep(SOON)
    asked = [each for request in brokers[3].seen for topic in request.topics for each in topic.partitions]
    assert {each.fetch_offset for each in asked} == {2}
    assert brokers[2].values() == [b"a", b"b"]


async def test_a_follower_behind_the_leader_s_log_start_begins_anew_there(brokers, autojump_clock):
    await brokers.decide(1, 5, isr=(1,))
    brokers[1].is_away = True
    for number in range(6):
        await brokers[1].append(b"%d" % number + b"v" * 900)
    await brokers.decide(1, 5, isr=(1,), replicas=(1,), on=(1,))
    leader = brokers[1].partition()
    await brokers[1].replicas.flusher.wait_idle(leader.writer)
    await leader.writer.delete_before(4)
    await brokers.decide(1, 6, isr=(1,))
    brokers[1].is_away = False
    await trio.sleep(SOON)
    follower = brokers[2].partition()
    assert [value[:1] for value in brokers[2].values()] == [b"4", b"5"]
    assert (follower.log_start_offset, follower.log_end_offset) == (4, 6)
    assert epochs_of(follower) == [(5, 4)]


async def test_a_follower_ahead_of_a_leader_that_knows_none_of_its_epochs_cuts_at_its_end(brokers, autojump_clock):
    """After an unclean election of a replica that had nothing."""
    await brokers.decide(1, 5, replicas=(1, 2, 3), isr=(1, 2))
    for value in (b"a", b"b", b"c"):
        await brokers[1].append(value)
    brokers[3].partition().log.epochs.replace([])
    await brokers.decide(3, 6, replicas=(1, 2, 3), isr=(3,))
    await brokers[3].append(b"new")
    await trio.sleep(SOON)
    assert brokers[2].values() == brokers[3].values()


async def test_records_that_the_leader_deletes_go_at_the_follower_too(brokers, autojump_clock):
    await brokers.decide(1, 5)
    for value in (b"a", b"b", b"c"):
        await brokers[1].append(value)
    await trio.sleep(SOON)
    await brokers[1].partition().writer.delete_before(2)
    await trio.sleep(SOON)
    assert brokers[2].partition().log_start_offset == 2
    assert brokers[2].values() == [b"c"]


async def test_a_leader_that_is_away_is_asked_again_until_it_is_back(brokers, autojump_clock):
    await brokers.decide(1, 5)
    brokers[1].is_away = True
    await brokers[1].append(b"a")
    await trio.sleep(SOON)
    assert brokers[2].values() == []
    brokers[1].is_away = False
    await trio.sleep(SOON)
    assert brokers[2].values() == [b"a"]
    # With a pause between two: the settings say a second.
    brokers[1].is_away = True
    brokers[1].seen.clear()
    await trio.sleep(3)
    assert len(brokers[1].seen) <= 1


async def test_a_stale_answer_is_not_taken_once_the_leader_epoch_has_changed(brokers, autojump_clock):
    await brokers.decide(1, 5)
    await trio.sleep(SOON)

    async def elect_in_between(request):
        brokers[1].before_answer = None
        await brokers.decide(3, 6, replicas=(1, 2, 3), isr=(1, 2, 3))

    await brokers[1].append(b"a")
    brokers[1].before_answer = elect_in_between
    await trio.sleep(SOON)
    assert brokers[2].values() == []
    assert epochs_of(brokers[2].partition()) == []


async def test_an_epoch_is_on_the_disk_before_its_first_record(brokers, autojump_clock, monkeypatch):
    written = []
    append = Log.append_as_follower

    def note(log, *arguments):
        written.append([(each.epoch, each.start_offset) for each in LeaderEpochs.load(log.disk, log.directory).entries])
        return append(log, *arguments)

    monkeypatch.setattr(Log, "append_as_follower", note)
    await brokers.decide(1, 5)
    await brokers[1].append(b"a")
    await trio.sleep(SOON)
    await brokers.decide(1, 6)
    await brokers[1].append(b"b")
    await trio.sleep(SOON)
    assert written == [[(5, 0)], [(5, 0), (6, 1)]]


async def test_in_fsync_mode_a_fetch_asks_for_nothing_that_follows_what_is_not_on_the_disk(
    brokers, autojump_clock, monkeypatch
):
    """A partition whose sync takes long is left out, and the others go on."""
    await brokers.decide(1, 5, partitions=2)
    await trio.sleep(SOON)
    is_durable = brokers[2].partition(0).durability is Durability.FSYNC
    slow = brokers[2].partition(0).writer
    enqueue = Flusher._enqueue
    held = []
    monkeypatch.setattr(
        Flusher, "_enqueue", lambda self, each: held.append(each) if each is slow else enqueue(self, each)
    )
    await brokers[1].append(b"a", index=0)
    await brokers[1].append(b"b", index=1)
    await trio.sleep(SOON)
    for number in range(3):
        await brokers[1].append(b"c%d" % number, index=1)
        await trio.sleep(SOON)
    assert brokers[2].values(index=1) == [b"b", b"c0", b"c1", b"c2"]
    assert brokers[1].partition(0).high_watermark == (0 if is_durable else 1)
    monkeypatch.setattr(Flusher, "_enqueue", enqueue)
    for each in held:
        enqueue(brokers[2].replicas.flusher, each)
    await trio.sleep(SOON)
    assert brokers[1].partition(0).high_watermark == brokers[2].partition(0).high_watermark == 1


async def test_a_partition_that_takes_long_holds_up_the_others_for_one_turn(brokers, autojump_clock, monkeypatch):
    await brokers.decide(1, 5, partitions=2)
    await trio.sleep(SOON)
    slow, write_epochs = brokers[2].partition(0).writer, PartitionWriter.write_epochs
    goes_on = trio.Event()

    async def write_late(writer):
        if writer is slow:
            await goes_on.wait()
        await write_epochs(writer)

    monkeypatch.setattr(PartitionWriter, "write_epochs", write_late)
    await brokers[1].append(b"a", index=0)
    for number in range(3):
        await brokers[1].append(b"%d" % number, index=1)
        await trio.sleep(SOON)
        assert len(brokers[2].values(index=1)) == number + 1
    assert brokers[2].values(index=0) == []
    goes_on.set()
    await trio.sleep(SOON)
    assert brokers[2].values(index=0) == [b"a"]


async def test_a_partition_whose_disk_fails_is_fetched_no_more_and_others_are(brokers, autojump_clock):
    await brokers.decide(1, 5, partitions=2)
    await trio.sleep(SOON)
    failure = KafkaError("the disk is broken", code=ErrorCode.KAFKA_STORAGE_ERROR)
    brokers[2].partition(0).fail(failure)
    await trio.sleep(SOON)
    brokers[1].seen.clear()
    await brokers[1].append(b"a", index=1)
    await trio.sleep(SOON)
    asked = {each.partition for request in brokers[1].seen for topic in request.topics for each in topic.partitions}
    assert asked == {1}
    assert brokers[2].values(index=1) == [b"a"]
    assert brokers[2].fetchers.statistics().failed_partitions == 1


async def test_what_the_log_refuses_is_asked_for_again_after_a_pause(brokers, autojump_clock, monkeypatch):
    await brokers.decide(1, 5)
    check = Log.check_replicated
    refusals: list[float] = []

    def refuse_once(log, records, leader_epoch):
        if not refusals:
            refusals.append(trio.current_time())
            raise KafkaError("damaged on its way", code=ErrorCode.CORRUPT_MESSAGE)
        assert trio.current_time() - refusals[0] >= 1.0
        return check(log, records, leader_epoch)

    monkeypatch.setattr(Log, "check_replicated", refuse_once)
    await brokers[1].append(b"a")
    await trio.sleep(SOON)
    assert brokers[2].values() == [b"a"]
    assert brokers[2].partition().high_watermark == 1


async def test_partitions_without_news_are_named_once(brokers, autojump_clock):
    await brokers.decide(1, 5, partitions=20)
    await trio.sleep(SOON)
    brokers[1].seen.clear()
    await trio.sleep(SOON)
    assert brokers[1].seen
    assert not any(request.topics or request.forgotten_topics_data for request in brokers[1].seen)
    await brokers[1].append(b"a", index=7)
    await trio.sleep(SOON)
    assert {each.partition for request in brokers[1].seen for topic in request.topics for each in topic.partitions} == {
        7
    }
    assert brokers[2].values(index=7) == [b"a"]
    assert brokers[1].partition(7).high_watermark == brokers[2].partition(7).high_watermark == 1


async def test_what_an_answer_said_of_an_epoch_that_was_over_is_said_again(brokers, autojump_clock):
    """The high watermark, which does not move again."""
    await brokers.decide(1, 5)
    await brokers[1].append(b"a")
    await trio.sleep(SOON)

    async def begin_another_epoch(request):
        if brokers[1].partition().high_watermark == 2:
            brokers[1].before_answer = None
            await brokers.decide(1, 6)

    brokers[1].before_answer = begin_another_epoch
    await brokers[1].append(b"b")
    await trio.sleep(SOON)
    assert brokers[1].before_answer is None
    assert brokers[2].partition().high_watermark == 2


async def test_a_session_that_the_leader_has_forgotten_begins_anew_at_once(brokers, autojump_clock):
    await brokers.decide(1, 5)
    await trio.sleep(SOON)
    cache = brokers[1].replicas.fetch_sessions
    cache._sessions.clear()
    await brokers[1].append(b"a")
    # Less than the pause after an error.
    await trio.sleep(0.9)
    assert brokers[2].values() == [b"a"]
    assert len(cache) == 1


async def test_a_leader_that_calls_the_epoch_over_is_asked_no_more_until_the_next(brokers, autojump_clock):
    await brokers.decide(1, 5)
    await brokers.decide(1, 6, on=(1,))
    await trio.sleep(SOON)
    brokers[1].seen.clear()
    await brokers[1].append(b"a")
    await trio.sleep(SOON)
    assert brokers[1].seen == []
    await brokers.decide(1, 6, on=(2,))
    await trio.sleep(SOON)
    assert brokers[2].values() == [b"a"]


async def test_a_leader_that_has_yet_to_read_of_its_epoch_is_asked_again(brokers, autojump_clock):
    await brokers.decide(1, 5, on=(1,))
    await brokers.decide(1, 6, on=(2,))
    await trio.sleep(SOON)
    await brokers.decide(1, 6, on=(1,))
    await brokers[1].append(b"a")
    await trio.sleep(SOON)
    assert brokers[2].values() == [b"a"]


async def test_new_partitions_do_not_wait_for_a_fetch_that_is_held_back(brokers, autojump_clock):
    await brokers.decide(1, 5)
    await trio.sleep(SOON)
    await brokers.decide(1, 5, topic="new", topic_id=b"\x07" * 16)
    await brokers[1].append(b"a", topic="new")
    await trio.sleep(HELD_BACK / 10)
    assert brokers[1].partition(topic="new").high_watermark == 1


async def test_a_leader_that_reads_of_its_epoch_a_little_later_is_asked_again_a_little_later(brokers, autojump_clock):
    """Also while the leader holds back a Fetch of what it has read of."""
    await brokers.decide(1, 5)
    await brokers.decide(1, 5, topic="new", topic_id=b"\x07" * 16, on=(1,))
    await trio.sleep(SOON)
    await brokers.decide(1, 6, topic="new", topic_id=b"\x07" * 16, on=(2,))
    await trio.sleep(0.1)
    await brokers.decide(1, 6, topic="new", topic_id=b"\x07" * 16, on=(1,))
    await brokers[1].append(b"a", topic="new")
    await trio.sleep(HELD_BACK / 2)
    assert brokers[1].partition(topic="new").high_watermark == 1


async def test_a_bug_in_one_partition_costs_that_one_alone(brokers, autojump_clock, monkeypatch, caplog):
    await brokers.decide(1, 5, partitions=2)
    append = FollowerAppends.append

    async def fail(self, partition, records, **options):
        assert partition.topic_partition.partition == 1, "a bug"
        return await append(self, partition, records, **options)

    monkeypatch.setattr(FollowerAppends, "append", fail)
    for index in (0, 1):
        await brokers[1].append(b"a", index=index)
    await trio.sleep(SOON)
    assert (brokers[2].values(index=0), brokers[2].values(index=1)) == ([], [b"a"])
    assert "orders-0: replication failed" in caplog.text
