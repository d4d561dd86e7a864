"""The metadata store in etcd keeps its promises whatever etcd does, and each bug put into it breaks one of them.

Some seeds run here; ``python -m tests.simulation --metadata-store FIRST END`` runs as many as there is time for.
"""

from __future__ import annotations

from collections import Counter

import attrs
import pytest

from tests.fakes.modelled_etcd import SOME_FAULTS, EtcdFaults
from tests.simulation import metadata_store_bugs
from tests.simulation.simulated_metadata_store import (
    CONTIGUOUS,
    COVERED,
    HIGHER_EPOCH,
    IN_ITS_EPOCH,
    IN_ORDER,
    NEVER_ENDS,
    ONCE,
    REFUSED,
    Plan,
    simulate_metadata_store,
)

SEEDS = range(8)
"""A few seconds."""

MORE_SEEDS = range(8, 1500)
"""Ten minutes."""

SEEDS_OF_BUGS = range(20)

CHOSEN = {
    "an_unknown_append_is_repeated_behind_the_end": 4,
    "what_is_unknown_counts_as_not_done": 5,
    "a_failed_comparison_counts_as_not_done": 9,
    "a_claim_trusts_what_it_has_read": 9,
}
"""Seeds that showed bugs which the first seeds do not show, when this was written. If they do no more, others do."""

EVENTS_PER_SECOND = 0.3

LEASES_END_EARLY = attrs.evolve(SOME_FAULTS, early_expiry=0.5)
READS_ARE_STALE = attrs.evolve(LEASES_END_EARLY, stale=0.9)
ANSWERS_ARE_LOST = attrs.evolve(SOME_FAULTS, answer_lost=0.3)

BUGS: dict[str, tuple[str, EtcdFaults]] = {
    "an_append_compares_the_end_alone": (IN_ITS_EPOCH, LEASES_END_EARLY),
    "an_unknown_append_is_repeated_behind_the_end": (ONCE, ANSWERS_ARE_LOST),
    "what_is_unknown_counts_as_not_done": (REFUSED, ANSWERS_ARE_LOST),
    "a_failed_comparison_counts_as_not_done": (REFUSED, ANSWERS_ARE_LOST),
    "a_claim_trusts_what_it_has_read": (CONTIGUOUS, READS_ARE_STALE),
    "a_claim_begins_no_epoch": (HIGHER_EPOCH, LEASES_END_EARLY),
    "what_the_watch_does_not_report_is_not_read": (NEVER_ENDS, attrs.evolve(SOME_FAULTS, watch_loses=0.5)),
    "the_log_is_deleted_before_the_snapshot_is_named": (COVERED, SOME_FAULTS),
    "a_tail_begins_a_page_again": (IN_ORDER, SOME_FAULTS),
}
"""The promise that each bug breaks, and what etcd does that shows it."""


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.soak)])
def test_no_promise_is_broken(seeds: range):
    results = [simulate_metadata_store(seed) for seed in seeds]
    broken = [(result.seed, result.plan, *result.violations) for result in results if result.violations]
    assert not broken, "\n".join(map(str, broken))
    counts = sum((result.counts for result in results), Counter[str]())
    assert min(counts["appends"], counts["snapshots"], counts["claims"], counts["loaded snapshots"]) > len(seeds) / 2


def test_one_seed_is_one_run():
    first, second = simulate_metadata_store(3), simulate_metadata_store(3)
    assert (first.trace, first.counts) == (second.trace, second.counts)


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: str):
    getattr(metadata_store_bugs, bug)(monkeypatch)
    promise, faults = BUGS[bug]
    seeds = (CHOSEN.get(bug, SEEDS_OF_BUGS.start), *SEEDS_OF_BUGS)
    results = (simulate_metadata_store(seed, Plan(faults, EVENTS_PER_SECOND)) for seed in seeds)
    assert any(text.startswith(promise) for result in results for text in result.violations)
