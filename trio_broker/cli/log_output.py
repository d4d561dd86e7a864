"""What a broker's process writes: its log, on standard error, as text or as one JSON object a line.

In JSON everything that the process writes is such a line, for programs that collect logs by lines: also its addresses,
which are for display and stand on standard output otherwise, the reason of a start that failed, warnings, and the
traceback of a crash. The members of a line are ``time`` (UTC, to the millisecond), ``level``, ``logger``, ``message``
and, where there is one, ``exception``: a traceback.
"""

from __future__ import annotations

import enum
import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import Final, NoReturn

import click

from trio_broker.cli.failure import print_error

TEXT_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

log = logging.getLogger("trio_broker")


class LogFormat(enum.Enum):
    """The form of what the process writes."""

    TEXT = "text"
    JSON = "json"

    def announce(self, line: str) -> None:
        """Write a line about a broker that serves now."""
        if self is LogFormat.TEXT:
            click.echo(line)
        else:
            # Without the blanks that align it.
            log.info("%s", " ".join(line.split()))

    def fail(self, *reasons: str) -> NoReturn:
        """Write why the broker does not start, or was not closed properly, and end with exit code 1."""
        self.print_error(*reasons)
        sys.exit(1)

    def print_error(self, *reasons: str) -> None:
        """Write each reason as a line."""
        for reason in reasons:
            if self is LogFormat.TEXT:
                print_error(reason)
            else:
                log.error("%s", reason)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        members = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        return json.dumps(members)


def set_up_logging(log_format: LogFormat, level: str) -> None:
    """Have the process write its log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(TEXT_FORMAT) if log_format is LogFormat.TEXT else JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler])
    if log_format is LogFormat.JSON:
        logging.captureWarnings(True)
        log_uncaught_exceptions()


def log_uncaught_exceptions() -> None:
    """Log what Python would print to standard error as lines of its own."""

    def log_crash(kind: type[BaseException], error: BaseException, traceback: object) -> None:
        log.critical("the process ends by an exception", exc_info=error)

    def log_thread(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread is not None else "unknown"
        log.error("the thread %s ends by an exception", name, exc_info=args.exc_value)

    def log_ignored(args: sys.UnraisableHookArgs) -> None:
        log.error("%s: %r", args.err_msg or "an exception is ignored in", args.object, exc_info=args.exc_value)

    sys.excepthook, threading.excepthook, sys.unraisablehook = log_crash, log_thread, log_ignored
