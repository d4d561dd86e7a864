"""The options that several pipelines have: what is read, and the Spark that does it; and how a pipeline ends.

A wrong option ends with one line and exit code 2, whatever else fails with one line and 1, Ctrl-C with 130, as a shell
counts the end by that signal.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from trio_broker.cli.assignments import key_value
from trio_broker.cli.failure import complain, fail
from trio_broker.cli.moments import parse_moment
from trio_broker.cli.output import let_everything_be_printed, note
from trio_broker.client.address import parse_addresses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_BOOTSTRAP_SERVER: Final = "127.0.0.1:9092"
"""Where our broker listens unless told otherwise."""

INTERRUPTED: Final = 130
"""What a shell makes of a process that SIGINT ended: 128 and the signal's number."""

WRONG_OPTION: Final = 2

LOG_LEVEL: Final = "spark.log.level"
"""Of Spark's settings; whoever gives it wants to see what Spark says."""

Command = Callable[..., None]


@attrs.frozen
class SparkStart:
    """The Spark that a command was asked to use; not started unless it is called."""

    master: str | None
    settings: Mapping[str, str]

    def __call__(self, app_name: str) -> SparkSession:
        """Start it.

        Raises:
            SparkMissing: it, or a Java for it, is not installed.
        """
        from trio_broker.spark.session import spark_session

        # A failed task would print a page of the JVM's stack; its reason is told in the command's one line.
        session = spark_session(app_name, master=self.master, settings=self.settings)
        if LOG_LEVEL not in self.settings:
            session.sparkContext.setLogLevel("OFF")
        return session


def runs_spark(command: Command) -> Command:
    """Give a command the options of the Spark it starts, as ``start_spark``, and stop that Spark at its end.

    Errors of a job end it as this module says.
    """

    @click.option(
        "--master", metavar="URL", help="Spark's master.  [default: local[*], all cores of this machine]", default=None
    )
    @click.option(
        "--spark-conf",
        type=key_value,
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.driver.memory=4g; may be repeated.",
    )
    @functools.wraps(command)
    def run(*arguments: Any, master: str | None, spark_conf: tuple[tuple[str, str], ...], **options: Any) -> None:
        with_job_errors(command)(*arguments, start_spark=SparkStart(master, dict(spark_conf)), **options)

    return run


def with_job_errors(command: Command) -> Command:
    """Let what goes wrong with a job end a command with one line, and leave no Spark running."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        from trio_broker.client.errors import ClientError
        from trio_broker.spark.errors import OptionError, SparkJobError
        from trio_broker.spark.session import require_packages

        let_everything_be_printed()
        was_running = active_spark()
        try:
            require_packages()
            command(*arguments, **options)
        except OptionError as error:
            complain(str(error))
            sys.exit(WRONG_OPTION)
        except (SparkJobError, ClientError) as error:
            fail(str(error))
        except KeyboardInterrupt:
            note("interrupted; what was finished stays")
            sys.exit(INTERRUPTED)
        finally:
            started = active_spark()
            if started is not None and started is not was_running:
                started.stop()

    return run


def active_spark() -> SparkSession | None:
    """The Spark session of this process, if there is one."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    active: SparkSession | None = SparkSession.getActiveSession()
    return active


def reads_topics(command: Command) -> Command:
    """Give a command the options that say what is read, as ``source_options``: options of the data source."""

    @click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap_servers",
        callback=_addresses,
        metavar="HOST:PORT[,HOST:PORT…]",
        help=f"A broker that knows the others.  [default: {DEFAULT_BOOTSTRAP_SERVER}, unless --path is given]",
    )
    @click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="A topic to read; may be repeated.")
    @click.option(
        "--topic-pattern", metavar="REGEX", help="All topics in whose names it is found; ^…$ is for whole names."
    )
    @click.option("--from", "start", callback=_moment, metavar="DATETIME", help="Records at least as young; ISO 8601.")
    @click.option("--until", "end", callback=_moment, metavar="DATETIME", help="Records before that; ISO 8601.")
    @click.option(
        "--path",
        metavar="DIR[,DIR…]",
        help="The broker's log directories, as the readers see them: files are read in place of the network.",
    )
    @click.option(
        "--option",
        "further",
        type=key_value,
        multiple=True,
        metavar="KEY=VALUE",
        help="Any option of the data source, such as startingOffsets=latest; may be repeated.",
    )
    @functools.wraps(command)
    def run(
        *arguments: Any,
        bootstrap_servers: str | None,
        topics: tuple[str, ...],
        topic_pattern: str | None,
        start: int | None,
        end: int | None,
        path: str | None,
        further: tuple[tuple[str, str], ...],
        **options: Any,
    ) -> None:
        if bootstrap_servers is None and path is None:
            bootstrap_servers = DEFAULT_BOOTSTRAP_SERVER
        given = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "subscribe": ",".join(topics) or None,
            "subscribePattern": topic_pattern,
            "startingTimestamp": start,
            # A partition without a record as young has nothing to read; the data source takes it for an error.
            "startingOffsetsByTimestampStrategy": None if start is None else "latest",
            "endingTimestamp": end,
            "path": path,
        }
        source_options = {name: str(value) for name, value in given.items() if value is not None}
        command(*arguments, source_options=_merged(source_options, dict(further)), **options)

    return run


def _merged(options: dict[str, str], further: Mapping[str, str]) -> dict[str, str]:
    """Return both; ``--option kafka.bootstrap.servers=…`` is as good as the flag made for it."""
    known = {name.lower() for name in further}
    return {**{name: value for name, value in options.items() if name.lower() not in known}, **further}


def _addresses(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        return ",".join(map(str, parse_addresses(value)))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return max(0, parse_moment(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
