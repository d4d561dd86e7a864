"""The commit log: what counts, what is still to be done for it, and whose it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spark.pipelines.crash_points import crashing
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.pipelines import commit_log
from trio_broker.spark.pipelines.commit_log import CommitLog, CommitLogError, read_last_commit

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 10)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "job"


def opened(directory: Path, kind: str = "export", **settings: str) -> CommitLog:
    return CommitLog(directory).open(kind, settings)


def test_a_new_job_has_an_id_and_read_nothing(directory: Path):
    with opened(directory) as log:
        assert len(log.job_id) == 16
        assert (log.next_batch, log.offsets, log.last_is_finished) == (0, {}, True)


def test_a_job_keeps_its_id(directory: Path):
    with opened(directory) as first:
        pass
    with opened(directory) as second:
        assert second.job_id == first.job_id


def test_a_prepared_batch_counts_and_is_not_finished(directory: Path):
    with opened(directory) as log:
        log.prepare({FIRST: 5}, {"files": ["a"]})
    with opened(directory) as log:
        assert log.last is not None
        assert (log.last.batch, log.last.facts, log.last_is_finished) == (0, {"files": ["a"]}, False)
        log.finish()
    with opened(directory) as log:
        assert (log.last_is_finished, log.next_batch) == (True, 1)


def test_offsets_of_partitions_that_a_batch_leaves_out_stay(directory: Path):
    with opened(directory) as log:
        log.prepare({FIRST: 5, SECOND: 7})
        log.finish()
        log.prepare({SECOND: 9})
        log.finish()
    with opened(directory) as log:
        assert log.offsets == {FIRST: 5, SECOND: 9}


def test_a_commit_is_json_with_offsets_as_spark_writes_them(directory: Path):
    with opened(directory) as log:
        log.prepare({SECOND: 7, FIRST: 5})
    document = json.loads((directory / "commits" / "000000000000.json").read_text())
    assert document["offsets"] == {"orders": {"0": 5, "10": 7}}


def test_a_second_process_is_refused(directory: Path):
    with opened(directory), pytest.raises(CommitLogError, match="another process runs this job"):
        opened(directory)


@pytest.mark.parametrize(
    ("kind", "table", "message"), [("etl", "t", "its kind is"), ("export", "u", "its table is 't'")]
)
def test_the_directory_of_another_job_is_refused(directory: Path, kind: str, table: str, message: str):
    with opened(directory, table="t"):
        pass
    with pytest.raises(CommitLogError, match=message):
        opened(directory, kind, table=table)
    with opened(directory, table="t"):
        pass  # the refused one let go of the lock


def test_old_commits_are_forgotten(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commit_log, "KEPT_COMMITS", 3)
    with opened(directory) as log:
        for number in range(10):
            log.prepare({FIRST: number})
            log.finish()
    names = sorted(each.name for each in (directory / "commits").iterdir())
    assert names == [f"{batch:012}{end}" for batch in (7, 8, 9) for end in (".done", ".json")]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1}'])
def test_a_damaged_commit_is_reported_with_its_name(directory: Path, content: bytes):
    with opened(directory) as log:
        log.prepare({FIRST: 1})
    path = directory / "commits" / "000000000000.json"
    path.write_bytes(content)
    with pytest.raises(CommitLogError, match=r"000000000000\.json: "):
        opened(directory)


def test_a_place_that_cannot_be_written_to_is_reported(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CommitLogError, match="Not a directory"):
        opened(tmp_path / "file" / "job")


def test_looking_at_a_job_changes_nothing(directory: Path):
    assert read_last_commit(directory) is None
    assert not directory.exists()


def test_whenever_it_crashes_a_batch_counts_as_a_whole_or_not_at_all(tmp_path: Path):
    """… and the batch before it still does."""
    for at in range(1000):
        directory = tmp_path / str(at)
        with opened(directory) as log:
            log.prepare({FIRST: 1}, {"files": ["a"]})
            log.finish()
            with crashing(at) as crash:
                log.prepare({FIRST: 2}, {"files": ["b"]})
                log.finish()
        with opened(directory) as log:
            assert log.last is not None
            assert (log.offsets[FIRST], log.last.facts) in [(1, {"files": ["a"]}), (2, {"files": ["b"]})]
        if crash.moments < at:
            assert log.offsets == {FIRST: 2}
            return
    raise AssertionError("it never came to an end")
