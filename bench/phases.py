"""Where the time of requests went, by the broker's own count at ``/latency``, beside the client's figures."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence

from bench.outcome import Outcome
from trio_broker.testing.process import BrokerProcess

PHASES = ("queue", "local", "disk", "purgatory", "response_queue", "send")

PhaseRow = Sequence[float | int | str]


def phase_row(load: str, process: BrokerProcess, api: str) -> PhaseRow:
    """The requests of ``api`` that ``process`` has answered since it was started, at least one."""
    with urllib.request.urlopen(f"{process.admin_url.rstrip('/')}/api/v1/brokers/1/latency") as answer:
        apis = {each["api"]: each["since_start"] for each in json.load(answer)["apis"]}
    latency = apis[api]
    means = {each["phase"]: each["latency"]["mean_ms"] for each in latency["phases"]}
    total = latency["total"]
    return (
        *(load, api, latency["count"], *(means[phase] for phase in PHASES)),
        *(total["mean_ms"], total["p50_ms"], total["p99_ms"]),
    )


def add_phase_table(outcome: Outcome, rows: Sequence[PhaseRow]) -> None:
    """Add the table of ``rows``; the client's own time is in none of them."""
    table = outcome.table(
        "Where the time of these requests went in the broker, by its own count: mean ms of each phase",
        *("load", "API", "requests", *PHASES, "total", "total p50", "total p99"),
    )
    for row in rows:
        table.add(*row)
