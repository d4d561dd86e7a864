"""The log of a broker's process in JSON: every line is an object, whatever writes it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from trio_broker.cli.log_output import JsonFormatter

PROGRAM = """
import logging, threading, warnings
from trio_broker.cli.log_output import LogFormat, set_up_logging
set_up_logging(LogFormat.JSON, "INFO")
{statement}
"""


def lines_of(statement: str) -> list[dict[str, str]]:
    """What a process writes that logs JSON and executes ``statement``."""
    program = PROGRAM.format(statement=statement)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == ""
    return [json.loads(line) for line in ended.stderr.splitlines()]


def test_a_line_has_time_level_logger_and_message():
    record = logging.LogRecord("trio_broker.x", logging.WARNING, "", 0, "%s is\nlow", ("ä\ud800",), None)
    record.created = 1_700_000_000.0625
    assert json.loads(JsonFormatter().format(record)) == {
        "time": "2023-11-14T22:13:20.062Z",
        "level": "WARNING",
        "logger": "trio_broker.x",
        "message": "ä\ud800 is\nlow",
    }
    assert JsonFormatter().format(record).isascii()


@pytest.mark.parametrize(
    ("statement", "level", "logger", "message", "exception"),
    [
        ("LogFormat.JSON.announce('admin      off')", "INFO", "trio_broker", "admin off", None),
        ("LogFormat.JSON.fail('the port is taken')", "ERROR", "trio_broker", "the port is taken", None),
        ("1 / 0", "CRITICAL", "trio_broker", "the process ends by an exception", "ZeroDivisionError"),
        (
            "raise ExceptionGroup('two', [ValueError('a'), KeyError('b')])",
            *("CRITICAL", "trio_broker", "the process ends by an exception", "ValueError: a"),
        ),
        (
            "threading.Thread(target=lambda: 1 / 0, name='sync').start()",
            *("ERROR", "trio_broker", "the thread sync ends by an exception", "ZeroDivisionError"),
        ),
        ("warnings.warn('old', stacklevel=2)", "WARNING", "py.warnings", "UserWarning: old", None),
        ("logging.getLogger('hypercorn.error').error('gone')", "ERROR", "hypercorn.error", "gone", None),
    ],
)
def test_whatever_writes_a_line_it_is_an_object(statement, level, logger, message, exception):
    [line] = lines_of(statement)
    assert (line["level"], line["logger"]) == (level, logger)
    assert message in line["message"]
    assert (exception is None) == ("exception" not in line)
    assert exception is None or exception in line["exception"]


def test_what_python_ignores_is_an_object_too():
    [line] = lines_of("class Bad:\n    def __del__(self): 1 / 0\nBad()")
    assert "__del__" in line["message"]
    assert "ZeroDivisionError" in line["exception"]


def test_a_wrong_option_is_an_object_too():
    [line] = lines_of("from trio_broker.cli import main; main(['start', '--log-format', 'json', '--port', 'x'])")
    assert "--port" in line["message"]


def test_all_that_a_broker_writes_is_an_object(tmp_path):
    command = [sys.executable, "-m", "trio_broker", "start", "--data-dir", str(tmp_path), "--port", "0"]
    command += ["--admin-port", "0", "--log-format", "json"]
    messages = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            messages.append(json.loads(line)["message"])
            if messages[-1].startswith("stop "):
                process.terminate()
        assert process.stdout is not None
        assert process.stdout.read() == ""
    assert process.returncode == 0
    assert any(message.startswith("listening PLAINTEXT://127.0.0.1:") for message in messages)
    assert messages[-1] == "stopped"
