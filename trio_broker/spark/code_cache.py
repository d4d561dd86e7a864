"""Files of machine code, which processes of one user leave for later ones.

A file is named by a digest of all that decides what is in it (``machine_code``), and nothing else: neither the path of
the package, which is a new one for each unpacked archive, nor a time. So versions of the package, and machines with
different processors that share a home directory, use one directory, and two processes that write the same file write
the same bytes. It begins with a digest of its own content, because the bytes of a file that a power cut left may be
zeros.

Machine code is executed by those who load it. What is found is therefore only used in a directory that nobody else can
write to: ``NUMBA_CACHE_DIR``, which the user vouches for, or a directory of the user's, with all its parents as
OpenSSH's ``StrictModes`` asks for. Of the last kind there are two, one below ``XDG_CACHE_HOME`` or the home directory,
and one among the temporary files for users without a home, as in many containers. None is in the package, where an
installer would leave the files behind when it removes it.

Where nothing can be written, functions are compiled in every process, as if there were no cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from trio_broker.spark.workarounds.java import cache_directory

NUMBA_CACHE_DIR: Final = "NUMBA_CACHE_DIR"
"""numba's variable for the directory of its own cache; ours is in a directory below it."""

OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

WAIT_SECONDS: Final = 60.0
"""The longest wait for another process that compiles the same function, several times longer than that takes. After
it the function is compiled here: the other one may have been stopped."""

POLL_SECONDS: Final = 0.05


@attrs.frozen
class CodeCache:
    """A cache in ``directories``, in the order in which they are searched; those in ``private`` must be private."""

    directories: tuple[Path, ...]
    private: frozenset[Path] = frozenset()

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if there is none, or none that is whole."""
        for directory in self.directories:
            with contextlib.suppress(OSError):
                if directory in self.private and not is_private(directory):
                    continue
                data = (directory / name).read_bytes()
                digest, content = data[: hashlib.sha256().digest_size], data[hashlib.sha256().digest_size :]
                if digest == hashlib.sha256(content).digest():
                    return content
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file into every directory that can be written to."""
        for directory in self._writable():
            with contextlib.suppress(OSError):
                descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=f"{name}.")
                try:
                    with os.fdopen(descriptor, "wb") as file:
                        file.write(hashlib.sha256(content).digest() + content)
                        # An image may be filled by another user than those who read it.
                        os.fchmod(descriptor, 0o644)
                    os.replace(temporary, directory / name)
                except OSError:
                    os.unlink(temporary)
                    raise

    @contextlib.contextmanager
    def lock(
        self,
        name: str,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Iterator[None]:
        """Let one process at a time into the block, as far as they use the same directory and for ``WAIT_SECONDS``."""
        with contextlib.ExitStack() as stack:
            # The last one is the one that the most processes have in common, and is no network's.
            for directory in reversed(list(self._writable())):
                with contextlib.suppress(OSError):
                    file = stack.enter_context(open(directory / f"{name}.lock", "ab"))
                    give_up_at = now() + WAIT_SECONDS
                    while not _is_locked(file.fileno()) and now() < give_up_at:
                        sleep(POLL_SECONDS)
                    break
            yield

    def _writable(self) -> Iterator[Path]:
        for directory in self.directories:
            with contextlib.suppress(OSError):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                if os.access(directory, os.W_OK) and (directory not in self.private or is_private(directory)):
                    yield directory


def user_cache(environment: Mapping[str, str] = os.environ) -> CodeCache:
    """Return the cache of this user."""
    if named := environment.get(NUMBA_CACHE_DIR):
        return CodeCache((Path(named) / "trio-broker",))
    own = (
        cache_directory(environment) / "machine-code",
        Path(tempfile.gettempdir()) / f"trio-broker-{os.geteuid()}" / "machine-code",
    )
    return CodeCache(own, private=frozenset(own))


def is_private(directory: Path) -> bool:
    """Return whether only this user, and root, can change what is in ``directory``.

    Raises:
        OSError: there is no such directory.
    """
    if directory.resolve(strict=True).stat().st_uid != os.geteuid():
        return False
    return all(_is_safe(each.lstat()) for each in _ways(directory))


def _ways(directory: Path) -> Iterator[Path]:
    """Yield a directory and those above it, on the path as it is written and on that without symbolic links."""
    for path in (directory.absolute(), directory.resolve(strict=True)):
        yield path
        yield from path.parents


def _is_safe(status: os.stat_result) -> bool:
    """Return whether others cannot replace an entry: a sticky directory, such as that of the temporary files, lets only
    owners do so."""
    if status.st_uid not in (0, os.geteuid()):
        return False
    if stat.S_ISLNK(status.st_mode):
        return True  # its mode says nothing
    return not status.st_mode & OTHERS_MAY_WRITE or bool(status.st_mode & stat.S_ISVTX)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
