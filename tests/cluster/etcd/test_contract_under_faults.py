"""The contract of metadata stores holds in an etcd that loses answers, is late and slow: its tests, from many seeds.

Leases do not end early here, and few calls fail: the tests of the contract take a claim for one that lasts. Nor are
reads stale: a tail may then still read what a snapshot has taken the place of.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from tests.cluster import test_metadata_store as contract
from tests.cluster.etcd_stores import modelled_etcd_store
from tests.fakes.modelled_etcd import SOME_FAULTS
from tests.scheduling import deterministic_scheduling

FAULTS = attrs.evolve(
    SOME_FAULTS, early_expiry=0.0, stale=0.0, answer_lost=0.01, delayed=0.01, request_lost=0.01, leader_changed=0.01
)
SEEDS = range(5)

MOST_SECONDS = 1000.0
"""Of virtual time: what hangs would never end by a clock that jumps."""

TESTS = {
    name: test
    for name, test in vars(contract).items()
    if name.startswith("test_") and set(inspect.signature(test).parameters) <= {"stores", "store"}
}
"""Without those that have parameters of their own."""


@pytest.mark.parametrize("name", TESTS)
def test_the_contract_holds(name: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.CRITICAL)
    for seed in SEEDS:
        with deterministic_scheduling(seed):
            trio.run(run_once, TESTS[name], seed, clock=trio.testing.MockClock(autojump_threshold=0))


async def run_once(test: Callable[..., Awaitable[None]], seed: int) -> None:
    with trio.fail_after(MOST_SECONDS):
        async with modelled_etcd_store(Random(seed), FAULTS) as stores:
            fixtures: dict[str, Any] = {"stores": stores, "store": stores.of(1)}
            await test(**{name: fixtures[name] for name in inspect.signature(test).parameters})
