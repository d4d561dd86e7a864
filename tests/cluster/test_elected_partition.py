"""Whatever happens to brokers, what was committed is lost by unclean elections alone, and the controller says so."""

from __future__ import annotations

from tests.cluster.elected_partition import ElectedPartition

STEPS = 400


async def test_a_clean_leader_has_every_committed_record():
    committed = losses = 0
    for seed in range(30):
        model = ElectedPartition.of_seed(seed)
        try:
            for _ in range(STEPS):
                await model.step()
        except AssertionError as error:
            error.add_note(f"seed {seed}:\n" + "\n".join(model.history[-30:]))
            raise
        committed += len(model.committed)
        losses += model.losses
    # Else it would prove nothing: records are committed, elections are clean and unclean, and records are lost.
    assert committed > 300
    assert losses > 0
