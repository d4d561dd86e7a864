"""The runtime: everything of the world that a broker does not decide by itself, as one value."""

from __future__ import annotations

import attrs

from trio_broker.runtime.clock import Clock
from trio_broker.runtime.cpu_clock import CpuClock
from trio_broker.runtime.disk import Disk
from trio_broker.runtime.expiry_clock import ExpiryClock
from trio_broker.runtime.network import Network
from trio_broker.runtime.randomness import Random
from trio_broker.runtime.workers import Workers


@attrs.frozen
class Runtime:
    """Made once and handed down. Outside this package nobody opens a file, asks the time, draws a number or starts a
    thread.

    Deadlines of tasks are Trio's (``trio.current_time``), whose clock is replaced with ``trio.run``.
    """

    clock: Clock
    random: Random
    disk: Disk
    workers: Workers
    network: Network
    cpu_clock: CpuClock
    expiry_clock: ExpiryClock = attrs.field(
        default=attrs.Factory(lambda self: ExpiryClock(self.clock), takes_self=True), init=False
    )
    """One for all, so that a jump of the clock is seen by all, and reported once."""
