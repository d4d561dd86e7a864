"""What is drawn from the runtime's random numbers."""

from __future__ import annotations

from random import Random, SystemRandom

import pytest

from kafka_wire.primitives import NO_UUID, uuid_text
from trio_broker.runtime.randomness import random_uuid


@pytest.mark.parametrize("random", [SystemRandom(), Random(7)], ids=["real", "seeded"])
def test_random_uuids_are_new_and_can_be_given_on_a_command_line(random: Random) -> None:
    uuids = {random_uuid(random) for _ in range(500)}
    assert len(uuids) == 500
    assert NO_UUID not in uuids
    assert not any(uuid_text(uuid).startswith("-") for uuid in uuids)
    assert {uuid[6] >> 4 for uuid in uuids} == {4}


def test_a_seed_gives_the_same_uuids_each_time() -> None:
    assert [random_uuid(Random(7)) for _ in range(2)] == [random_uuid(Random(7))] * 2
