"""Whatever happens to brokers, what was committed is lost by unclean elections alone, and the controller says so."""

from __future__ import annotations

import pytest

from tests.cluster.elected_partition import ElectedPartition

STEPS = 400


@pytest.mark.parametrize("seed", range(30))
async def test_a_clean_leader_has_every_committed_record(seed):
    model = ElectedPartition.of_seed(seed)
    try:
        for _ in range(STEPS):
            await model.step()
    except AssertionError as error:
        error.add_note("\n".join(model.history[-30:]))
        raise
    assert model.next_record


async def test_the_model_reaches_what_it_is_about():
    """Else it would prove nothing: records are committed, elections are clean and unclean, and records are lost."""
    committed = losses = 0
    for seed in range(30):
        model = ElectedPartition.of_seed(seed)
        for _ in range(STEPS):
            await model.step()
        committed += len(model.committed)
        losses += model.losses
    assert committed > 300
    assert losses > 0
