"""What is to be done so that topics are as they are declared."""

from __future__ import annotations

import pytest

from trio_broker.config.keys import TOPIC_KEYS
from trio_broker.declaration.declaration import Declaration, DeclarationError, DeclaredTopic
from trio_broker.declaration.plan import CurrentSetting, CurrentTopic, difference_lines, plan_declaration

CURRENT = CurrentTopic(
    partitions=3,
    replication_factor=1,
    settings={
        "retention.ms": CurrentSetting("5", is_own=True),
        "cleanup.policy": CurrentSetting("delete,compact", is_own=True),
        "segment.ms": CurrentSetting("7", is_own=False),
        "preallocate": CurrentSetting("true", is_own=True),
    },
)


def topic(**given) -> DeclaredTopic:
    return DeclaredTopic(**{"name": "t", "origin": "f", **given})


def difference(*topics: DeclaredTopic, known=TOPIC_KEYS) -> list[str]:
    return difference_lines(plan_declaration(Declaration(topics), {"t": CURRENT}, known))


@pytest.mark.parametrize(
    ("declared", "lines"),
    [
        (topic(name="new"), ["+ new"]),
        (
            topic(name="new", partitions=1, replication_factor=1, settings={"flush.ms": "1"}),
            ["+ new: 1 partition, replication factor 1, flush.ms=1"],
        ),
        (topic(), ["= t"]),
        (topic(partitions=3, replication_factor=1, settings={"retention.ms": "5"}), ["= t"]),
        (topic(partitions=4), ["~ t: partitions 3 → 4 (records of a key may go to another partition than before)"]),
        (topic(settings={"retention.ms": "6"}), ["~ t: retention.ms 5 → 6"]),
        (topic(settings={"segment.ms": "7"}), ["~ t: segment.ms 7 (inherited) → 7"]),
        (topic(settings={"flush.ms": "7"}), ["~ t: flush.ms not set → 7"]),
        (topic(settings={"retention.ms": " 5.0", "cleanup.policy": "compact, delete", "preallocate": "True"}), ["= t"]),
    ],
)
def test_the_difference_is_what_is_declared_and_not_there(declared, lines):
    assert difference(declared) == lines


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (topic(partitions=2), "it has 3 partitions, which cannot become 2"),
        (topic(replication_factor=2), "its replication factor is 1 and cannot become 2"),
        (topic(settings={"retention.m": "1"}), "topics have no setting retention.m; did you mean retention.ms?"),
    ],
)
def test_what_would_destroy_or_contradict_is_refused(declared, reason):
    with pytest.raises(DeclarationError) as refusal:
        difference(topic(name="new"), declared, known=["retention.ms"])
    assert refusal.value.reasons == (f"f: topic 't': {reason}",)


def test_every_reason_is_reported():
    with pytest.raises(DeclarationError) as refusal:
        difference(topic(partitions=2, replication_factor=2), topic(name="new", settings={"x": "1"}), known=["a.b"])
    assert len(refusal.value.reasons) == 3
