"""``trio-broker start`` as a process, on a disk whose syncs take longer and with short spans around a change.

A machine's own disk may sync faster than the broker answers, so that no thread ever waits for it. ``WINDOW_SECONDS``
stands in for the minute before and after each change of a setting, which no test waits for.
"""

from __future__ import annotations

import os
import sys

from bench import slow_disk
from trio_broker.cli import main as broker_command
from trio_broker.metrics import effect_watch
from trio_broker.testing import BrokerProcess

SYNC_DELAY_SECONDS = 0.05
"""One thread syncs 20 times a second at most, six of them 120 times, which the event loop of any machine answers."""

WINDOW_SECONDS = 10
"""Twice the samples that a verdict needs: on a crowded machine one may take more than a second."""


class SlowDiskBroker(BrokerProcess):
    """A ``BrokerProcess`` that runs this module's ``main`` in place of ``trio_broker``'s."""

    def command(self) -> list[str]:
        return [__name__ if part == "trio_broker" else part for part in super().command()]


def main() -> None:
    slow_disk.DISK.delay_seconds = SYNC_DELAY_SECONDS
    os.fdatasync = slow_disk.fdatasync  # type: ignore[assignment]
    effect_watch.WINDOW_SECONDS = WINDOW_SECONDS
    broker_command(sys.argv[1:])


if __name__ == "__main__":
    main()
