"""Turns of long work: one piece of it has a turn in a pass of the event loop, however many are under way.

Long work is what a client may make as large as it likes: the elements of a request, the bytes of a response, requests
that are sent before the one ahead of them was answered. It is done in turns, each about as long as a small request. A
small request waits for those that lie between its arrival and its handler; so they must be few, whether one client has
long work or a hundred have. First come, first served, by whatever part of the broker.
"""

from __future__ import annotations

from trio.lowlevel import ParkingLot, RunVar, checkpoint


class Turns:
    """The order in which the long work of one event loop goes on. ``is_busy`` while some waits for its turn."""

    def __init__(self) -> None:
        self.is_busy = False
        self._waiting = ParkingLot()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting) + self.is_busy

    async def wait(self) -> None:
        """Wait for a turn: what the caller does from here to its next wait. Any state may have changed meanwhile."""
        if self.is_busy:
            # Woken in the pass after the turn of the one before.
            await self._waiting.park()
        else:
            self.is_busy = True
            await self._pass()
        # Trio runs the tasks of a pass in random order. After one pass those that it found ready would have their turn
        # after this one every other time.
        await self._pass()
        self._hand_on()

    async def _pass(self) -> None:
        try:
            await checkpoint()
        except BaseException:
            self._hand_on()
            raise

    def _hand_on(self) -> None:
        """Let the next one wait for its turn, which begins after a pass at the earliest."""
        if self._waiting:
            self._waiting.unpark()
        else:
            self.is_busy = False


_TURNS: RunVar[Turns] = RunVar("turns")


def turns_of_loop() -> Turns:
    """Those of the running event loop."""
    try:
        return _TURNS.get()
    except LookupError:
        turns = Turns()
        _TURNS.set(turns)
        return turns
