"""``dump-log`` as it is typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.transactions import TransactionLogKey, encode_transaction_record
from tests.waits import run_program
from trio_broker.cli import main


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A segment of ``__transaction_state`` that lies outside the directory of its partition."""
    key = TransactionLogKey(transactional_id="ünits")
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([NewRecord(0, *encode_transaction_record(key, None))]))
    return path


def test_a_reader_that_has_enough_ends_the_command_without_a_word(segment: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        command = [sys.executable, "-m", "trio_broker", "dump-log", str(segment), "--records"]
        completed = run_program(command, 60, stdout=pipe, stderr=subprocess.PIPE, text=True)
    assert completed.stderr == ""


def test_what_cannot_be_dumped_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    result = CliRunner().invoke(main, ["dump-log", str(tmp_path / "notes.txt")])
    assert result.exit_code == 1
    assert result.stderr.startswith("trio-broker: notes.txt is no file of a log")
    assert result.stderr.count("\n") == 1


def test_a_character_outside_the_terminals_encoding_is_printed_as_an_escape(segment: Path) -> None:
    command = [sys.executable, "-m", "trio_broker", "dump-log", str(segment), "--records"]
    environment = {**os.environ, "PYTHONIOENCODING": "iso8859-7:strict"}
    completed = run_program(command, 60, capture_output=True, text=True, env=environment)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert r"\xfcnits" in completed.stdout


def test_kafkas_option_says_whose_records_a_file_has(segment: Path) -> None:
    result = CliRunner().invoke(main, ["dump-log", "--transaction-log-decoder", str(segment)])
    assert '"transactionalId":"\\u00fcnits"' in result.stdout
    assert "payload: <DELETE>" in result.stdout
