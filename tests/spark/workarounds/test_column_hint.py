"""One line about a large scan that reads all columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_broker.spark.schema import COLUMNS, default_columns
from trio_broker.spark.workarounds.column_hint import MIN_OFFSETS, SPARK_LOCAL_DIRS, ColumnHint

SEVEN = default_columns(include_headers=False)


@pytest.fixture(autouse=True)
def local_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The directory of an application, with a second one behind it, as Spark names them."""
    monkeypatch.setenv(SPARK_LOCAL_DIRS, f"{tmp_path},/elsewhere")
    return tmp_path


@pytest.mark.parametrize("columns", [SEVEN, COLUMNS])
def test_a_large_scan_of_all_columns_is_reported_with_the_option_that_names_fewer(
    columns: tuple[str, ...], caplog: pytest.LogCaptureFixture
):
    ColumnHint(columns, are_chosen=False).count(2 * MIN_OFFSETS)

    assert f"2,000,000 records are read with all {len(columns)} columns" in caplog.text
    assert ".option('columns', 'value,offset')" in caplog.text


@pytest.mark.parametrize(
    ("columns", "are_chosen", "offsets"),
    [(SEVEN, True, MIN_OFFSETS), (SEVEN[:-1], False, MIN_OFFSETS), (SEVEN, False, MIN_OFFSETS - 1)],
    ids=["chosen", "fewer", "small"],
)
def test_other_scans_log_nothing(
    columns: tuple[str, ...], are_chosen: bool, offsets: int, caplog: pytest.LogCaptureFixture
):
    ColumnHint(columns, are_chosen).count(offsets)

    assert caplog.text == ""


def test_the_micro_batches_of_a_stream_are_added_up(caplog: pytest.LogCaptureFixture):
    hint = ColumnHint(SEVEN, are_chosen=False)
    for _ in range(10):
        hint.count(MIN_OFFSETS // 4)

    assert [record.getMessage()[:17] for record in caplog.records] == ["1,000,000 records"]


def test_an_application_logs_the_line_once_whichever_process_plans_a_scan(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    for _ in range(3):
        ColumnHint(SEVEN, are_chosen=False).count(MIN_OFFSETS)
    assert len(caplog.records) == 1

    monkeypatch.setenv(SPARK_LOCAL_DIRS, str(tmp_path / "is-gone"))
    ColumnHint(SEVEN, are_chosen=False).count(MIN_OFFSETS)
    assert len(caplog.records) == 2
