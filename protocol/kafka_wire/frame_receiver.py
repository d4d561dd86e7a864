"""The receiving half of a connection, of a broker or of a client: bytes in, frames out, and no socket.

The owner of the socket reads into one staging buffer for all of its connections and hands the bytes to
``receive_data``, which keeps a copy of just those bytes. So a connection that is idle holds no buffer. Frames are cut
out of that copy without another one: those that came together lie in one buffer, each with a view of its own part.

A big frame is different: once its size is known and was found allowed, ``receive_buffer`` makes a buffer of its own and
the socket is read into it directly. Until that call nothing is allocated for it, so that the caller may first look at
``frame_bytes_expected`` and wait for memory. What is allocated then goes by what has come, not by what was announced:
four bytes would otherwise be enough to make us hold a hundred million. A large buffer is memory that the system gives
page by page, as it is written.

Source: Kafka's NetworkReceive, for the limits and for memory being asked for before it is taken.
"""

from __future__ import annotations

import mmap  # noqa: TID251 - memory that no file is behind
from typing import Final, TypeAlias

from kafka_wire.errors import WireError
from kafka_wire.framing import MIN_REQUEST_BYTES, SIZE_PREFIX

DIRECT_RECEIVE_BYTES: Final = 32 * 1024
"""A frame that lacks at least this much is read straight into its own buffer. Below it the rest comes through the
staging buffer, together with the requests behind it, which saves a system call for each."""

BIG_FRAME_FIRST_BYTES: Final = 64 * 1024
"""The least that is allocated for a big frame of which little or nothing has come."""

BIG_FRAME_GROWTH: Final = 32
"""How many times as much as has come is allocated. A batch of a mebibyte, the largest by default, gets its whole buffer
after the first read, and to move what has come costs a thirty-second part of a copy."""

MAX_ZEROED_BYTES: Final = 4 * 1024 * 1024
"""A larger buffer is mapped rather than zeroed, whole from the beginning: a page of it takes memory when something is
received into it. To zero a hundred megabytes takes 50 ms; a mapping as small as a common frame would cost more than it
saves."""

FrameBuffer: TypeAlias = bytearray | mmap.mmap


