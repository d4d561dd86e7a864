r"""A stream's offsets in the form of Spark's checkpoint: where each micro-batch ends, and where the first one begins.

``{"topic": {"0": 123}}``, sorted, as Spark's own Kafka source writes them: Spark compares offsets as texts. Spark keeps
the ends of micro-batches alone, and each begins where the one before it ended. The first one has none before it, so its
end says where it begins, in the name of a topic that cannot exist and has no partitions, so that Spark's own source
goes on from there, too: ``{"begins at {\"topic\":{\"0\":23}}": {}, "topic": {"0": 123}}``. What a micro-batch reads
is in the checkpoint then, and does not change with options, time or logs.

Source: docs/formats/spark-offset-log.md.
"""

from __future__ import annotations

import json
from typing import Any, Final

from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.options.offset_specs import format_offsets_json, parse_offsets_json
from trio_broker.spark.planning.offset_planning import Offsets

JsonOffsets = dict[str, Any]
"""Offsets as PySpark passes them between the checkpoint and a reader."""

BEGINNING: Final[JsonOffsets] = {"": {}}
"""The placeholder for the beginning of a stream without offsets in the checkpoint. It is never written there."""

BEGINS_AT: Final = "begins at "
"""What the offsets are named by that the first micro-batch begins at. The name of a topic has no space."""

NO_BEGINNING: Final = (
    "the checkpoint has the end of the first micro-batch without its beginning, since an older version or Spark's own"
    " Kafka source has planned it and not completed it: let that one complete it, or start the query with a new"
    " checkpoint; docs/formats/spark-offset-log.md"
)


def to_json(ends: Offsets, begins: Offsets | None = None) -> JsonOffsets:
    """Return the end of a micro-batch for PySpark, sorted; ``begins`` is where the first one begins."""
    tree: JsonOffsets = json.loads(format_offsets_json(ends))
    return tree if begins is None else {f"{BEGINS_AT}{format_offsets_json(begins)}": {}, **tree}


def from_json(tree: JsonOffsets) -> Offsets:
    """Return the ends in PySpark's form.

    Raises:
        SparkJobError: they have another form, so the checkpoint is that of another source.
    """
    return _parsed(json.dumps(tree))


def begins_of(start: JsonOffsets, end: JsonOffsets) -> Offsets:
    """Return where the micro-batch from ``start`` to ``end`` begins.

    Raises:
        SparkJobError: as ``from_json``; or it is the first one, and its end does not say where it begins.
    """
    if start != BEGINNING:
        return from_json(start)
    for name in end:
        if name.startswith(BEGINS_AT):
            return _parsed(name.removeprefix(BEGINS_AT))
    raise SparkJobError(NO_BEGINNING)


def _parsed(text: str) -> Offsets:
    try:
        return parse_offsets_json(text)
    except ValueError as error:
        raise SparkJobError(f"the checkpoint has offsets that are not of this source: {error}") from None
