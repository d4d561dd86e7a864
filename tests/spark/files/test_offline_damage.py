"""Damage in a directory without a broker: it is reported wherever it lies, and never ends a log in silence."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest

from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.spark.log_files import ORDERS, LogFiles, numbered
from tests.spark.offline_directories import flip, killed, read_all, stopped, write_checkpoints
from tests.spark.pipelines.local_task_runner import LocalTaskRunner
from tests.storage.conftest import NOW_MS
from trio_broker.spark.batch_table import scan_batches
from trio_broker.spark.errors import CorruptData
from trio_broker.spark.files.offline import OfflineLogs
from trio_broker.spark.pipelines.stats.job import PartitionHealth, StatsSettings, stats
from trio_broker.storage import file_names


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    """Offsets 0 to 90 in several segments, each record with its offset as its value."""
    files = LogFiles.create(tmp_path, segment_bytes=600, index_interval_bytes=150)
    files.fill(30)
    return files


@attrs.frozen
class Damage:
    """Something done to the batch of a log at which offset."""

    log: LogFiles
    offset: int
    how: str

    @property
    def place(self) -> tuple[Path, int]:
        """The file and the position of the batch."""
        segment = [each for each in self.log.log.segments if each.base_offset <= self.offset][-1]
        data = Path(segment.file.path).read_bytes()
        table = scan_batches(data)
        row = table.base_offsets.tolist().index(self.offset)
        return Path(segment.file.path), int(table.positions[row])

    def do(self) -> tuple[Path, int]:
        path, position = self.place
        flip(path, position + {"checksum": 70, "magic": 16, "length": 8}[self.how])
        return path, position


def segment_bases(log: LogFiles) -> list[int]:
    return [each.base_offset for each in log.log.segments]


HOW_HEADERS = ["magic", "length"]


@pytest.mark.parametrize("how", ["checksum", *HOW_HEADERS])
@pytest.mark.parametrize("indexes", ["kept", "gone"])
@pytest.mark.parametrize("checkpoint", [{}, {"recovery_point": 18}, {"recovery_point": 90, "high_watermark": 90}])
def test_damage_in_a_segment_that_is_not_the_last_is_never_the_end(
    log: LogFiles, how: str, indexes: str, checkpoint: dict[str, int]
) -> None:
    damage = Damage(log, segment_bases(log)[2] + 3, how)
    path, position = damage.do()
    logs = killed(log, **checkpoint)
    if indexes == "gone":
        remove_indexes(log)
    assert logs.latest([ORDERS]) == {ORDERS: 90}
    where = f"{path}@{position}" if how in HOW_HEADERS else str(path)
    with pytest.raises(CorruptData, match=f"orders-0 at offset {damage.offset}: .*{where}"):
        read_all(logs)


def remove_indexes(log: LogFiles) -> None:
    for path in log.directory.glob("*index"):
        path.unlink()


@pytest.mark.parametrize("how", ["checksum", *HOW_HEADERS])
@pytest.mark.parametrize("checkpoint", [{"recovery_point": 90}, {"high_watermark": 90}, {"high_watermark": 85}])
def test_damage_in_the_last_segment_below_what_is_known_to_be_there_is_never_the_end(
    one_segment: LogFiles, how: str, checkpoint: dict[str, int]
) -> None:
    damage = Damage(one_segment, 60, how)
    path, position = damage.do()
    remove_indexes(one_segment)
    logs = killed(one_segment, **checkpoint)
    assert logs.latest([ORDERS]) == {ORDERS: checkpoint.get("high_watermark", 90)}
    where = f"{path}@{position}" if how in HOW_HEADERS else str(path)
    with pytest.raises(CorruptData, match=f"orders-0 at offset 60: .*{where}"):
        read_all(logs)


@pytest.mark.parametrize("how", HOW_HEADERS)
def test_damage_after_a_clean_stop_is_never_the_end(one_segment: LogFiles, how: str) -> None:
    one_segment.log.close()
    Damage(one_segment, 60, how).do()
    remove_indexes(one_segment)
    logs = stopped_already(one_segment)
    assert logs.latest([ORDERS]) == {ORDERS: 90}
    with pytest.raises(CorruptData, match="orders-0 at offset 60: "):
        read_all(logs)


def test_what_is_cut_after_a_clean_stop_is_reported(one_segment: LogFiles) -> None:
    one_segment.log.close()
    path = one_segment.log.active_segment.file.path
    os.truncate(path, Path(path).stat().st_size - 5)
    logs = stopped_already(one_segment)
    with pytest.raises(CorruptData, match=r"orders-0 at offset 87: .* bytes that are no whole batch \(.*log@\d+"):
        read_all(logs)


def stopped_already(files: LogFiles) -> OfflineLogs:
    (files.data_directory / file_names.CLEAN_SHUTDOWN_MARKER).write_text('{"version":0,"brokerEpoch":1}')
    return OfflineLogs([str(files.data_directory)])


@pytest.mark.parametrize("how", ["checksum", *HOW_HEADERS])
@pytest.mark.parametrize("checkpoint", [{}, {"recovery_point": 60, "high_watermark": 60}])
def test_damage_that_no_consumer_can_have_seen_ends_the_log_as_a_start_would(
    one_segment: LogFiles, how: str, checkpoint: dict[str, int]
) -> None:
    Damage(one_segment, 60, how).do()
    assert read_all(killed(one_segment, **checkpoint)) == numbered(0, 60)


def test_a_torn_tail_ends_the_log_even_below_the_high_watermark(
    one_segment: LogFiles, caplog: pytest.LogCaptureFixture
) -> None:
    path = one_segment.log.active_segment.file.path
    logs = killed(one_segment, recovery_point=30, high_watermark=90)
    os.truncate(path, Path(path).stat().st_size - 5)
    assert read_all(logs) == numbered(0, 87)
    assert "offset 87, though the high watermark was 90" in caplog.text


def test_a_length_that_leads_behind_the_end_of_the_file_is_no_torn_tail(one_segment: LogFiles) -> None:
    path, position = Damage(one_segment, 60, "length").place
    data = bytearray(path.read_bytes())
    data[position + 8 : position + 12] = (2**30).to_bytes(4, "big")
    path.write_bytes(data)
    logs = killed(one_segment, recovery_point=30, high_watermark=90)
    with pytest.raises(CorruptData, match=f"orders-0 at offset 60: .*{path}@{position}"):
        read_all(logs)


def test_batches_that_a_record_holds_are_not_taken_for_the_log_s(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path)
    files.fill(3)
    files.append(build_batch([NewRecord(NOW_MS, None, b"inner")], base_offset=10) + b"behind it")
    files.fill(3)
    Damage(files, 9, "magic").do()
    remove_indexes(files)
    logs = killed(files, high_watermark=19)
    assert logs.latest([ORDERS]) == {ORDERS: 19}
    [entry] = logs.topic_manifest("orders").log(0).active_positions
    assert entry.offset == 12


def test_a_time_that_is_looked_for_where_the_log_is_damaged_is_refused(one_segment: LogFiles) -> None:
    Damage(one_segment, 60, "magic").do()
    remove_indexes(one_segment)
    logs = OfflineLogs([str(killed_data(one_segment))])
    with pytest.raises(CorruptData, match=r"orders-0 at offset 60: magic .*\.log@\d+"):
        logs.for_times({ORDERS: NOW_MS + 10**9})


@pytest.mark.parametrize("is_open", [True, False])
def test_a_transaction_that_may_have_ended_in_the_damage_is_reported(tmp_path: Path, is_open: bool) -> None:
    files = LogFiles.create(tmp_path)
    files.append_transaction(7, b"first")
    if not is_open:
        files.end_transaction(7, committed=False)
    damaged = files.append(b"to be damaged")
    files.append_transaction(7, b"second")
    files.end_transaction(7, committed=True)
    Damage(files, damaged, "magic").do()
    for path in [*files.directory.glob("*index"), *files.directory.glob("*.snapshot")]:
        path.unlink()
    logs = OfflineLogs([str(killed_data(files))])
    if is_open:
        with pytest.raises(CorruptData, match=f"orders-0 at offset {damaged}: magic"):
            logs.latest([ORDERS])
    else:
        assert logs.latest([ORDERS]) == {ORDERS: files.log.log_end_offset}
        plan = logs.topic_manifest("orders").log(0)
        assert [(each.first_offset, each.last_offset) for each in plan.aborted] == [(0, 1)]


def killed_data(files: LogFiles) -> Path:
    files.log.release()
    write_checkpoints(files.data_directory, recovery_point=90)
    return files.data_directory


@pytest.fixture
def one_segment(tmp_path: Path) -> LogFiles:
    """Offsets 0 to 90 in one segment."""
    files = LogFiles.create(tmp_path, index_interval_bytes=150)
    files.fill(30)
    return files


# --- What stats tells of it ---


def swept(directory: Path) -> PartitionHealth:
    options = {"path": str(directory), "subscribe": "orders"}
    [health] = stats(LocalTaskRunner(), options, StatsSettings())
    return health


@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_stats_looks_behind_damage_though_the_broker_has_rebuilt_the_indexes(tmp_path: Path, stop: str) -> None:
    """Twenty of fifty batches were reported once, and nothing unreadable."""
    files = LogFiles.create(tmp_path, index_interval_bytes=150)
    files.fill(50)
    Damage(files, 60, "magic").do()
    segment = files.log.active_segment
    # As a broker does that finds the index file missing.
    segment._offset_index = segment._time_index = None
    segment.rebuild_indexes("a test")
    assert 60 not in {entry.offset for entry in segment.offset_index.entries}
    if stop == "clean":
        stopped(files)
    else:
        killed(files, high_watermark=150)
    found = swept(tmp_path)
    assert (found.offsets.end_offset, found.batches.data_batches) == (150, 49)
    [damage] = found.batches.damages
    assert (damage.start_offset, damage.end_offset) == (60, 63)
    assert "orders-0 at offset 60: magic" in damage.reason
    assert f"{segment.file.path}@" in damage.reason


@pytest.mark.parametrize("indexes", ["kept", "gone"])
def test_stats_goes_on_with_the_next_segment_where_no_index_leads_behind_damage(log: LogFiles, indexes: str) -> None:
    bases = segment_bases(log)
    Damage(log, bases[2] + 3, "magic").do()
    killed(log, recovery_point=90, high_watermark=90)
    if indexes == "gone":
        remove_indexes(log)
    found = swept(log.data_directory)
    [damage] = found.batches.damages
    assert damage.start_offset == bases[2] + 3
    if indexes == "gone":
        assert damage.end_offset == bases[3]
    else:
        assert damage.end_offset < bases[3]
    assert found.batches.data_batches == 30 - (damage.end_offset - damage.start_offset) // 3
    assert found.batches.last_offset == 89


def test_stats_tells_of_a_last_segment_that_is_damaged_to_its_end(one_segment: LogFiles) -> None:
    path, position = Damage(one_segment, 60, "magic").place
    data = path.read_bytes()
    path.write_bytes(data[:position] + b"\x55" * (len(data) - position))
    remove_indexes(one_segment)
    killed(one_segment, high_watermark=90)
    found = swept(one_segment.data_directory)
    assert found.batches.data_batches == 20
    [damage] = found.batches.damages
    assert (damage.start_offset, damage.end_offset) == (60, 90)
