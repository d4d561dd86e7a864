"""What a consumer of kafka-python that polls for less time than joining takes has to be helped with."""

from __future__ import annotations

from typing import Any


def rejoin_if_forgotten(consumer: Any) -> None:
    """Have ``consumer`` join again where it would pass over its assignment; to be called before each poll.

    kafka-python 3.0.12 does so with one that came between two polls, when it was a change of metadata that had made it
    join again, and waits for ever then (docs/client-compatibility.md).
    """
    coordinator = consumer._coordinator
    joining = coordinator._join_task
    if joining is not None and joining.is_done and not coordinator.need_rejoin():
        coordinator.request_rejoin()
