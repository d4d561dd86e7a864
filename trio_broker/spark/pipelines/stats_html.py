"""The report of ``stats`` as one HTML page that needs nothing else: pictures and style are inside, and no script.

Source: ``stats_page.html`` for what it looks like, ``stats_plots`` for the pictures.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, Final

import attrs

from trio_broker.spark.pipelines.stats_plots import Plot, short_size, short_time
from trio_broker.spark.pipelines.stats_report import damage_count

Document = Mapping[str, Any]

TEMPLATE: Final = "stats_page.html"

UNKNOWN: Final = "–"


@attrs.frozen
class Cell:
    """What stands in a cell; ``kind`` is a class of the page's style."""

    text: str
    kind: str = ""


@attrs.frozen
class Column:
    """A column: its heading, and what of a row stands in it."""

    title: str
    cell: Callable[[Document], Cell]
    is_text: bool = False


@attrs.frozen
class PageTable:
    """A table of the page."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


def html_page(document: Document, plots: Sequence[Plot]) -> str:
    """Return the page of a report."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, trim_blocks=True, undefined=StrictUndefined)
    template = resources.files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8")
    return environment.from_string(template).render(
        title=title_of(document),
        generated=f"{readable_time(document['generated'])} UTC",
        period=period_of(document),
        is_damaged=damage_count(document) > 0,
        verdict=verdict_of(document),
        facts=facts_of(document),
        plots=[{"text": plot.text, "data": base64.b64encode(plot.png).decode()} for plot in plots],
        tables=[each for each in tables_of(document) if each.rows],
    )


def title_of(document: Document) -> str:
    """Return what the page is about."""
    topics = sorted({each["topic"] for each in document["partitions"]})
    named = ", ".join(topics[:3]) + (f" and {len(topics) - 3} more" if len(topics) > 3 else "")
    return f"Batches of {named}" if topics else "No batches"


def period_of(document: Document) -> str:
    """Return the time that the records cover."""
    totals = document["totals"]
    if totals["first_timestamp"] is None:
        return ""
    return f"{readable_time(totals['first_timestamp'])} to {readable_time(totals['last_timestamp'])} UTC"


def verdict_of(document: Document) -> str:
    """Return in a sentence whether anything is damaged."""
    totals = document["totals"]
    if not document["partitions"]:
        return "There was nothing to look at."
    if not document["checksums_verified"]:
        checked = "Checksums were not verified."
    elif totals["bad_batches"]:
        checked = f"{some(totals['bad_batches'], 'batch has', 'batches have')} a wrong checksum."
    else:
        checked = "Every batch that could be read has the right checksum."
    if totals["unreadable_stretches"]:
        return f"{checked} {some(totals['unreadable_stretches'], 'stretch', 'stretches')} of offsets cannot be read."
    return checked


def facts_of(document: Document) -> list[tuple[str, str]]:
    """Return the numbers that stand at the top."""
    totals = document["totals"]
    facts = [
        ("partitions", number(totals["partitions"])),
        ("batches", number(totals["batches"])),
        ("records", number(totals["records"])),
        ("in the log", short_size(totals["bytes"])),
        ("late batches", number(totals["late_batches"])),
        ("worst lag", UNKNOWN if totals["worst_lag_ms"] is None else short_time(totals["worst_lag_ms"] / 1000)),
        ("offsets missing", number(totals["offsets_missing_between"] + totals["offsets_missing_inside"])),
    ]
    if totals["dead_ratio"] is not None:
        facts.append(("dead records", percent(totals["dead_ratio"])))
    return facts


def tables_of(document: Document) -> list[PageTable]:
    """Return all tables; those without rows are not shown."""
    has_keys = any(each["keys"] is not None for each in document["partitions"])
    return [
        table("Batches with a wrong checksum", BAD_COLUMNS, document["bad_batches"]),
        table("Unreadable stretches", DAMAGE_COLUMNS, document["unreadable"]),
        table("Partitions", PARTITION_COLUMNS, document["partitions"], "Sizes are bytes in the log, compressed."),
        table(
            "Order of offsets and timestamps",
            ORDER_COLUMNS,
            document["partitions"],
            "Offsets are missing between batches and inside of them where compaction, markers or aborted transactions"
            " were. A batch is late if its timestamp is below that of a batch before it.",
        ),
        table(
            "Keys",
            KEY_COLUMNS,
            document["partitions"] if has_keys else [],
            "Dead records are those that compaction could drop.",
        ),
        table("Codecs", CODEC_COLUMNS, document["codecs"]),
    ]


