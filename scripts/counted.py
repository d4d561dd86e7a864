"""Runs a command, and waits for all that it leaves behind, so that who waits for this process gets the CPU of it all.

``python scripts/counted.py COMMAND …``, with the path of the command. The JVM of a Spark session ends after the pytest
that started it, and a browser is given up by the process that opened it: Linux counts a process for its parent only
when the parent has waited for it. Linux hands orphans to the nearest ancestor that asks for them; elsewhere they stay
uncounted. The exit code is that of the command, or 128 and the signal that ended it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_CHILD_SUBREAPER = 36
"""The option of ``prctl``."""

ORPHANS_SECONDS = 20
"""A JVM takes one to end on a quiet machine. What takes longer may never end, and is neither counted nor killed."""


def run(command: list[str]) -> int:
    """The exit code of ``command``, once it and what it left behind have ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    pid = os.posix_spawn(command[0], command, os.environ)
    # Ctrl-C reaches the command, too, which decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended = None
    while ended is None or ended[0] != pid:
        ended = os.wait()
    code = os.waitstatus_to_exitcode(ended[1])
    code = code if code >= 0 else 128 - code
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(code))
    signal.alarm(ORPHANS_SECONDS)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
