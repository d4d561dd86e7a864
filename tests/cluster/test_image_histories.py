"""Images of any history: a snapshot says all of it, and it does not matter how records are split into batches."""

from __future__ import annotations

from random import Random
from typing import Any

import attrs
import pytest

from kafka_wire.primitives import Fixed, Sized
from kafka_wire.schema import ArrayOf, Field, StructOf, WireType, default_instance, fields_of
from kafka_wire.stored.metadata import (
    METADATA_RECORDS,
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from tests.fakes.images import image_after, image_of
from trio_broker.cluster.metadata_delta import ContradictoryMetadata
from trio_broker.cluster.metadata_image import ConfigResourceType, MetadataImage
from trio_broker.cluster.metadata_snapshot import image_records

TRANSACTIONS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)
"""Not part of an image: readers of a log resolve them."""

IMAGE_KINDS = [kind for kind in METADATA_RECORDS if kind not in TRANSACTIONS]

OF_TOPICS = [TopicRecord, PartitionRecord, PartitionChangeRecord, PartitionChangeRecord, RemoveTopicRecord]

FEW_VALUES = {"resource_type": (2, 4, 32), "broker_epoch": (7,), "epoch": (7,), "leader": (-2, -1, 1), "fenced": (0, 1)}


def some_value(random: Random, kind: WireType) -> Any:
    """One of so few values that records concern each other."""
    match kind:
        case ArrayOf(element):
            return [some_value(random, element) for _ in range(random.randrange(3))]
        case StructOf(cls):
            return some_record(random, cls)
        case Sized("string"):
            return random.choice(["", "a", "b"])
        case Sized():
            return random.choice([b"", b"x"])
        case Fixed("uuid"):
            return bytes(15) + bytes([random.randrange(3)])
        case Fixed("bool"):
            return random.random() < 0.5
        case Fixed():
            return random.randrange(3)
    raise AssertionError(kind)


def some_record(random: Random, kind: type[Any]) -> Any:
    """A record of ``kind``; what may be left out often is."""

    def value(field: Field) -> Any:
        is_left_out = field.tag is not None or field.nullable
        if is_left_out and random.random() < 0.5:
            return field.new_default() if field.tag is not None else None
        few = FEW_VALUES.get(field.name)
        return some_value(random, field.type) if few is None else random.choice(few)

    return kind(**{field.name: value(field) for field in fields_of(kind)})


def history(seed: int) -> list[Any]:
    """Records that do not contradict each other, in their order."""
    random, image = Random(seed), MetadataImage()
    kept = []
    for _ in range(200):
        record = some_record(random, random.choice(random.choice([IMAGE_KINDS, OF_TOPICS])))
        try:
            image = image_after(image, record)
        except ContradictoryMetadata:
            continue
        kept.append(record)
    return kept


def content(image: MetadataImage) -> dict[str, Any]:
    """What an image says, but of which offset it is."""
    return {name: value for name, value in attrs.asdict(image, recurse=False).items() if name != "offset"}


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_folds_into_the_image_that_it_is_of(seed: int) -> None:
    image = image_of(*history(seed))
    stored = [encode_metadata_record(record) for record in image_records(image)]
    assert content(image_of(*map(decode_metadata_record, stored))) == content(image)


@pytest.mark.parametrize("seed", range(20))
def test_it_does_not_matter_how_records_are_split_into_batches(seed: int) -> None:
    one_by_one = MetadataImage()
    for record in history(seed):
        one_by_one = image_after(one_by_one, record)
    assert content(one_by_one) == content(image_of(*history(seed)))


def test_the_histories_have_every_kind_of_record() -> None:
    assert {type(record) for seed in range(20) for record in history(seed)} == set(IMAGE_KINDS)


@pytest.mark.parametrize("kind", IMAGE_KINDS)
def test_every_kind_of_record_is_known_to_an_image(kind: type[Any]) -> None:
    record = default_instance(kind)
    if kind is ConfigRecord:
        record.resource_type = ConfigResourceType.TOPIC
    try:
        image_of(record)
    except ContradictoryMetadata:
        assert kind.__name__.startswith(("Partition", "Remove", "Unregister", "BrokerRegistration", "Fence", "Unfence"))
