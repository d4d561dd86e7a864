"""Pictures of what ``stats`` found: PNGs, each about one question, readable at the width of a phone.

Drawn 4.6 inches wide, so that at 460 pixels of a page letters are 11 pixels high and above; the files have twice as
many pixels, for sharp screens. Needs matplotlib (the extra ``report``).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import attrs

from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.pipelines.progress import short_bytes, short_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_INCHES: Final = 4.6
HEIGHT_INCHES: Final = 2.9
DOTS_PER_INCH: Final = 200

ROW_INCHES: Final = 0.26
"""Of one bar of a picture with a bar for each partition."""

MOST_BARS: Final = 20
"""A picture names so many partitions; the table below has all."""

LETTER_POINTS: Final = 8.5
TITLE_POINTS: Final = 10.5

MOST_EDGE_LABELS: Final = 9
"""More would run into each other."""

CODEC_COLORS: Final = {
    "none": "#8d99ae",
    "gzip": "#e09f3e",
    "snappy": "#6a994e",
    "lz4": "#2a6f97",
    "zstd": "#7b2d8b",
}
UNKNOWN_COLOR: Final = "#c1121f"
BAR_COLOR: Final = "#2a6f97"
WARNING_COLOR: Final = "#c1121f"
INK: Final = "#22272e"
GRID: Final = "#e3e7ec"

Document = Mapping[str, Any]
Draw = Callable[["Axes"], None]


class MatplotlibMissing(SparkJobError):
    """Pictures were asked for, and there is nothing to draw them with."""


@attrs.frozen
class Plot:
    """One picture. ``name`` is good for a file, ``text`` tells what is in it to those who cannot see it."""

    name: str
    text: str
    png: bytes


def require_matplotlib() -> None:
    """Raise ``MatplotlibMissing`` where nothing can be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MatplotlibMissing(f"matplotlib is not installed ({error}): pip install 'trio-broker[report]'") from None


def plots_of(document: Document) -> list[Plot]:
    """Return the pictures of a report; those that would be empty are left out.

    Raises:
        MatplotlibMissing: it is not installed.
    """
    require_matplotlib()
    if not document["totals"]["batches"]:
        return []
    plots = [batch_sizes(document), records_in_batches(document), codecs(document), partition_sizes(document)]
    timed = [each for each in document["partitions"] if each["first_timestamp"] is not None]
    if timed:
        plots.append(time_ranges(timed))
    late = [each for each in document["partitions"] if each["worst_lag"] is not None]
    if late:
        plots.append(worst_lags(late))
    counted = [each for each in document["partitions"] if each["keys"] is not None and each["keys"]["records"]]
    if counted:
        plots.append(dead_records(counted))
    return plots


# --- Histograms ---


def batch_sizes(document: Document) -> Plot:
    """Return how many batches are how large, by codec."""
    bins = document["batch_sizes"]
    names = [each["codec"] for each in document["codecs"]]

    def draw(axes: Axes) -> None:
        floor = [0] * len(bins)
        for name in names:
            counts = [each["by_codec"].get(name, 0) for each in bins]
            axes.bar(range(len(bins)), counts, 0.94, floor, align="edge", color=codec_color(name), label=name)
            floor = [low + count for low, count in zip(floor, counts, strict=True)]
        if len(names) > 1 or names != ["none"]:
            axes.legend(title="codec", frameon=False, fontsize=LETTER_POINTS - 0.5, title_fontsize=LETTER_POINTS - 0.5)
        label_edges(axes, [each["bytes_from"] for each in bins], bins[-1]["bytes_to"] + 1, short_size)
        axes.set_xlabel("size of a batch, compressed, with its header")
        axes.set_ylabel("batches")

    return picture("batch-sizes", "Batches by size", draw)


