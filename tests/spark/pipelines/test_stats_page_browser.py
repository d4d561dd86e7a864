"""The diagrams of the page of ``stats`` as a browser lays them out: nothing is cut that matters, or lies over a bar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.admin.chromium import EXECUTABLE, open_browser
from tests.oracles import absent
from tests.spark.pipelines.local_task_runner import LocalTaskRunner
from tests.spark.pipelines.memory_log import InMemory, batch, task_on
from trio_broker.spark.pipelines.stats.job import StatsScope, StatsSettings, first_slices, join
from trio_broker.spark.pipelines.stats.page import html_page
from trio_broker.spark.pipelines.stats.report import report_document

SETTINGS = StatsSettings(verify_crc=True, keys=True)
WIDTHS = (1280, 400)
LONG_TOPIC = "customer-events-of-the-north-european-region.v2"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

OUTSIDE = """[...document.querySelectorAll("figure")].flatMap((figure) => {
    const right = figure.getBoundingClientRect().right;
    return [...figure.querySelectorAll("b, span, i, em, p")]
        .filter((each) => each.getBoundingClientRect().right > right).map((each) => each.innerText);
})"""
"""What reaches over the edge of its figure."""

OVERLAPS = """[...document.querySelectorAll(".bar")].flatMap((bar) => {
    const boxes = (name) => [...bar.querySelectorAll(name)].map((each) => each.getBoundingClientRect());
    const [name] = boxes("b"), [text] = boxes("em");
    return boxes("i").filter((piece) => piece.left < name.right - 0.1 || piece.right > text.left + 0.1);
}).length"""
"""How many pieces of bars lie under a name or a number."""

LEGENDS = """[...document.querySelectorAll(".legend")].filter((legend) => {
    const bars = legend.parentElement.querySelector(".bars").getBoundingClientRect();
    return legend.getBoundingClientRect().bottom > bars.top;
}).length"""
"""How many legends are not above their bars."""

CUT_NUMBERS = """[...document.querySelectorAll(".bar b")].filter((name) => {
    const range = document.createRange();
    range.selectNode(name.lastChild);
    const end = range.getBoundingClientRect(), whole = name.getBoundingClientRect();
    return name.lastChild.nodeType === Node.TEXT_NODE && (end.right > whole.right + 0.5 || end.left < whole.left);
}).length"""
"""How many names of partitions are cut where the number of the partition is."""

CUT_FACTS = """[...document.querySelectorAll(".facts dd")].filter((each) => each.getClientRects().length > 1
    || each.getBoundingClientRect().height > 1.9 * parseFloat(getComputedStyle(each).fontSize)).length"""


def document() -> dict[str, Any]:
    """A report with long names, large numbers and all codecs in a bar."""
    log = InMemory(tuple(batch(offset, 10, timestamp=1000 + offset) for offset in range(0, 100, 10)))
    tasks = [task_on(log, 0, 50, ["key"]), task_on(log, 50, 100, ["key"])]
    results = LocalTaskRunner().run(tasks, StatsScope(SETTINGS, first_slices(tasks)))
    found = report_document(join(tasks, results), SETTINGS, 0)
    [partition] = found["partitions"]
    lag = {"offset": 5, "milliseconds": 933_120_000}
    partitions = [
        {**partition, "topic": topic, "partition": number, "late_batches": 60_300, "worst_lag": lag, "bytes": 10**9}
        for topic in (LONG_TOPIC, "orders")
        for number in range(3)
    ]
    sizes = [
        {"bytes_from": 1 << size, "bytes_to": (2 << size) - 1, "batches": 1004 * count, "by_codec": codecs}
        for size in range(17, 20)
        for count in (1, 1000)
        for codecs in [{"none": 1000 * count, **dict.fromkeys(CODECS[1:], count)}]
    ]
    codecs = [{"codec": codec, "batches": 10**6, "records": 10**9, "bytes": 10**9} for codec in CODECS]
    totals = {**found["totals"], "records": 1_000_000_000_000}
    return {**found, "partitions": partitions, "batch_sizes": sizes, "codecs": codecs, "totals": totals}


async def test_diagrams_are_readable_at_every_width(tmp_path: Path) -> None:
    if EXECUTABLE is None:
        absent("chromium", "there is no Chromium here")
    path = tmp_path / "stats.html"
    path.write_text(html_page(document()), encoding="utf-8")
    async with open_browser(tmp_path / "profile") as browser:
        page = await browser.open_page(path.as_uri())
        for width in WIDTHS:
            await page.set_view(width=width)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            assert await page.evaluate("document.querySelectorAll('figure .legend').length") == 1
            for what in (OUTSIDE, OVERLAPS, LEGENDS, CUT_NUMBERS, CUT_FACTS):
                assert not await page.evaluate(what), (width, what)
            await page.picture(tmp_path / f"{width}.png")
