"""A program that runs beside this process and ends with it, however this one ends. A broker starts none: this is for
what is run by hand on one machine."""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import Final

import trio

PR_SET_PDEATHSIG: Final = 1
"""Of Linux: the signal that a process gets when its parent ends."""

END_SECONDS: Final = 10.0
"""Before a program that is asked to end is killed."""


def found_program(name: str) -> str | None:
    """The program of this name on the PATH, None if there is none."""
    return shutil.which(name)


class ChildProcess:
    """The program of ``command``, which appends what it prints to the file ``output``."""

    def __init__(self, command: Sequence[str], output: PurePath) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        library = ctypes.CDLL(None) if sys.platform == "linux" else None
        with open(output, "ab") as file:
            # In a session of its own, so that Ctrl-C of a terminal does not reach it: this process stops first. Linux
            # means the thread by the parent, so no worker thread starts it.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                preexec_fn=None if library is None else partial(library.prctl, PR_SET_PDEATHSIG, signal.SIGTERM),
            )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    async def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        return await trio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)

    async def stop(self) -> None:
        """Ask it to end, and end it where it does not."""
        self._process.terminate()
        with trio.move_on_after(END_SECONDS):
            await self.wait()
        self._process.kill()
        self._process.wait()
