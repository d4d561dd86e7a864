"""The client of ``closed_loop.c``: small requests from a process that costs a tenth of what one in Python does.

A client in Python is busy before the server is, which then seems slower than it is, and idles between requests, which
makes it dearer. The program is compiled for each run, where there is a compiler.
"""

from __future__ import annotations

import shutil
import subprocess
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from bench.load import LoopFigures, SmallLoad, in_turn
from bench.subject import scratch
from bench.wire import BenchError

SOURCE = Path(__file__).with_name("closed_loop.c")

COMPILERS = ("cc", "gcc", "clang")

WITH_TLS = ("-DTLS", "-lssl", "-lcrypto")
"""Of the compiler, where OpenSSL's headers are there."""


@attrs.frozen
class ClosedLoop:
    """The compiled program, in a directory that it may write to; with ``tls`` its connections are under TLS."""

    directory: Path
    tls: bool = False

    def __call__(
        self, port: int, frames: Sequence[bytes | bytearray], requests: int, response_bytes: int
    ) -> LoopFigures:
        """Do what ``in_turn`` does."""
        to_send, latencies = self.directory / "frames", self.directory / "latencies"
        to_send.write_bytes(b"".join(frames))
        arguments = [str(port), str(requests), str(response_bytes), str(to_send), str(latencies)]
        command = [str(self.directory / SOURCE.stem), *arguments, *(["tls"] if self.tls else [])]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BenchError(done.stderr.strip())
        return LoopFigures(requests, int(done.stdout) / 1e9, array("q", latencies.read_bytes()))


@contextmanager
def compiled_loop(directory: Path, *options: str) -> Iterator[ClosedLoop | None]:
    """The program, compiled with ``options``; None where there is no compiler, or what they name is missing."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        yield None
        return
    with scratch(directory) as own:
        command = [compiler, "-O2", "-o", str(own / SOURCE.stem), str(SOURCE), *options]
        yield None if subprocess.run(command, capture_output=True).returncode else ClosedLoop(own)


@contextmanager
def small_load(directory: Path) -> Iterator[tuple[SmallLoad, str]]:
    """The client for small requests, and what there is to say about it."""
    with compiled_loop(directory) as loop:
        if loop is None:
            yield in_turn, "the client is one thread of Python, as there is no C compiler: rates are the client's"
        else:
            yield loop, "the client is compiled from C"