def table(title: str, columns: Sequence[Column], rows: Sequence[Document], note: str = "") -> PageTable:
    """Return a table of ``rows``."""
    return PageTable(title, columns, [[column.cell(row) for column in columns] for row in rows], note)


# --- Cells ---


def number(value: float | None) -> str:
    """Return a number with its thousands apart."""
    return UNKNOWN if value is None else f"{value:,}"


def some(count: int, one: str, several: str) -> str:
    """Return a number with the words for so many."""
    return f"{number(count)} {one if count == 1 else several}"


def percent(value: float | None) -> str:
    """Return a share."""
    return UNKNOWN if value is None else f"{value:.1%}"


def readable_time(text: str | None) -> str:
    """Return a time of the report for people, without its zone: seconds are enough."""
    return UNKNOWN if text is None else text.partition(".")[0].replace("T", " ")


def counted(title: str, name: str, *, is_alarm: bool = False) -> Column:
    """Return a column of numbers; one that ``is_alarm`` stands out where it is not zero."""
    return Column(title, lambda row: Cell(number(row[name]), "alarm" if is_alarm and row[name] else ""))


def sized(title: str, name: str) -> Column:
    """Return a column of sizes."""
    return Column(title, lambda row: Cell(UNKNOWN if row[name] is None else short_size(row[name])))


def timed(title: str, name: str) -> Column:
    """Return a column of times."""
    return Column(title, lambda row: Cell(readable_time(row[name])))


def texted(title: str, name: str, kind: str = "text") -> Column:
    """Return a column of texts."""
    return Column(title, lambda row: Cell(str(row[name]), kind), is_text=True)


def placed(title: str, name: str, unit: str, text: Callable[[int], str]) -> Column:
    """Return a column of what was found at an offset."""

    def cell(row: Document) -> Cell:
        found = row[name]
        return Cell(UNKNOWN if found is None else f"{text(found[unit])} at {found['offset']:,}")

    return Column(title, cell)


def of_keys(title: str, cell: Callable[[Document], str]) -> Column:
    """Return a column about keys."""
    return Column(title, lambda row: Cell(UNKNOWN if row["keys"] is None else cell(row["keys"])))


PARTITION: Final = (texted("topic", "topic"), counted("partition", "partition"))

PARTITION_COLUMNS: Final = (
    *PARTITION,
    counted("batches", "batches"),
    counted("records", "records"),
    sized("size", "bytes"),
    counted("records per batch", "records_per_batch"),
    sized("size of a batch", "bytes_per_batch"),
    sized("size of a record", "bytes_per_record"),
    counted("markers", "control_batches"),
    counted("transactional", "transactional_batches"),
    counted("bad", "bad_batches", is_alarm=True),
    counted("unreadable", "unreadable_stretches", is_alarm=True),
)

ORDER_COLUMNS: Final = (
    *PARTITION,
    counted("from offset", "start_offset"),
    counted("to offset", "end_offset"),
    counted("missing between", "offsets_missing_between"),
    placed("longest gap", "longest_gap", "offsets", number),
    counted("missing inside", "offsets_missing_inside"),
    timed("first record, UTC", "first_timestamp"),
    timed("last record, UTC", "last_timestamp"),
    counted("late batches", "late_batches"),
    placed("worst lag", "worst_lag", "milliseconds", lambda lag: short_time(lag / 1000)),
)

KEY_COLUMNS: Final = (
    *PARTITION,
    of_keys("records", lambda keys: number(keys["records"])),
    of_keys("distinct keys", lambda keys: ("about " if keys["is_estimate"] else "") + number(keys["distinct_keys"])),
    of_keys("without key", lambda keys: number(keys["records_without_key"])),
    of_keys("dead records", lambda keys: number(keys["dead_records"])),
    of_keys("dead share", lambda keys: percent(keys["dead_ratio"])),
    Column("problem", lambda row: Cell((row["keys"] or {}).get("problem") or "", "text long"), is_text=True),
)

CODEC_COLUMNS: Final = (
    texted("codec", "codec"),
    counted("batches", "batches"),
    counted("records", "records"),
    sized("size", "bytes"),
)

BAD_COLUMNS: Final = (
    *PARTITION,
    counted("offset", "offset"),
    counted("last offset", "last_offset"),
    sized("size", "bytes"),
    texted("read from", "origin", "text long"),
)

DAMAGE_COLUMNS: Final = (
    *PARTITION,
    counted("from offset", "offset"),
    counted("to offset", "end_offset"),
    texted("reason", "reason", "text long"),
)
