"""The common part of the pipelines' commands: the declaration of options, the options for reading and for Spark, and
the exit codes.

Options are fields of attrs classes (``option``), which keeps the name, type, default and help of an option together.
``pipeline_command`` passes an object of each class to the command, and the help has a section for each class.

A wrong option ends a command with one line and exit code 2, any other failure with one line and exit code 1, and Ctrl-C
with exit code 130.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from trio_broker.cli.assignments import key_value
from trio_broker.cli.connecting import (
    DEFAULT_BOOTSTRAP_SERVER,
    PROPERTIES_FILE,
    PROPERTIES_HELP,
    addresses,
    client_properties,
    json_option,
)
from trio_broker.cli.failure import fail, print_error
from trio_broker.cli.interrupts import ending_after_ctrl_c
from trio_broker.cli.output import let_everything_be_printed, note, print_json, print_table
from trio_broker.common.iso8601 import parse_moment
from trio_broker.spark.workarounds.jvm_output import drop_last_lines, jvm_lines_shown_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trio_broker.spark.pipelines.progress import Progress
    from trio_broker.spark.ranges import OffsetRange

INTERRUPTED: Final = 130
"""The exit code that a shell reports for a process ended by SIGINT: 128 plus the signal's number."""

WRONG_OPTION: Final = 2

FORCED_END: Final = "ended without Spark, which does not answer; finished work is kept"
"""Shown where Spark does not end in time after Ctrl-C. A batch survives that as it survives ``kill -9``."""

LOG_LEVEL: Final = "spark.log.level"
"""A setting of Spark. Spark's log is turned off unless the user sets it."""

STARTING: Final = "starting Spark"

Command = Callable[..., Any]


# --- Options as fields ---


def option(*names: str, **settings: Any) -> Any:
    """Declare a field as an option of a command; ``settings`` are the arguments of ``click.option``."""
    return attrs.field(metadata={"names": names, "settings": settings})


dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be read; nothing is written.")


class SectionedCommand(click.Command):
    """A command whose help has the options in sections: its own first, then those in ``sections``, by title."""

    sections: Mapping[str, Sequence[str]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        titles = {name: title for title, names in self.sections.items() for name in names}
        records: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *self.sections)}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                records[titles.get(parameter.name or "", "Options")].append(record)
        for title, rows in records.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def pipeline_command(name: str, example: str, **groups: type[Any]) -> Callable[[Command], SectionedCommand]:
    """Make a command of a function with an argument for each class in ``groups``, and ``start_spark`` and ``as_json``.

    The first sentence of a class's docstring is the title of its section in the help.
    """
    groups = {**groups, "start_spark": SparkStart}

    def decorate(command: Command) -> SectionedCommand:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            with ending_after_ctrl_c(FORCED_END, INTERRUPTED), ending_in_one_line():
                objects = {
                    key: options(**{field.name: values.pop(field.name) for field in attrs.fields(options)})
                    for key, options in groups.items()
                }
                command(**objects, **values)

        # Click lists the options in the reverse order of their decorators.
        decorated: Command = run
        for field in reversed([field for options in groups.values() for field in attrs.fields(options)]):
            decorated = click.option(*field.metadata["names"], field.name, **field.metadata["settings"])(decorated)
        epilog = f"Example: trio-broker pipeline {example}"
        made = click.command(name, cls=SectionedCommand, epilog=epilog)(json_option(decorated))
        made.sections = {
            (options.__doc__ or "").split(".")[0]: [field.name for field in attrs.fields(options)]
            for options in groups.values()
        }
        return made

    return decorate


# --- Reading ---


