"""How far each log was compacted, in the file of each data directory."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.storage.conftest import NOW_MS, make_batch
from tests.storage.followed_log import truncate
from tests.storage.managed_logs import create_log, delete_logs, load_logs
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage import checkpoints
from trio_broker.storage.log_manager import LogManager

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 1)
TOPIC_ID = bytes(range(16))


class Manager:
    """A log manager over one directory, and its file."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "cleaner-offset-checkpoint"
        self.logs = LogManager([directory], disk=RealDisk(), random=Random(1), node_id=1, clock=ManualClock(NOW_MS))
        self.logs.open()
        self.report = load_logs(self.logs, lambda partition, topic_id: LogConfig())

    def create(self, partition: TopicPartition) -> None:
        log = create_log(self.logs, partition, TOPIC_ID, LogConfig())
        for _ in range(5):
            log.append(make_batch(), leader_epoch=0, now_ms=NOW_MS)

    def written(self) -> dict[TopicPartition, int]:
        return checkpoints.read_offsets(RealDisk(), self.path)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_an_empty_one_comes_with_the_first_recovery_points_and_then_only_what_is_new(directory: Path) -> None:
    """Where it is there, recovery points have been, and may have been lost since."""
    manager = Manager(directory)
    manager.create(ORDERS)
    assert manager.logs.checkpoints.write() == {}
    assert manager.path.read_text() == "0\n0\n"
    manager.path.unlink()
    assert manager.logs.checkpoints.write() == {}
    assert manager.logs.checkpoints.write_cleaner_offsets() == {}
    assert not manager.path.exists()
    manager.logs.close()


def test_it_is_in_kafkas_format_and_read_back(directory: Path) -> None:
    manager = Manager(directory)
    manager.create(ORDERS)
    manager.create(PAYMENTS)
    manager.logs.logs[PAYMENTS].first_dirty_offset = 3
    manager.logs.checkpoints.write_cleaner_offsets()
    assert manager.path.read_text() == "0\n1\npayments 1 3\n"
    manager.logs.close()
    again = Manager(directory)
    assert {partition: log.first_dirty_offset for partition, log in again.logs.logs.items()} == {
        ORDERS: None,
        PAYMENTS: 3,
    }
    again.logs.close()


def test_it_is_written_only_when_it_changed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Manager(directory)
    manager.create(ORDERS)
    manager.logs.logs[ORDERS].first_dirty_offset = 3
    manager.logs.checkpoints.write_cleaner_offsets()
    before = manager.path.stat().st_ino
    manager.logs.checkpoints.write()
    manager.logs.checkpoints.write_cleaner_offsets()
    assert manager.path.stat().st_ino == before
    manager.logs.close()


def test_a_new_partition_of_an_old_name_inherits_nothing(directory: Path) -> None:
    """Else what is written first would never be compacted."""
    manager = Manager(directory)
    manager.create(ORDERS)
    manager.logs.logs[ORDERS].first_dirty_offset = 3
    manager.logs.checkpoints.write_cleaner_offsets()
    delete_logs(manager.logs, [ORDERS])
    assert manager.written() == {}
    manager.create(ORDERS)
    assert manager.logs.logs[ORDERS].first_dirty_offset is None
    manager.logs.close()


def test_a_line_that_was_left_of_a_partition_that_is_gone_goes_when_it_comes_again(directory: Path) -> None:
    Manager(directory).logs.close()
    checkpoints.write_offsets(RealDisk(), directory / "cleaner-offset-checkpoint", {ORDERS: 77})
    manager = Manager(directory)
    manager.create(ORDERS)
    assert manager.written() == {}
    manager.logs.close()
    again = Manager(directory)
    assert again.logs.logs[ORDERS].first_dirty_offset is None
    again.logs.close()


def test_a_file_that_cannot_be_read_costs_a_round_and_no_start(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = Manager(directory)
    manager.create(ORDERS)
    manager.logs.close()
    manager.path.write_text("garbage")
    again = Manager(directory)
    assert again.logs.logs[ORDERS].first_dirty_offset is None
    assert not again.report.failures
    assert "not using a checkpoint" in caplog.text
    again.logs.close()


def test_a_log_that_is_cut_is_dirty_from_there_on(directory: Path) -> None:
    manager = Manager(directory)
    manager.create(ORDERS)
    log = manager.logs.logs[ORDERS]
    log.first_dirty_offset = 4
    truncate(log, 2, NOW_MS)
    assert log.first_dirty_offset == 2
    truncate(log, 9, NOW_MS, begins_anew=True)
    assert log.first_dirty_offset is None
    manager.logs.close()
