"""The metadata log on a disk."""

from __future__ import annotations

import json
from pathlib import PurePath
from uuid import uuid4

import attrs
import pytest

from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.control import ControlRecordType, read_control_record
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.metadata import TopicRecord, encode_metadata_record
from tests.fakes.metadata_logs import append, leading_log
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.leader_change import leader_change_value
from trio_broker.cluster.metadata_log import METADATA_TOPIC_ID, MetadataLog, read_quorum_state
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.storage.append import AppendOrigin

DATA = PurePath("/data")


def topic(name):
    return TopicRecord(name=name, topic_id=uuid4().bytes)


@pytest.fixture
def segment(tmp_path):
    return tmp_path / "__cluster_metadata-0" / f"{0:020}.log"


def batches(segment):
    return list(read_batches(segment.read_bytes()))


async def test_what_was_appended_comes_back_in_order_after_a_crash(reopen):
    first = [topic("a"), topic("b")]
    second = [topic("c")]
    log = reopen()
    await append(log, first)
    await append(log, second)
    assert list(reopen().replay()) == first + second


async def test_an_append_counts_only_when_it_is_on_the_disk(reopen):
    log = reopen()
    await append(log, [topic("a")])
    assert log.log.recovery_point == log.log_end_offset


async def test_a_power_cut_takes_nothing_that_was_appended_not_even_to_a_new_log():
    """A hundred cuts: each keeps another part of the names that nobody synced."""
    for seed in range(100):
        clock = ManualClock()
        disk = SimulatedDisk(clock, seed)
        disk.make_directory(DATA)
        disk.sync_directory(DATA.parent)
        runtime = attrs.evolve(real_runtime(clock), disk=disk)
        log = leading_log(DATA, runtime)
        records = [topic("a")]
        await append(log, records)
        again = attrs.evolve(runtime, disk=disk.power_cut())
        assert list(leading_log(DATA, again).replay()) == records, seed


async def test_what_is_not_synced_is_not_durable(reopen):
    log = reopen()
    await append(log, [topic("a")])
    assert (log.durable_end, log.log_end_offset) == (2, 2)
    value = encode_metadata_record(topic("b"))
    unsynced = bytearray(build_batch([NewRecord(0, None, value)]))
    log.log.append(unsynced, leader_epoch=1, now_ms=0, origin=AppendOrigin.COORDINATOR)
    assert (log.durable_end, log.log_end_offset) == (2, 3)


async def test_one_append_is_one_batch_and_tells_its_first_offset(reopen, segment):
    log = reopen()
    offset = log.log_end_offset
    assert await append(log, [topic("a"), topic("b")]) == offset
    batch = batches(segment)[-1]
    assert (batch.header.base_offset, batch.header.record_count) == (offset, 2)


async def test_a_torn_decision_is_gone_as_a_whole(reopen, segment):
    log = reopen()
    kept = topic("a")
    await append(log, [kept])
    await append(log, [topic("b"), topic("c")])
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 1)
    assert list(reopen().replay()) == [kept]


async def test_every_start_is_a_new_epoch_that_opens_with_a_leader_change(reopen, segment):
    reopen()
    log = reopen()
    await append(log, [topic("a")])
    headers = [batch.header for batch in batches(segment)]
    assert [(header.partition_leader_epoch, header.is_control) for header in headers] == [
        (1, True),
        (2, True),
        (2, False),
    ]
    [record] = batches(segment)[1].records()
    assert read_control_record(record).type is ControlRecordType.LEADER_CHANGE


def test_a_leader_change_names_the_only_voter():
    assert leader_change_value(1).hex() == "0000" + "00000001" + "020000000100" * 2 + "00"


def test_the_quorum_state_is_one_line_as_kafka_writes_it(reopen, segment):
    reopen()
    reopen()
    state = (segment.parent / "quorum-state").read_text()
    assert json.loads(state) == {
        "leaderId": 1,
        "leaderEpoch": 2,
        "votedId": 1,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
        "data_version": 1,
    }
    assert "\n" not in state
    assert "topic_id: AAAAAAAAAAAAAAAAAAAAAQ" in (segment.parent / "partition.metadata").read_text()
    assert METADATA_TOPIC_ID.hex() == "00" * 15 + "01"


def test_an_epoch_is_never_used_again_even_if_the_log_is_behind(reopen, segment):
    reopen()
    (segment.parent / "quorum-state").write_text('{"leaderId":1,"leaderEpoch":7}')
    assert reopen().leader_epoch == 8
    (segment.parent / "quorum-state").unlink()
    assert reopen().leader_epoch == 9


@pytest.mark.parametrize("epoch", [-2, 2**31 - 1, 2**31, 10**40])
def test_no_epoch_follows_the_last_one(reopen, segment, epoch):
    reopen()
    (segment.parent / "quorum-state").write_text(f'{{"leaderId":1,"leaderEpoch":{2**31 - 3}}}')
    assert reopen().leader_epoch == 2**31 - 2
    (segment.parent / "quorum-state").write_text(f'{{"leaderId":1,"leaderEpoch":{epoch}}}')
    with pytest.raises(MetadataLogUnusable, match="a start needs the one after it"):
        reopen()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"leaderId":1,"leaderEpoch":"x"}', "\xff"])
def test_a_quorum_state_that_says_nothing_ends_the_start(tmp_path, content):
    path = tmp_path / "quorum-state"
    path.write_text(content)
    with pytest.raises(MetadataLogUnusable):
        read_quorum_state(RealDisk(), path)


async def test_damage_before_the_end_ends_this_start_and_the_next(reopen, segment, tmp_path):
    log = reopen()
    for name in "abc":
        await append(log, [topic(name)])
    log.log.release()
    position = sum(batch.header.size_bytes for batch in batches(segment)[:2]) - 1
    data = bytearray(segment.read_bytes())
    data[position] ^= 0xFF
    segment.write_bytes(data)
    for _ in range(2):
        with pytest.raises(MetadataLogUnusable, match="was damaged before its end"):
            MetadataLog.open(tmp_path, real_runtime(ManualClock()))


async def test_a_record_nobody_knows_ends_the_start(reopen, monkeypatch):
    log = reopen()
    monkeypatch.setattr("trio_broker.cluster.metadata_store.encode_metadata_record", lambda record: b"\x01\x7f\x00")
    offset = await append(log, [topic("a")])
    with pytest.raises(
        MetadataLogUnusable, match=f"the record at offset {offset}: metadata record of unknown type 127"
    ):
        list(log.replay())


async def test_a_replay_longer_than_one_read_is_whole(reopen, monkeypatch):
    monkeypatch.setattr("trio_broker.cluster.metadata_log.READ_BYTES", 100)
    log = reopen()
    records = [topic(f"t{number}") for number in range(20)]
    for record in records:
        await append(log, [record])
    assert list(log.replay()) == records


async def test_a_closed_log_opens_again(reopen):
    log = reopen()
    record = topic("a")
    await append(log, [record])
    log.close()
    assert list(reopen().replay()) == [record]