def _addresses(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return None if value is None else ",".join(map(str, addresses(value)))


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return max(0, parse_moment(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@attrs.frozen
class SourceOptions:
    """Reading."""

    bootstrap_servers: str | None = option(
        "-b",
        "--bootstrap-server",
        callback=_addresses,
        metavar="HOST:PORT[,HOST:PORT…]",
        help=f"A broker that knows the others.  [default: {DEFAULT_BOOTSTRAP_SERVER}, unless --path is given]",
    )
    properties: Mapping[str, str] = option(
        "--command-config",
        type=PROPERTIES_FILE,
        callback=client_properties,
        metavar="PATH",
        help=PROPERTIES_HELP,
    )
    topics: tuple[str, ...] = option("--topic", multiple=True, metavar="TOPIC", help="A topic to read; repeatable.")
    topic_pattern: str | None = option(
        "--topic-pattern", metavar="REGEX", help="All topics whose names contain a match; ^…$ matches whole names."
    )
    start: int | None = option(
        "--from", callback=_moment, metavar="DATETIME", help="Only records from this time on; ISO 8601."
    )
    end: int | None = option("--until", callback=_moment, metavar="DATETIME", help="Only records before it; ISO 8601.")
    path: str | None = option(
        "--path",
        metavar="DIR[,DIR…]",
        help="The broker's log directories, as Spark's workers see them: read these files instead of the network.",
    )
    further: tuple[tuple[str, str], ...] = option(
        "--option",
        type=key_value,
        multiple=True,
        metavar="KEY=VALUE",
        help="Any option of the data source, such as startingOffsets=latest; repeatable.",
    )

    def of_data_source(self) -> dict[str, str]:
        """Return the options of the data source; one that ``--option`` sets replaces that of the flag."""
        from trio_broker.spark.options.option import with_defaults
        from trio_broker.spark.options.security_options import as_options

        is_local = self.bootstrap_servers is None and self.path is None
        given = {
            "kafka.bootstrap.servers": DEFAULT_BOOTSTRAP_SERVER if is_local else self.bootstrap_servers,
            "subscribe": ",".join(self.topics) or None,
            "subscribePattern": self.topic_pattern,
            "startingTimestamp": self.start,
            # A partition whose records are all older has nothing to read. The data source's default is an error.
            "startingOffsetsByTimestampStrategy": None if self.start is None else "latest",
            "endingTimestamp": self.end,
            "path": self.path,
        }
        flags = {name: str(value) for name, value in given.items() if value is not None}
        return with_defaults(dict(self.further), flags | as_options(self.properties))


RANGE_COLUMNS: Final = {
    "TOPIC": "topic",
    "PARTITION": "partition",
    "FROM": "start_offset",
    "TO": "end_offset",
    "OFFSETS": "offsets",
}


def show_ranges(ranges: Sequence[OffsetRange], *, as_json: bool, facts: Mapping[str, Any], words: str) -> None:
    """Print the ranges that would be read: as JSON with ``facts``, or as a table and a last line with ``words``."""
    rows: list[dict[str, Any]] = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "start_offset": each.start_offset,
            "end_offset": each.end_offset,
            "offsets": each.offset_count,
        }
        for each in ranges
    ]
    if as_json:
        print_json({"dry_run": True, "partitions": rows, **facts})
        return
    print_table(RANGE_COLUMNS, rows)
    count = sum(each.offset_count for each in ranges)
    click.echo(f"dry run: up to {count:,} records{words}; nothing was written")


# --- Spark, and the end of a command ---


@attrs.frozen
class SparkStart:
    """Spark. A command calls the object to start a session, and only if there is work: a start takes seconds."""

    master: str | None = option(
        "--master",
        metavar="URL",
        help="Spark's master, or a server of Spark Connect.  [default: local[*], all cores of this machine]",
    )
    spark_conf: tuple[tuple[str, str], ...] = option(
        "--spark-conf",
        type=key_value,
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.driver.memory=4g; repeatable.",
    )

    def __call__(self, app_name: str, progress: Progress) -> SparkSession:
        """Start a session. What its JVM has to say is printed above ``progress``; without a log level, neither its
        first lines nor its last ones.

        Raises:
            SparkMissing: Spark, or a Java for it, is not installed.
        """
        from trio_broker.spark.session import is_connect, spark_session

        settings = dict(self.spark_conf)
        progress.phase(STARTING, is_counting=False)
        with contextlib.ExitStack() as stack:
            if active_spark() is None:
                stack.enter_context(jvm_lines_shown_by(progress.print_above, from_the_start=LOG_LEVEL in settings))
            session = spark_session(app_name, master=self.master, settings=settings)
        # For a failed task Spark logs a page of JVM stack trace; the command prints the reason in one line.
        if LOG_LEVEL not in settings and not is_connect(session):
            session.sparkContext.setLogLevel("OFF")
        return session


@contextlib.contextmanager
def ending_in_one_line() -> Iterator[None]:
    """End the command with one line after an error of its job, and stop the Spark session that the command started."""
    from trio_broker.client.errors import ClientError
    from trio_broker.spark.errors import OptionError, SparkJobError
    from trio_broker.spark.session import require_packages

    let_everything_be_printed()
    was_running = active_spark()
    try:
        require_packages()
        yield
    except OptionError as error:
        print_error(str(error))
        sys.exit(WRONG_OPTION)
    except (SparkJobError, ClientError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        note("interrupted; finished work is kept")
        sys.exit(INTERRUPTED)
    finally:
        # A session that existed before belongs to the caller, for example a notebook or a test.
        started = active_spark()
        if started is not None and started is not was_running:
            drop_last_lines()
            started.stop()


def active_spark() -> SparkSession | None:
    """The Spark session of this process, if there is one."""
    # A process that has not imported pyspark has no session, and the import would take a second.
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    active: SparkSession | None = SparkSession.getActiveSession()
    return active
