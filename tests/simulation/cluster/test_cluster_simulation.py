"""A whole cluster keeps its promises whatever a seed does to it, and bugs of replication break them.

Some seeds run here; ``python -m tests.simulation --cluster FIRST END`` runs as many as there is time for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import NoReturn

import attrs
import pytest
import trio

from tests.simulation.cluster import replication_bugs
from tests.simulation.cluster.cluster_seeds import Job, simulate_all, simulate_from
from tests.simulation.cluster.cluster_simulation import (
    ACKNOWLEDGED,
    BROKER_LIVES,
    CLIENTS_GO_ON,
    WHOLE_AGAIN,
    Begin,
    ClusterResult,
    DrawPlan,
    Plan,
    begin_of,
    simulate_cluster,
)
from tests.simulation.cluster.pauses import Pauses
from tests.simulation.cluster.replication_watch import ACTIVE, CLEAN, ELECTABLE, SAME_EVERYWHERE
from trio_broker.broker import Broker

SEEDS = tuple(seed for seed in range(20) if begin_of(seed).brokers == 3)[:6]
"""Four seconds, half of which prepare a cluster with fsync and one without."""

MORE_SEEDS = range(1500)
"""Ten minutes."""

MORE_LONG_SEEDS = range(30)
"""Three minutes."""

SEEDS_OF_BUGS = range(200)
"""Far more than it takes; the first that shows the bug is the last that runs."""

CRASHES = ("cut_power", "cut_power_of_several", "kill")
CUTS = ("cut_one_way", "cut_two", "isolate", "isolate_with_etcd")
FSYNC, PAGE_CACHE = Begin(3, "fsync"), Begin(3, "page-cache")


@attrs.frozen
class Bug:
    """The promises of which a bug breaks one, and what shows it."""

    promises: tuple[str, ...]
    faults: tuple[str, ...]
    begin: Begin = FSYNC
    load_seconds: float = 4.0
    delay_seconds: float = 0.0

    def draw_plan(self, chance: Random) -> Plan:
        return attrs.evolve(
            Plan.short(chance),
            faults=self.faults,
            load_seconds=self.load_seconds,
            fault_seconds=0.5,
            lasting_seconds=chance.choice((0.5, 2.0)),
            delay_seconds=self.delay_seconds,
            hasty_producers=1,
            transactional_producers=0,
            has_copy=False,
            pause_seconds=0.1,
        )


BUGS: dict[str, Bug] = {
    "followers_are_not_waited_for": Bug((ELECTABLE,), CRASHES),
    "a_fetch_comes_before_its_sync": Bug((ELECTABLE,), (*CRASHES, "slow_disk")),
    "a_shrink_counts_when_it_is_asked_for": Bug((ELECTABLE,), CUTS),
    "a_replica_joins_from_anywhere": Bug((ELECTABLE,), (*CRASHES, *CUTS)),
    "a_replica_joins_before_it_reaches_the_epoch": Bug(
        (ELECTABLE,), ("cut_two", "elect_preferred", "isolate", "kill"), load_seconds=6.0, delay_seconds=0.1
    ),
    "a_replica_that_is_fenced_joins": Bug((ACTIVE,), (*CUTS, "pause")),
    "a_broker_that_has_lost_records_stays_in_sync": Bug((ELECTABLE,), ("cut_power",), PAGE_CACHE),
    "eligibility_outlasts_commits": Bug((ELECTABLE, SAME_EVERYWHERE), ("isolate", "kill", "kill_several")),
    "anybody_is_elected": Bug((CLEAN,), (*CRASHES, "kill_several")),
    "followers_forget_producers": Bug((ACKNOWLEDGED, CLIENTS_GO_ON), CRASHES),
    "an_old_leader_goes_on": Bug((WHOLE_AGAIN,), CUTS),
    "all_is_visible_after_a_start": Bug((ELECTABLE, SAME_EVERYWHERE), (*CRASHES, *CUTS)),
    "nobody_waits_for_replicas": Bug((ACKNOWLEDGED, CLIENTS_GO_ON), (*CRASHES, *CUTS)),
    "a_follower_is_cut_at_its_high_watermark": Bug(
        (ELECTABLE,), ("elect_preferred", "kill", "stop_cleanly"), delay_seconds=0.1
    ),
    "logs_are_not_compared": Bug((SAME_EVERYWHERE, WHOLE_AGAIN), CUTS),
    "a_replica_is_made_anew_without_its_disk": Bug((WHOLE_AGAIN,), ("start_without_disk",)),
    "epochs_begin_unwritten": Bug((SAME_EVERYWHERE, WHOLE_AGAIN, BROKER_LIVES), (*CRASHES, *CUTS)),
}

QUICK_BUGS = (
    "followers_are_not_waited_for",
    "a_fetch_comes_before_its_sync",
    "a_follower_is_cut_at_its_high_watermark",
    "anybody_is_elected",
)
"""Each shows within two seeds."""


def results_of(seeds: Sequence[int], draw_plan: DrawPlan = Plan.short) -> list[ClusterResult]:
    results: list[ClusterResult] = []
    simulate_all(seeds, results.append, draw_plan)
    return results


@pytest.fixture(scope="module")
def results() -> list[ClusterResult]:
    return results_of(SEEDS)


def require_kept(results: Sequence[ClusterResult]) -> None:
    broken = [text for each in results if each.violations for text in (each.seed, *each.violations, *each.story[-30:])]
    assert not broken, "\n".join(map(str, broken))
    counts = sum((each.counts for each in results), Counter[str]())
    assert counts["send ok"] > len(results), "somebody used the cluster"


def test_a_broker_that_cannot_start_ends_what_prepares_a_cluster(monkeypatch: pytest.MonkeyPatch):
    async def fail(broker: Broker, *, task_status: object) -> NoReturn:
        raise NotADirectoryError("no start")

    monkeypatch.setattr(Broker, "run", fail)
    with pytest.RaisesGroup(NotADirectoryError, flatten_subgroups=True):
        simulate_cluster(SEEDS[0])


def test_no_promise_is_broken(results: list[ClusterResult]):
    require_kept(results)


@pytest.mark.soak
@pytest.mark.parametrize(("seeds", "draw_plan"), [(MORE_SEEDS, Plan.short), (MORE_LONG_SEEDS, Plan.long)])
def test_no_promise_is_broken_in_more_lives(seeds: range, draw_plan: DrawPlan):
    require_kept(results_of(seeds, draw_plan))


def test_a_simulation_goes_on_in_a_copy_of_its_process_as_in_its_own(results: list[ClusterResult]):
    copied = results[0]
    own = simulate_cluster(copied.seed)
    assert (copied.trace, copied.counts, copied.story) == (own.trace, own.counts, own.story)


@pytest.mark.parametrize("bugs", [QUICK_BUGS, pytest.param(tuple(BUGS), marks=pytest.mark.soak)])
def test_each_bug_breaks_a_promise_that_is_kept_without_it(bugs: Sequence[str]):
    found = set[str]()
    for begin in (FSYNC, PAGE_CACHE):
        if some := [each for each in bugs if BUGS[each].begin == begin]:
            search_for(begin, some, found)
    assert found == set(bugs)


def search_for(begin: Begin, bugs: Sequence[str], found: set[str]) -> None:
    """Add to ``found`` those of ``bugs`` that break a promise."""
    searched = ""

    def jobs() -> Iterator[Job]:
        nonlocal searched
        yield Job(SEEDS_OF_BUGS[0], BUGS[bugs[0]].draw_plan)
        for searched in bugs:
            for seed in SEEDS_OF_BUGS:
                if searched in found:
                    break
                yield Job(seed, BUGS[searched].draw_plan, partial(put_in, searched))

    def report(result: ClusterResult) -> None:
        if not searched:
            require_kept([result])
        elif any(each.promise in BUGS[searched].promises for each in result.violations):
            found.add(searched)

    simulate_from(begin, jobs(), report)


def put_in(bug: str) -> None:
    """Have the brokers of this process a bug, for the rest of its life."""
    getattr(replication_bugs, bug)(pytest.MonkeyPatch())


async def test_a_process_that_stands_still_does_nothing_and_goes_on_with_what_has_come(autojump_clock):
    pauses, event, times = Pauses(), trio.Event(), list[float]()

    async def process(task_status: trio.TaskStatus[trio.lowlevel.Task]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            task_status.started(trio.lowlevel.current_task())

    async def wait() -> None:
        with trio.move_on_after(2):
            await event.wait()
        times.append(trio.current_time())

    began = trio.current_time()
    with pauses.installed():
        async with trio.open_nursery() as nursery:
            root = await nursery.start(process)
            pauses.pause(root)
            await trio.sleep(1)
            event.set()
            await trio.sleep(4)
            assert not times
            pauses.resume(root)
    assert times == [began + 5]
