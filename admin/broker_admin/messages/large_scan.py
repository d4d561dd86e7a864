"""A search that is too large for a page, as jobs that read all of it: the command of an export, and Spark in Python."""

from __future__ import annotations

from shlex import quote

from broker_admin.messages.query import RecordsQuery, time_ms
from broker_admin.messages.search import SearchEnd
from broker_admin.texts import iso_time, shown_text

SHOWN_FILTER_CHARACTERS = 400
"""As much of a filter as a line of comment takes."""

TOO_LARGE = frozenset({SearchEnd.TIME, SearchEnd.BYTES})
"""The ends of searches that had more to read than a page waits for."""


def export_command(topic: str, query: RecordsQuery, bootstrap: str) -> str:
    """The command that copies what the search is over to files."""
    begin = f" --from {iso_time(time_ms(query.time))}" if is_from_time(query) else ""
    return f"trio-broker pipeline export --topic {quote(topic)}{begin} --to {quote(f'parquet:{topic}')} -b {bootstrap}"


def spark_lines(topic: str, query: RecordsQuery, bootstrap: str) -> str:
    """The same search in Spark. Its filter is a comment: its words are not those of Spark's SQL."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    if is_from_time(query):
        options["startingTimestamp"] = str(time_ms(query.time))
    lines = [
        "from trio_broker.spark.session import spark_session",
        "",
        "records = (",
        '    spark_session().read.format("trio_broker")',
        *(f'    .option("{name}", "{value}")' for name, value in options.items()),
        "    .load()",
        ")",
        'columns = ["partition", "offset", "timestamp", "string(key) as key", "string(value) as value"]',
        "texts = records.selectExpr(*columns)",
    ]
    if query.where.strip():
        lines.append(
            f"# {shown_text(query.where.strip(), SHOWN_FILTER_CHARACTERS)}, in the words of Spark's SQL, such as"
        )
        lines.append("""texts.where("get_json_object(value, '$.amount') > 100").show()""")
    else:
        lines.append("texts.show()")
    return "\n".join(lines)


def is_from_time(query: RecordsQuery) -> bool:
    return query.from_ == "time" and not query.cursor
