"""The loggers of the broker's process, and changing their levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from broker_admin.views.cluster.config import ConfigRefusal, SettingChange
from trio_broker.config.entries import LoggerLevel


@attrs.frozen
class LoggerDifference:
    """A logger before and after a change, of its own level or of that of one above it."""

    before: LoggerLevel
    after: LoggerLevel


@attrs.frozen
class LoggerChangeResult:
    """What came of a change of levels: the loggers that now have, or in a dry run would have, another level; or
    nothing, with the reason for each logger that is refused. ``changes`` are the own levels that were set or reset."""

    differences: tuple[LoggerDifference, ...] = ()
    refusals: tuple[ConfigRefusal, ...] = ()
    changes: tuple[SettingChange, ...] = ()


class LoggersView(Protocol):
    """The loggers of a broker, as the admin app sees and changes them."""

    def levels(self) -> Sequence[LoggerLevel]:
        """The root logger and the broker's own, by name. Levels have the names of log4j, as in Kafka's tools."""
        ...

    async def change(self, levels: Mapping[str, str | None], *, dry_run: bool = False) -> LoggerChangeResult:
        """Set levels until the next start, None for that of the parent; all of them or none."""
        ...
