"""The clock of a simulation: that of its event loop, which jumps to the next deadline when nothing else is to do."""

from __future__ import annotations

import attrs
import trio

START_MS = 1_700_000_000_000
"""The wall clock at the beginning of every simulation."""


@attrs.frozen
class SimulatedClock:
    """See ``Clock``. ``trio_clock`` is what ``trio.run`` is given, for instance ``trio.testing.MockClock``."""

    trio_clock: trio.abc.Clock

    def now_ms(self) -> int:
        return START_MS + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return self.trio_clock.current_time()