def records_in_batches(document: Document) -> Plot:
    """Return how many batches have how many records."""
    bins = document["records_in_batches"]

    def draw(axes: Axes) -> None:
        axes.bar(range(len(bins)), [each["batches"] for each in bins], 0.94, align="edge", color=BAR_COLOR)
        label_edges(axes, [each["records_from"] for each in bins], bins[-1]["records_to"] + 1, short_number)
        axes.set_xlabel("records in a batch")
        axes.set_ylabel("batches")

    return picture("records-in-batches", "Batches by number of records", draw)


def label_edges(axes: Axes, starts: Sequence[int], end: int, text: Callable[[float], str]) -> None:
    """Write at the borders of bins, which are one apart, what values they stand for."""
    edges = [*starts, end]
    step = -(-len(edges) // MOST_EDGE_LABELS)
    places = range(0, len(edges), step)
    axes.set_xticks(list(places), [text(edges[place]) for place in places])
    axes.set_xlim(-0.1, len(starts) + 0.1)
    count_axis(axes)


def count_axis(axes: Axes) -> None:
    """Let the upward axis count whole things, in short."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


# --- Bars ---


def codecs(document: Document) -> Plot:
    """Return how the bytes are shared out among codecs."""
    rows = sorted(document["codecs"], key=lambda each: each["bytes"])
    total = sum(each["bytes"] for each in rows) or 1

    def draw(axes: Axes) -> None:
        texts = [f"{short_size(each['bytes'])}, {each['bytes'] / total:.0%}" for each in rows]
        colors = [codec_color(each["codec"]) for each in rows]
        labelled_bars(axes, [each["codec"] for each in rows], [each["bytes"] for each in rows], texts, colors)
        axes.set_xlabel("bytes in the log")

    return picture("codecs", "Bytes by codec", draw, bars=len(rows))


def partition_sizes(document: Document) -> Plot:
    """Return which partitions are the largest."""
    rows = largest(document["partitions"], lambda each: each["bytes"])

    def draw(axes: Axes) -> None:
        sizes = [each["bytes"] for each in rows]
        labelled_bars(axes, names_of(rows), sizes, [short_size(size) for size in sizes], [BAR_COLOR] * len(rows))
        axes.set_xlabel("bytes in the log")

    return picture("partition-sizes", titled("Size of partitions", document["partitions"]), draw, bars=len(rows))


def worst_lags(partitions: Sequence[Document]) -> Plot:
    """Return how far timestamps go back behind earlier ones."""
    rows = largest(partitions, lambda each: each["worst_lag"]["milliseconds"])

    def draw(axes: Axes) -> None:
        seconds = [each["worst_lag"]["milliseconds"] / 1000 for each in rows]
        texts = [
            f"{short_time(lag)} ({short_number(each['late_batches'])} late)"
            for lag, each in zip(seconds, rows, strict=True)
        ]
        labelled_bars(axes, names_of(rows), seconds, texts, [WARNING_COLOR] * len(rows))
        axes.set_xlabel("behind the highest timestamp before it")

    return picture("worst-lags", titled("Worst lag of a late batch", partitions), draw, bars=len(rows))


def dead_records(partitions: Sequence[Document]) -> Plot:
    """Return how much of each partition compaction could drop."""
    rows = largest(partitions, lambda each: each["keys"]["dead_ratio"])

    def draw(axes: Axes) -> None:
        shares = [100 * each["keys"]["dead_ratio"] for each in rows]
        labelled_bars(axes, names_of(rows), shares, [f"{share:.1f} %" for share in shares], [BAR_COLOR] * len(rows))
        axes.set_xlim(0, 125)
        axes.set_xticks(range(0, 101, 25), [f"{share} %" for share in range(0, 101, 25)])
        axes.set_xlabel("share of all records")

    return picture("dead-records", titled("Records that compaction could drop", partitions), draw, bars=len(rows))


def labelled_bars(
    axes: Axes, names: Sequence[str], values: Sequence[float], texts: Sequence[str], colors: Sequence[str]
) -> None:
    """Draw bars to the right, each with its number behind it, so that the axis needs no numbers."""
    axes.barh(range(len(names)), values, 0.72, color=colors)
    most = max(values) or 1
    for row, (value, text) in enumerate(zip(values, texts, strict=True)):
        axes.text(value + most * 0.015, row, text, va="center", fontsize=LETTER_POINTS - 0.5, color=INK)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, most * 1.45)
    axes.set_xticks([])
    axes.grid(visible=False)


def time_ranges(partitions: Sequence[Document]) -> Plot:
    """Return which time each partition covers."""
    # Typed only in parts.
    dates: Any = import_module("matplotlib.dates")
    rows = largest(partitions, lambda each: each["bytes"])

    def draw(axes: Axes) -> None:
        starts = [day_number(each["first_timestamp"]) for each in rows]
        ends = [day_number(each["last_timestamp"]) for each in rows]
        least = (max(ends) - min(starts)) / 200 or 1 / 86_400
        axes.barh(
            range(len(rows)),
            [max(end - start, least) for start, end in zip(starts, ends, strict=True)],
            0.5,
            starts,
            color=BAR_COLOR,
        )
        axes.set_yticks(range(len(rows)), names_of(rows))
        locator = dates.AutoDateLocator(minticks=3, maxticks=6)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        axes.grid(visible=True, axis="x", color=GRID)
        axes.grid(visible=False, axis="y")
        # The day, or year, that all labels share is written at the right end of the same line.
        axes.set_xlabel("timestamps of records, UTC", loc="left")

    def day_number(text: str) -> float:
        return float(dates.date2num(datetime.fromisoformat(text)))

    return picture("time-ranges", titled("Time that partitions cover", partitions), draw, bars=len(rows))


def largest(partitions: Sequence[Document], size: Callable[[Document], float]) -> list[Document]:
    """Return the partitions to be drawn, from the bottom up: by name, the largest ones if there are too many."""
    chosen = sorted(partitions, key=size, reverse=True)[:MOST_BARS]
    return sorted(chosen, key=lambda each: (each["topic"], each["partition"]), reverse=True)


def names_of(partitions: Sequence[Document]) -> list[str]:
    """Return the names of partitions, cut to what leaves room for bars."""
    names = (f"{each['topic']}-{each['partition']}" for each in partitions)
    return [name if len(name) <= 20 else f"{name[:8]}…{name[-11:]}" for name in names]


def titled(title: str, partitions: Sequence[Document]) -> str:
    """Return a title that says if not all partitions are there."""
    return title if len(partitions) <= MOST_BARS else f"{title} (largest {MOST_BARS} of {len(partitions)})"


# --- Drawing ---


def picture(name: str, title: str, draw: Draw, *, bars: int | None = None) -> Plot:
    """Return what ``draw`` draws; ``bars`` makes it as high as so many bars need."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    height = HEIGHT_INCHES if bars is None else 0.95 + ROW_INCHES * max(bars, 2)
    with rc_context({"font.size": LETTER_POINTS, "text.parse_math": False}):
        figure = Figure(figsize=(WIDTH_INCHES, height), dpi=DOTS_PER_INCH, facecolor="white", layout="constrained")
        axes = figure.add_subplot()
        axes.set_axisbelow(True)
        axes.grid(visible=True, axis="y", color=GRID)
        axes.tick_params(length=0, colors=INK)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(GRID)
        draw(axes)
        figure.suptitle(title, x=0.012, ha="left", fontsize=TITLE_POINTS, fontweight="bold", color=INK)
        out = io.BytesIO()
        figure.savefig(out, format="png", metadata={"Software": None})
    return Plot(name, title, out.getvalue())


def codec_color(name: str) -> str:
    """Return the color of a codec, the same in all pictures."""
    return CODEC_COLORS.get(name, UNKNOWN_COLOR)


def short_size(count: float) -> str:
    """Return a size in powers of 1024, without a fraction where it is none: ``16 KiB``."""
    return short_bytes(count).replace(".0 ", " ")


def short_number(count: float) -> str:
    """Return a number as people say it, without a fraction where it is none: ``24 k``."""
    return short_count(count).replace(".0 ", " ")


def short_time(seconds: float) -> str:
    """Return a duration as people say it, down to milliseconds."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