class FrameReceiver:
    """Cuts the bytes of one connection into frames.

    ``max_frame_bytes`` may change while the connection lives, as it does after authentication; it holds for the next
    size that is looked at. Without ``min_frame_bytes`` the frames are requests.
    """

    def __init__(self, max_frame_bytes: int, min_frame_bytes: int = MIN_REQUEST_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.min_frame_bytes = min_frame_bytes
        # Whether part of a frame is here, be it only a byte of its size; if not, the connection is idle. An attribute
        # to read: a property would cost every request two calls.
        self.frame_under_way = False
        self._received: bytearray | None = None
        self._cut = 0  # up to here `_received` was given away as frames, or is 0 and nobody has a view of it
        self._big_frame: FrameBuffer | None = None
        self._big_frame_bytes = 0
        self._big_frame_received = 0

    # --- Bytes in ---

    def receive_data(self, data: memoryview) -> None:
        """Take bytes that came; ``data`` may be overwritten afterwards."""
        if self._big_frame is not None:
            data = self._receive_big_frame_data(data)
        if not data:
            return
        self.frame_under_way = True
        if self._received is None:
            self._received = bytearray(data)
        elif self._cut:
            # Frames look into the old buffer, so it can neither grow nor be thrown away by us.
            self._received = self._received[self._cut :] + data
            self._cut = 0
        else:
            self._received += data

    def receive_buffer(self) -> memoryview | None:
        """Return where to receive the rest of a big frame, or None if no such frame is under way.

        To be asked when ``next_frame`` has nothing more.
        """
        if self._big_frame is None and not self._begin_big_frame():
            return None
        assert self._big_frame is not None
        # It is whole, but ``next_frame`` has not taken it yet; the bytes behind it are not its own.
        if self._big_frame_received == self._big_frame_bytes:
            return None
        return memoryview(self._grown_big_frame())[self._big_frame_received :]

    def bytes_received(self, count: int) -> None:
        """Note that ``count`` bytes were written to the beginning of ``receive_buffer()``."""
        assert self._big_frame is not None, "no big frame is under way"
        self._big_frame_received += count
        assert self._big_frame_received <= len(self._big_frame), f"{self._big_frame_received} > {len(self._big_frame)}"

    def _begin_big_frame(self) -> bool:
        size = self.frame_bytes_expected
        if size is None or self._is_refused(size):
            return False
        here = self.frame_bytes_received
        if size - here < DIRECT_RECEIVE_BYTES:
            return False
        frame = new_buffer(affordable_bytes(size, here))
        if self._received is not None:
            begin = self._cut + SIZE_PREFIX.size
            memoryview(frame)[:here] = memoryview(self._received)[begin : begin + here]
        self._big_frame, self._big_frame_bytes, self._big_frame_received = frame, size, here
        self._received, self._cut = None, 0
        return True

    def _receive_big_frame_data(self, data: memoryview) -> memoryview:
        """Take what belongs to the big frame under way, and return the rest."""
        while data and self._big_frame_received < self._big_frame_bytes:
            frame = self._grown_big_frame()
            begin = self._big_frame_received
            taken = min(len(data), len(frame) - begin)
            memoryview(frame)[begin : begin + taken] = data[:taken]
            self._big_frame_received += taken
            data = data[taken:]
        return data

    def _grown_big_frame(self) -> FrameBuffer:
        """Return the buffer of the big frame under way, a larger one if it was full and more is to come."""
        assert self._big_frame is not None, "no big frame is under way"
        received = self._big_frame_received
        if received == len(self._big_frame):
            # A new one rather than ``extend``, which raises BufferError while the caller has a view of the old one.
            grown = new_buffer(affordable_bytes(self._big_frame_bytes, received))
            memoryview(grown)[:received] = self._big_frame
            self._big_frame = grown
        return self._big_frame

    # --- Frames out ---

    def receive_frame(self, data: memoryview) -> memoryview | None:
        """Take bytes that came, as ``receive_data``, and return what ``next_frame`` would; so are the errors."""
        if not self.frame_under_way:
            size = len(data) - SIZE_PREFIX.size
            # One request, and nothing else: nearly always.
            if self.min_frame_bytes <= size <= self.max_frame_bytes and SIZE_PREFIX.unpack_from(data)[0] == size:
                return memoryview(bytearray(data))[SIZE_PREFIX.size :]
        self.receive_data(data)
        return self.next_frame()

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame without its size, writable, or None when more bytes are needed.

        Raises:
            WireError: the size is negative, too small for a request, or above the limit. The connection is of no use
                then: every further call raises too.
        """
        if self._big_frame is not None:
            return self._finished_big_frame()
        received, begin = self._received, self._cut + SIZE_PREFIX.size
        if received is None or begin > len(received):
            return None
        (size,) = SIZE_PREFIX.unpack_from(received, self._cut)
        # Before the bytes are counted: a size that is not allowed is an error even if all of it never comes.
        if not self.min_frame_bytes <= size <= self.max_frame_bytes:
            raise WireError(f"a frame of {size} bytes; allowed are {self.min_frame_bytes} to {self.max_frame_bytes}")
        end = begin + size
        if end > len(received):
            return None
        frame = memoryview(received)[begin:end]
        # The common case, one request at a time: the buffer belongs to the frame alone, and an idle connection holds
        # none.
        if end == len(received):
            self._received, self._cut = None, 0
            self.frame_under_way = False
        else:
            self._cut = end
        return frame

    def _finished_big_frame(self) -> memoryview | None:
        assert self._big_frame is not None
        if self._big_frame_received < self._big_frame_bytes:
            return None
        frame = memoryview(self._big_frame)
        self._big_frame, self._big_frame_bytes, self._big_frame_received = None, 0, 0
        self.frame_under_way = self._received is not None
        return frame

    @property
    def is_frame_refused(self) -> bool:
        """Whether the size of the frame under way is not allowed, so that ``next_frame`` raises."""
        size = self.frame_bytes_expected
        return size is not None and self._is_refused(size)

    def _is_refused(self, size: int) -> bool:
        return not self.min_frame_bytes <= size <= self.max_frame_bytes

    # --- What is under way ---

    @property
    def bytes_pending(self) -> int:
        """How many bytes are here that were not given away as frames: the requests behind the latest one, or a small
        part of the next. Those of a big frame under way do not count."""
        return 0 if self._received is None else len(self._received) - self._cut

    @property
    def frame_bytes_expected(self) -> int | None:
        """The size of the frame under way, as its sender says; None while that is not known."""
        if self._big_frame is not None:
            return self._big_frame_bytes
        if self._received is None or len(self._received) - self._cut < SIZE_PREFIX.size:
            return None
        size: int = SIZE_PREFIX.unpack_from(self._received, self._cut)[0]
        return size

    @property
    def frame_bytes_received(self) -> int:
        """How much of the frame under way is here, its size prefix not counted."""
        if self._big_frame is not None:
            return self._big_frame_received
        if self._received is None:
            return 0
        here = len(self._received) - self._cut - SIZE_PREFIX.size
        # More may be here: the requests behind it lie in the same buffer.
        return max(0, min(here, self.frame_bytes_expected or 0))


def affordable_bytes(size: int, received: int) -> int:
    """Return how much to allocate for a frame of ``size`` bytes of which ``received`` are here."""
    affordable = max(BIG_FRAME_FIRST_BYTES, BIG_FRAME_GROWTH * received)
    return size if affordable > MAX_ZEROED_BYTES else min(size, affordable)


def new_buffer(count: int) -> FrameBuffer:
    """Return a buffer of ``count`` bytes."""
    if count <= MAX_ZEROED_BYTES:
        return bytearray(count)
    return mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
