"""The runtime of this machine: its clocks, its entropy, its file systems and threads of this process."""

from __future__ import annotations

import random

from trio_broker.runtime.clock import Clock, SystemClock
from trio_broker.runtime.cpu_clock import SystemCpuClock
from trio_broker.runtime.network import RealNetwork
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.runtime.real_workers import RealWorkers
from trio_broker.runtime.runtime import Runtime


def real_runtime(clock: Clock | None = None) -> Runtime:
    """Return the runtime of this machine; with ``clock``, its time is that clock's."""
    return Runtime(
        clock=clock or SystemClock(),
        # Of the system, since ids are among what is drawn, and nobody may guess the next.
        random=random.SystemRandom(),
        disk=RealDisk(),
        workers=RealWorkers(),
        network=RealNetwork(),
        cpu_clock=SystemCpuClock(),
    )
