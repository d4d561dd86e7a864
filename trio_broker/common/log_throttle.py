"""Log lines about what any client can cause as often as it likes: one per kind and interval, with a count of the
rest."""

from __future__ import annotations

import logging

import attrs

from trio_broker.runtime.clock import Clock

LOG_INTERVAL_SECONDS = 10.0
"""A flood of refused connections is worth six lines a minute: enough to see when it began and whether it goes on."""


@attrs.define(eq=False)
class LogThrottle:
    """Lets one line of each kind through per interval. Kinds are ours, and few: nothing a client sends may name one."""

    log: logging.Logger
    clock: Clock
    _last: dict[str, float] = attrs.field(factory=dict)
    _kept_back: dict[str, int] = attrs.field(factory=dict)

    def info(self, kind: str, text: str) -> None:
        """As ``warning``, at that level."""
        self._log(logging.INFO, kind, text)

    def warning(self, kind: str, text: str) -> None:
        """Log ``text``, unless a line of ``kind`` was logged a moment ago."""
        self._log(logging.WARNING, kind, text)

    def error(self, kind: str, text: str, bug: Exception | None = None) -> None:
        """As ``warning``, at that level, and with the traceback of ``bug`` if there is one."""
        self._log(logging.ERROR, kind, text, bug)

    def _log(self, level: int, kind: str, text: str, bug: Exception | None = None) -> None:
        now = self.clock.monotonic()
        if kind in self._last and now - self._last[kind] < LOG_INTERVAL_SECONDS:
            self._kept_back[kind] = self._kept_back.get(kind, 0) + 1
            return
        self._last[kind] = now
        more = self._kept_back.pop(kind, 0)
        since = f" ({more} more like it since the last line)" if more else ""
        self.log.log(level, "%s%s", text, since, exc_info=bug)
