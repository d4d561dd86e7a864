"""A command that does not end by itself after Ctrl-C is ended, and one that does not see Ctrl-C is left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.waits import communicate
from trio_broker.cli.interrupts import ending_after_ctrl_c

SECONDS = 60

CHILD = """
import time
from trio_broker.cli.interrupts import ending_after_ctrl_c

with ending_after_ctrl_c("ended by force", 130, seconds=0.1):
    while True:
        try:
            print("waiting", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print("caught", flush=True)
"""


@pytest.fixture(autouse=True)
def _ctrl_c_as_in_a_terminal() -> Iterator[None]:
    """A shell that runs the tests in the background lets them, and the processes that they start, ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_command_that_catches_ctrl_c_and_goes_on_is_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        printed, errors = communicate(process, SECONDS)
    assert (process.returncode, printed, errors) == (130, "caught\nwaiting\n", "ended by force\n")


def test_behind_the_command_ctrl_c_does_what_it_did_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ending_after_ctrl_c("ended by force", 130):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_that_the_command_sets_itself_stays() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        with ending_after_ctrl_c("ended by force", 130):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
