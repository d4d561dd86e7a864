"""A stream's offsets in the form of Spark's checkpoint, and the placeholder before the first of them.

``{"topic": {"0": 123}}``, sorted, as Spark's own Kafka source writes them: Spark compares offsets as texts.
"""

from __future__ import annotations

import json
from typing import Any, Final

from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.options.offset_specs import (
    LATEST_OFFSET,
    Earliest,
    GlobalTimestamp,
    Latest,
    NoMatch,
    OffsetSpec,
    SpecificOffsets,
    TimestampsByPartition,
    format_offsets_json,
    parse_offsets_json,
)
from trio_broker.spark.planning.offset_planning import Offsets

JsonOffsets = dict[str, Any]
"""Offsets as PySpark passes them between the checkpoint and a reader."""

BEGINNING: Final[JsonOffsets] = {"": {}}
"""The placeholder for the beginning of a stream without offsets in the checkpoint; no topic has an empty name."""


def to_json(offsets: Offsets) -> JsonOffsets:
    """Return ``offsets`` for PySpark, sorted."""
    tree: JsonOffsets = json.loads(format_offsets_json(offsets))
    return tree


def from_json(tree: JsonOffsets) -> Offsets:
    """Return the offsets in PySpark's form.

    Raises:
        SparkJobError: they have another form, so the checkpoint is that of another source.
    """
    try:
        return parse_offsets_json(json.dumps(tree))
    except ValueError as error:
        raise SparkJobError(f"the checkpoint has offsets that are not of this source: {error}") from None


def depends_on_time(starting: OffsetSpec) -> bool:
    """Return whether a stream that begins at ``starting`` begins elsewhere when it is started later."""
    match starting:
        case Latest():
            return True
        case SpecificOffsets(offsets):
            return LATEST_OFFSET in offsets.values()
        case GlobalTimestamp(no_match=no_match) | TimestampsByPartition(no_match=no_match):
            return no_match is NoMatch.LATEST
        case Earliest():
            return False
