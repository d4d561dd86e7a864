"""What the pages of the admin app cost with a thousand topics and groups: the broker's time, and the first paint.

Lists are made of reports on all topics and groups, which several pages share for some seconds. Each of their pages is
asked for when the reports have run out, so that it pays for them alone; and once more right after.
"""

from __future__ import annotations

import http.client
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from bench.figures import Repeats
from bench.machine import process_cpu_seconds
from bench.outcome import Options, Outcome
from bench.populated import SETTINGS, Population, group_id, populate, topic_name
from bench.step_times import TimedStep, slow_steps
from bench.subject import QUIET, StepTimedBroker, memory_or, scratch
from bench.wire import BenchError
from tests.admin.chromium import EXECUTABLE, Browser, open_browser
from trio_broker.testing.process import BrokerProcess

TOPIC, GROUP = topic_name(0), group_id(0)

ROUNDS = 3
"""At most: between two readings of a page its reports must run out."""

REPORTS_RUN_OUT_SECONDS = 3.0
"""A report is good for two seconds, or for nine times as long as it took."""

SETTLE_SECONDS = 0.05
"""For the last line of the file of steps."""

FLOOR = "/healthz"

WITH_REPORTS: Sequence[str] = (
    "/",
    "/topics",
    f"/topics/{TOPIC}",
    f"/topics/{TOPIC}/consumers",
    "/groups",
    "/brokers/1/storage",
    "/api/v1/topics",
    "/api/v1/topics?limit=1000",
    f"/api/v1/topics/{TOPIC}",
    f"/api/v1/topics/{TOPIC}/groups",
    "/api/v1/groups",
    "/api/v1/groups?limit=1000",
    "/api/v1/brokers/1/storage",
    "/api/v1/search?q=readers",
)
"""Pages and API resources that look at all topics or groups."""

WITHOUT_REPORTS: Sequence[str] = (
    FLOOR,
    "/brokers/1/tuning",
    f"/topics/{TOPIC}/partitions",
    f"/topics/{TOPIC}/partitions/0",
    f"/topics/{TOPIC}/config",
    f"/topics/{TOPIC}/messages",
    f"/topics/{TOPIC}/messages/0/0",
    f"/groups/{GROUP}",
    f"/groups/{GROUP}/reset",
    "/brokers/1/clients",
    "/brokers/1/clients/connections",
    "/brokers/1/clients/client?client_id=bench",
    "/brokers/1/connection-diagnosis",
    "/brokers/1/tasks",
    "/config",
    "/brokers/1/loggers",
    "/changes",
    "/api",
    "/metrics",
    "/api/v1/openapi.json",
    "/api/v1/config",
    "/api/v1/brokers/1/latency",
    "/api/v1/brokers/1/history",
    "/api/v1/brokers/1/tasks",
    f"/api/v1/groups/{GROUP}/diagnosis",
)

PAINTED: Sequence[str] = (
    "/",
    "/brokers/1/tuning",
    "/topics",
    f"/topics/{TOPIC}",
    "/groups",
    f"/groups/{GROUP}",
    "/brokers/1/clients",
)
"""Those that are opened in a browser."""

FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


@contextmanager
def populated_broker(options: Options, population: Population) -> Iterator[StepTimedBroker]:
    """A broker with topics and groups, its steps timed."""
    with scratch(memory_or(options.directory)) as directory:
        process = StepTimedBroker(directory / "data", SETTINGS, QUIET, steps=directory / "steps.txt")
        with process:
            populate(process, population)
            yield process


@attrs.define
class PageFigures:
    """The readings of one address: the broker's CPU milliseconds, and those of its longest step, of each reading."""

    first_ms: float = 0.0
    cpu_ms: list[float] = attrs.field(factory=list)
    again_ms: list[float] = attrs.field(factory=list)
    step_ms: list[float] = attrs.field(factory=list)
    size_bytes: int = 0


@attrs.frozen
class Reading:
    """One answer: the broker's CPU while it was made, and its longest step in a task of the admin server."""

    cpu_ms: float
    step_ms: float
    size_bytes: int


def read_page(process: StepTimedBroker, address: str, idle_share: float) -> Reading:
    """Ask for a page on a new connection; ``idle_share`` of the time is the broker's own and not counted.

    Raises:
        BenchError: the answer is no page.
    """
    connection = http.client.HTTPConnection(process.admin_url.split("/")[2], timeout=60)
    began_ns, cpu = time.perf_counter_ns(), process_cpu_seconds(process.pid)
    connection.request("GET", address)
    answer = connection.getresponse()
    body = answer.read()
    cpu = process_cpu_seconds(process.pid) - cpu
    ended_ns = time.perf_counter_ns()
    connection.close()
    # The page of one client is 404 where that client has gone.
    if answer.status not in (200, 404):
        raise BenchError(f"{address}: {answer.status} {body[:300]!r}")
    time.sleep(SETTLE_SECONDS)
    written, _ = slow_steps(process.steps)
    steps = [each for each in written if began_ns <= each.began_ns <= ended_ns and is_of_admin(each)]
    idle = idle_share * (ended_ns - began_ns) / 1e9
    return Reading(max(0.0, cpu - idle) * 1e3, max((each.cpu_ns / 1e6 for each in steps), default=0.0), len(body))


