"""Whatever happens to one file of a data directory, the next start serves no wrong record and loses none in silence.

``damaged_directory`` says what is checked, ``file_damage`` what is done to a file. ``DAMAGE_SEEDS`` names other seeds
for the long run, ``DAMAGE_SEEDS=0:20000 pytest -m soak tests/storage/test_damaged_files.py`` for instance; a failure
tells its seed.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from tests.storage.damaged_directory import COMPACTED, PLAIN, config_for, intact, run_case, topic_id
from tests.storage.file_damage import drawn, kind_of
from trio_broker.storage.errors import CorruptCheckpoint

SEEDS_PER_TEST = 20
FIRST_SEED, END_SEED = (int(seed) for seed in os.environ.get("DAMAGE_SEEDS", "100000:101000").split(":"))


@pytest.mark.parametrize("seed", range(0, 20, SEEDS_PER_TEST))
def test_nothing_wrong_is_served_and_nothing_is_lost_in_silence(seed: int):
    for each in range(seed, seed + SEEDS_PER_TEST):
        run_case(each)


def test_every_kind_of_file_is_damaged():
    files = intact(0, stop=True).files
    kinds = {kind_of(path) for path in files}
    assert {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".metadata", ".properties"} <= kinds
    assert len({kind for kind in kinds if "checkpoint" in kind}) == 5
    counts = Counter(kind_of(drawn(random.Random(seed), files).path) for seed in range(400))
    assert counts.keys() == kinds
    assert min(counts.values()) > 10


def test_a_topic_id_that_is_nearly_right_is_a_damaged_one():
    found = bytearray(topic_id(PLAIN))
    found[5] ^= 0x40
    with pytest.raises(CorruptCheckpoint):
        config_for(PLAIN, bytes(found))
    with pytest.raises(CorruptCheckpoint):
        config_for(PLAIN, topic_id(COMPACTED))
    assert config_for(PLAIN, bytes(range(16))) is None


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(FIRST_SEED, END_SEED, SEEDS_PER_TEST))
def test_many_more_seeds(seed: int):
    for each in range(seed, min(seed + SEEDS_PER_TEST, END_SEED)):
        run_case(each)
