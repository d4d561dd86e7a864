"""Data directories without a broker: where logs end, what of them is committed, and that they stay as they are."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.spark.log_files import COMPACTED, ORDERS, LogFiles, numbered, read
from tests.spark.offline_directories import killed, read_all, stopped
from tests.storage.compaction_harness import Round
from tests.storage.conftest import NOW_MS
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.spark.errors import DataLoss, OptionError, SourceUnavailable
from trio_broker.spark.files.file_planning import plan_files
from trio_broker.spark.files.manifest import NoSuchTopic
from trio_broker.spark.files.offline import OfflineLogs
from trio_broker.spark.options.selection import Assign, Subscribe, SubscribePattern
from trio_broker.storage import file_names
from trio_broker.storage.log_directory import LogDirectory, MetaProperties


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    """Offsets 0 to 90 in several segments, each record with its offset as its value."""
    files = LogFiles.create(tmp_path, segment_bytes=600, index_interval_bytes=150)
    files.fill(30)
    return files


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


# --- Where a log ends ---


def test_a_log_that_was_closed_properly_is_read_whole(log: LogFiles) -> None:
    logs = stopped(log, high_watermark=90)
    assert (logs.earliest([ORDERS]), logs.latest([ORDERS])) == ({ORDERS: 0}, {ORDERS: 90})
    assert read_all(logs) == numbered(0, 90)


def test_nothing_is_changed(log: LogFiles) -> None:
    log.directory.joinpath("00000000000000000099.log.deleted").write_bytes(b"left over")
    with Path(log.log.active_segment.file.path).open("ab") as file:
        file.write(b"torn")
    logs = killed(log, recovery_point=30)
    for index in log.directory.glob("*.index"):
        index.write_bytes(b"odd")
    before = contents(log.data_directory)
    assert read_all(logs) == numbered(0, 90)
    assert contents(log.data_directory) == before


@pytest.mark.parametrize("cut", [1, 30, 61, 80])
def test_a_torn_tail_ends_the_log(log: LogFiles, cut: int) -> None:
    path = log.log.active_segment.file.path
    logs = killed(log)
    os.truncate(path, Path(path).stat().st_size - cut)
    assert read_all(logs) == numbered(0, 87)


def test_zeros_behind_the_last_batch_end_the_log(log: LogFiles) -> None:
    path = log.log.active_segment.file.path
    logs = killed(log)
    os.truncate(path, Path(path).stat().st_size + 1000)
    assert read_all(logs) == numbered(0, 90)


@pytest.mark.parametrize(("reported", "counts"), [(40, 40), (500, 90), (None, 90), (0, 0)])
def test_records_behind_the_checkpoint_of_the_high_watermark_are_not_safe(
    log: LogFiles, reported: int | None, counts: int
) -> None:
    logs = killed(log, **({} if reported is None else {"high_watermark": reported}))
    assert logs.latest([ORDERS]) == {ORDERS: counts}
    assert read_all(logs) == numbered(0, counts)


def test_deleted_records_are_not_read_though_their_segment_is_there(log: LogFiles) -> None:
    logs = stopped(log, log_start_offset=4)
    assert logs.earliest([ORDERS]) == {ORDERS: 4}
    assert read_all(logs) == numbered(4, 90)


def test_a_checkpoint_that_cannot_be_read_is_done_without(log: LogFiles, caplog: pytest.LogCaptureFixture) -> None:
    (log.data_directory / file_names.HIGH_WATERMARK_CHECKPOINT).write_text("0\n5\nodd\n")
    assert read_all(killed(log)) == numbered(0, 90)
    assert "not using a checkpoint" in caplog.text


def test_a_directory_without_segments_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(SourceUnavailable, match="orders-0 has no segments"):
        OfflineLogs([str(tmp_path)]).latest([ORDERS])


# --- Compaction that was cut short ---


@pytest.mark.parametrize(
    "step", ["rewrite", "commit", "exchange", "sync of the old names", "settle", "sync of the new names"]
)
def test_a_compaction_that_was_cut_short_is_read_as_before_or_after(tmp_path: Path, step: str) -> None:
    files = LogFiles.create(tmp_path, segment_bytes=400, cleanup_policy=COMPACTED)
    for index in range(60):
        files.append(b"%d" % index, key=b"k%d" % (index % 10))
    files.roll()
    for reached in Round(files.log, files.now_ms).steps():
        if reached == step:
            break
    got = read_all(killed(files, recovery_point=60))
    assert [offset for offset, _ in got[-10:]] == list(range(50, 60))
    assert [value for _, value in got] == [b"%d" % offset for offset, _ in got]
    assert (len(got) == 60) == (step in ("rewrite", "commit"))


# --- Transactions ---


def test_aborted_transactions_are_left_out_and_open_ones_end_the_log(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path, segment_bytes=400)
    expected = make_transactions(files)
    logs = stopped(files)
    [end] = logs.latest([ORDERS]).values()
    assert end < files.log.log_end_offset
    assert read_all(logs) == expected
    uncommitted = OfflineLogs([str(tmp_path)], read_committed=False)
    assert uncommitted.latest([ORDERS]) == {ORDERS: files.log.log_end_offset}


def make_transactions(files: LogFiles) -> list[tuple[int, bytes]]:
    """Transactions over several segments, the last one open; return the rows that are committed."""
    expected = []
    for number in range(9):
        offset = files.append_transaction(7, b"7 in %d" % number)
        files.append(bytes(100))
        files.append_transaction(8, b"8 in %d" % number)
        files.end_transaction(7, committed=True)
        expected += [(offset, b"7 in %d" % number), (offset + 1, bytes(100))]
    files.end_transaction(8, committed=False)
    offset = files.append(b"last")
    files.append_transaction(9, b"open")
    files.append(b"behind")
    return [*expected, (offset, b"last")]


@pytest.mark.parametrize("lost", [[".txnindex"], [".snapshot"], [".txnindex", ".snapshot"]], ids=" ".join)
@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_what_indexes_and_snapshots_say_is_in_the_log_too(tmp_path: Path, lost: list[str], how: str) -> None:
    files = LogFiles.create(tmp_path, segment_bytes=400)
    expected = make_transactions(files)
    logs = killed(files, recovery_point=0)
    for suffix in lost:
        for path in files.directory.glob(f"*{suffix}"):
            if how == "gone":
                path.unlink()
            else:
                path.write_bytes(b"damaged")
    if lost == [".txnindex"] and how == "gone":
        # Nobody can tell that it was there, unless it is that of what is read anyway.
        assert expected[-1] in read_all(logs)
    else:
        assert read_all(logs) == expected


def test_a_transaction_that_ends_behind_the_high_watermark_is_open(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path)
    files.append(b"before")
    files.append_transaction(7, b"undecided")
    files.append(b"between")
    files.end_transaction(7, committed=True)
    logs = stopped(files, high_watermark=3)
    assert read_all(logs) == [(0, b"before")]


def test_snapshots_of_later_than_the_high_watermark_are_not_asked(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path)
    files.append_transaction(7, b"undecided")
    files.roll()
    files.append(b"between")
    files.end_transaction(7, committed=False)
    files.roll()
    logs = killed(files, high_watermark=2)
    assert logs.latest([ORDERS]) == {ORDERS: 0}


# --- Times ---


@pytest.mark.parametrize("how", ["stopped", "killed", "killed early", "without time indexes"])
def test_times_are_found_by_the_record(tmp_path: Path, how: str) -> None:
    files = LogFiles.create(tmp_path, segment_bytes=700, index_interval_bytes=150)
    for number in range(40):
        records = [NewRecord(NOW_MS + 100 * number + 10 * index, None, b"v") for index in range(3)]
        files.log.append(memoryview(bytearray(build_batch(records))), leader_epoch=3, now_ms=NOW_MS)
    if how == "stopped":
        logs = stopped(files)
    else:
        logs = killed(files, recovery_point=files.log.log_end_offset if how == "killed" else 50)
    if how == "without time indexes":
        for path in files.directory.glob("*.timeindex"):
            path.unlink()
    for number in (0, 1, 7, 20, 39):
        for late, offset in ((0, 0), (1, 1), (10, 1), (11, 2), (20, 2)):
            time_ms = NOW_MS + 100 * number + late
            assert logs.for_times({ORDERS: time_ms}) == {ORDERS: 3 * number + offset}
    assert logs.for_times({ORDERS: NOW_MS - 1_000_000}) == {ORDERS: 0}
    assert logs.for_times({ORDERS: NOW_MS + 3921}) == {ORDERS: None}


def test_times_are_found_within_what_may_be_read(log: LogFiles) -> None:
    logs = stopped(log, log_start_offset=10, high_watermark=20)
    assert logs.for_times({ORDERS: NOW_MS}) == {ORDERS: 10}
    undecided = stopped_with_open_transaction(log.data_directory / "other")
    assert undecided.for_times({ORDERS: NOW_MS}) == {ORDERS: None}


def stopped_with_open_transaction(directory: Path) -> OfflineLogs:
    directory.mkdir()
    files = LogFiles.create(directory)
    files.append_transaction(7, b"open")
    return stopped(files)


# --- What is there ---


def make_topics(directory: Path, *names: str) -> None:
    directory.mkdir(exist_ok=True)
    for name in names:
        topic, _, partition = name.rpartition("-")
        LogFiles.create(directory, TopicPartition(topic, int(partition))).fill(1)


def test_partitions_are_those_of_the_directories(tmp_path: Path) -> None:
    make_topics(tmp_path, "orders-0", "orders-2", "or-ders-1", "__consumer_offsets-0", "__cluster_metadata-0")
    for name in (f"orders-5.{'0' * 32}-delete", "remote-log-index-cache", "lost+found"):
        (tmp_path / name).mkdir()
    (tmp_path / "orders-7").write_text("a file")
    logs = OfflineLogs([str(tmp_path)])
    orders = [TopicPartition("orders", 0), TopicPartition("orders", 2)]
    assert logs.partitions(Subscribe(("orders",))) == orders
    assert logs.partitions(SubscribePattern(".*")) == [TopicPartition("or-ders", 1), *orders]
    assert logs.partitions(SubscribePattern("nothing")) == []
    assert logs.partitions(Assign((*orders[:1], TopicPartition("orders", 9)))) == orders[:1]


def test_a_topic_that_is_not_there_is_reported_with_the_option_and_the_path(tmp_path: Path) -> None:
    make_topics(tmp_path, "orders-0")
    logs = OfflineLogs([str(tmp_path)])
    with pytest.raises(OptionError, match=f"option 'subscribe': there is no topic 'other' in {tmp_path}"):
        logs.partitions(Subscribe(("orders", "other")))
    with pytest.raises(OptionError, match="option 'assign': there is no topic 'other'"):
        logs.partitions(Assign((TopicPartition("other", 0),)))
    with pytest.raises(OptionError, match="__consumer_offsets: topics that Kafka keeps for itself"):
        logs.partitions(Subscribe(("__consumer_offsets",)))
    with pytest.raises(NoSuchTopic, match="no topic 'other'"):
        logs.topic_manifest("other")
    with pytest.raises(NoSuchTopic, match="'orders' has no partition 3, 4"):
        logs.topic_manifest("orders", [0, 3, 4])


def test_partitions_that_are_gone_are_left_out(tmp_path: Path) -> None:
    make_topics(tmp_path, "orders-0")
    logs, other = OfflineLogs([str(tmp_path)]), TopicPartition("other", 0)
    assert logs.earliest([ORDERS, other]) == {ORDERS: 0}
    assert logs.latest([ORDERS, other]) == {ORDERS: 3}
    assert logs.for_times({other: 0}) == {}


def test_several_directories_make_one_cluster(tmp_path: Path) -> None:
    make_topics(tmp_path / "one", "orders-0")
    make_topics(tmp_path / "two", "orders-1")
    logs = OfflineLogs([str(tmp_path / "one"), str(tmp_path / "two")])
    assert len(logs.partitions(Subscribe(("orders",)))) == 2
    assert read_all(logs) == numbered(0, 3) * 2


def test_a_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    make_topics(tmp_path / "one", "orders-0")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with pytest.raises(OptionError, match=r"orders-0 is in .*one and in .*two: which one counts"):
        OfflineLogs([str(tmp_path / "one"), str(tmp_path / "two")])


def test_topic_and_cluster_ids_are_reported_where_they_are_known(tmp_path: Path) -> None:
    make_topics(tmp_path, "orders-0", "bare-0")
    (tmp_path / "bare-0" / file_names.PARTITION_METADATA).unlink()
    logs = OfflineLogs([str(tmp_path)])
    assert logs.topic_ids(["orders", "bare", "other"]) == {
        "orders": "AAECAwQFBgcICQoLDA0ODw",
        "bare": "",
        "other": "",
    }
    assert logs.topic_manifest("orders").cluster_id == ""
    (tmp_path / file_names.META_PROPERTIES).write_bytes(MetaProperties("mine", 1, "x").encode())
    assert OfflineLogs([str(tmp_path)]).topic_manifest("orders").cluster_id == "mine"


def test_a_path_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"option 'path': there is no directory {tmp_path}/nowhere"):
        OfflineLogs([str(tmp_path / "nowhere")])


@pytest.fixture
def broker_at_work(tmp_path: Path) -> Iterator[Path]:
    directory = LogDirectory(RealDisk(), tmp_path)
    directory.open()
    yield tmp_path
    directory.unlock()


def test_a_directory_that_a_broker_works_in_is_refused(broker_at_work: Path) -> None:
    with pytest.raises(OptionError, match=f"a broker works in {broker_at_work}: name it by kafka.bootstrap.servers"):
        OfflineLogs([str(broker_at_work)])


def test_a_lock_that_nobody_holds_is_no_broker(broker_at_work: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / file_names.LOCK_FILE).touch()
    assert OfflineLogs([str(other)]).partitions(SubscribePattern(".*")) == []
    with (other / file_names.LOCK_FILE).open() as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_files_that_change_under_an_offline_reader_are_data_loss(log: LogFiles) -> None:
    logs = stopped(log)
    [task] = plan_files([log.range(0, 90)], logs)
    os.truncate(log.log.segments[0].file.path, 10)
    with pytest.raises(DataLoss, match="cannot be found without a broker"):
        read(task.transport, task.offsets)