def is_of_admin(step: TimedStep) -> bool:
    """Whether a step was one of the HTTP server's tasks, in which routes run."""
    return step.task.startswith("hypercorn")


def idle_share_of(process: BrokerProcess, seconds: float = 5.0) -> float:
    """The share of a core that the broker takes when nobody asks for anything."""
    cpu = process_cpu_seconds(process.pid)
    time.sleep(seconds)
    return (process_cpu_seconds(process.pid) - cpu) / seconds


def pages(options: Options) -> Outcome:
    """The broker's time of every page, and when it is first painted."""
    outcome = Outcome("admin-pages")
    population = Population.of(options)
    with populated_broker(options, population) as process:
        idle_share = idle_share_of(process)
        figures = {address: PageFigures() for address in (*WITHOUT_REPORTS, *WITH_REPORTS)}
        for address, each in figures.items():
            each.first_ms = read_page(process, address, idle_share).cpu_ms
        for _ in range(min(ROUNDS, options.repeats)):
            for address, each in figures.items():
                if address in WITH_REPORTS:
                    time.sleep(REPORTS_RUN_OUT_SECONDS)
                reading = read_page(process, address, idle_share)
                each.cpu_ms.append(reading.cpu_ms)
                each.step_ms.append(reading.step_ms)
                each.size_bytes = reading.size_bytes
                each.again_ms.append(read_page(process, address, idle_share).cpu_ms)
        add_page_table(outcome, population, figures)
        outcome.remarks.append(f"The idle broker took {idle_share:.1%} of a core, which is not counted.")
        if EXECUTABLE is None:
            outcome.remarks.append("There is no Chromium here: first paints were not measured.")
        else:
            add_paints(outcome, process, min(ROUNDS, options.repeats))
    return outcome


def add_page_table(outcome: Outcome, population: Population, figures: Mapping[str, PageFigures]) -> None:
    """Add the table of all addresses, the dearest first."""
    table = outcome.table(
        f"Pages and API resources, {population}: CPU ms of the broker, median",
        *("address", "CPU ms", "spread", "÷ " + FLOOR, "right after", "first of all", "longest step, ms", "KB"),
    )
    floor_ms = Repeats(figures[FLOOR].cpu_ms).median or 0.1
    ranked = sorted(figures.items(), key=lambda item: -Repeats(item[1].cpu_ms).median)
    for address, each in ranked:
        cpu = Repeats(each.cpu_ms)
        table.add(
            *(address, cpu.median, f"{cpu.spread:.0%}", cpu.median / floor_ms, Repeats(each.again_ms).median),
            *(each.first_ms, max(each.step_ms), each.size_bytes / 1e3),
        )
    outcome.measures["admin-pages"] = Repeats(ranked[0][1].cpu_ms).median
    outcome.measures["admin-pages-step"] = max(Repeats(each.step_ms).median for each in figures.values())


# ---- in a browser


def add_paints(outcome: Outcome, process: BrokerProcess, rounds: int) -> None:
    """Open pages in Chromium, each in a new tab; the first round fills the browser's cache."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        found = trio.run(first_paints, process.admin_url.rstrip("/"), Path(profile), rounds)
    table = outcome.table(
        "First contentful paint in headless Chromium, ms from the beginning of the navigation",
        *("page", "with an empty cache", "median", "spread"),
    )
    for address, (first, *later) in found.items():
        paints = Repeats(later)
        table.add(address, first, paints.median, f"{paints.spread:.0%}")
    outcome.measures["admin-paint"] = max(Repeats(later).median for _, *later in found.values())


async def first_paints(url: str, profile: Path, rounds: int) -> dict[str, list[float]]:
    """The first paints of each page, of one round more than asked for."""
    found: dict[str, list[float]] = {address: [] for address in PAINTED}
    async with open_browser(profile) as browser:
        for _ in range(rounds + 1):
            for address in PAINTED:
                found[address].append(await first_paint(browser, url + address))
    return found


async def first_paint(browser: Browser, url: str) -> float:
    page = await browser.open_page(url)
    await page.until("performance.getEntriesByName('first-contentful-paint').length > 0")
    at_ms = float(await page.evaluate(FIRST_PAINT))
    await page.close()
    return at_ms
