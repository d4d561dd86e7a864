"""The report of ``stats`` as a document: the same names in JSON, in tables and on the HTML page.

Times are ISO 8601 in UTC, durations milliseconds, sizes bytes as in the log. Numbers that are not known are null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias

import numpy as np

from trio_broker.common.iso8601 import EPOCH
from trio_broker.spark.batch_table import CODECS, Int64Array, codec_name
from trio_broker.spark.pipelines.stats.batch_statistics import REPORTED, PartitionStatistics, bin_bounds
from trio_broker.spark.pipelines.stats.job import PartitionHealth, StatsSettings
from trio_broker.spark.pipelines.stats.key_statistics import KeyStatistics

Document: TypeAlias = dict[str, Any]

SUMMED: Final = (*REPORTED, "bytes", "late_batches")
"""The numbers of partitions that the totals add up."""


def report_document(found: Sequence[PartitionHealth], settings: StatsSettings, now_ms: int) -> Document:
    """Return the whole report; ``now_ms`` is its time."""
    partitions = [partition_document(each, settings) for each in found]
    return {
        "generated": time_text(now_ms),
        "checksums_verified": settings.verify_crc,
        "totals": totals_document(partitions, found),
        "codecs": codec_documents([each.batches for each in found]),
        "batch_sizes": size_documents([each.batches for each in found]),
        "records_in_batches": record_documents([each.batches for each in found]),
        "partitions": partitions,
        "bad_batches": bad_documents(found),
        "unreadable": damage_documents(found),
    }


def partition_document(health: PartitionHealth, settings: StatsSettings) -> Document:
    """Return the part of the report about one partition."""
    batches = health.batches
    order, first_timestamp = batches.order, batches.first_timestamp
    return {
        "topic": batches.partition.topic,
        "partition": batches.partition.partition,
        "start_offset": health.offsets.start_offset,
        "end_offset": health.offsets.end_offset,
        **{name: getattr(batches, field) for name, field in REPORTED.items()},
        "bytes": batches.data_bytes + batches.control_bytes,
        "records_per_batch": mean(batches.record_count, batches.data_batches),
        "bytes_per_batch": mean(batches.data_bytes, batches.data_batches),
        "bytes_per_record": mean(batches.data_bytes, batches.record_count),
        "first_timestamp": None if first_timestamp is None else time_text(first_timestamp),
        "last_timestamp": time_text(order.highest) if order else None,
        "longest_gap": _place(batches.longest_gap.offset, offsets=batches.longest_gap.offsets),
        "late_batches": order.late_count if order else 0,
        "worst_lag": _place(order.worst_offset, milliseconds=order.worst_lag_ms) if order else None,
        "bad_batches": batches.bad_count if settings.verify_crc else None,
        "keys": None if health.keys is None else key_document(health.keys),
    }


def _place(offset: int, **facts: int) -> Document | None:
    """Return ``facts`` with their offset; None where there is no offset."""
    return None if offset < 0 else {"offset": offset, **facts}


def key_document(keys: KeyStatistics) -> Document:
    """Return the part of the report about a partition's keys."""
    return {
        "records": keys.record_count,
        "distinct_keys": keys.keys.count,
        "is_estimate": keys.keys.is_cut,
        "records_without_key": keys.null_keys,
        "dead_records": keys.dead_records,
        "dead_ratio": ratio(keys.dead_records, keys.record_count),
        "problem": keys.problem,
    }


def totals_document(partitions: Sequence[Document], found: Sequence[PartitionHealth]) -> Document:
    """Return the sums over all partitions."""
    counted = [each["keys"] for each in partitions if each["keys"] is not None]
    firsts = [each.batches.first_timestamp for each in found if each.batches.first_timestamp is not None]
    orders = [each.batches.order for each in found if each.batches.order is not None]
    sums: Document = {name: _sum([each[name] for each in partitions]) for name in SUMMED}
    dead = sum(keys["dead_records"] for keys in counted) if counted else None
    records = sum(keys["records"] for keys in counted)
    return {
        "topics": len({each["topic"] for each in partitions}),
        "partitions": len(partitions),
        **sums,
        "first_timestamp": time_text(min(firsts)) if firsts else None,
        "last_timestamp": time_text(max(each.highest for each in orders)) if orders else None,
        "worst_lag_ms": max((each.worst_lag_ms for each in orders), default=None),
        "dead_records": dead,
        "dead_ratio": None if dead is None else ratio(dead, records),
    }


def _sum(numbers: Sequence[int | None]) -> int | None:
    """Return the sum; None where nothing was counted."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known or not numbers else None


# --- Histograms ---


def codec_documents(found: Sequence[PartitionStatistics]) -> list[Document]:
    """Return batches, records and bytes of each codec in use."""
    batches = _added([each.size_bins for each in found], CODECS, None).sum(axis=1)
    records = _added([each.codec_records for each in found], CODECS)
    sizes = _added([each.codec_bytes for each in found], CODECS)
    return [
        {"codec": codec_name(number), "batches": count, "records": int(records[number]), "bytes": int(sizes[number])}
        for number, count in enumerate(batches.tolist())
        if count
    ]


def size_documents(found: Sequence[PartitionStatistics]) -> list[Document]:
    """Return the histogram of batches by bytes, from the first bin in use to the last, with their codecs."""
    bins = _added([each.size_bins for each in found], CODECS, None)
    return [
        {
            **_bounds(index, "bytes"),
            "batches": int(bins[:, index].sum()),
            "by_codec": {codec_name(number): count for number, count in enumerate(bins[:, index].tolist()) if count},
        }
        for index in _used(bins.sum(axis=0))
    ]


def record_documents(found: Sequence[PartitionStatistics]) -> list[Document]:
    """Return the histogram of batches by records, from the first bin in use to the last."""
    bins = _added([each.record_bins for each in found], None)
    return [{**_bounds(index, "records"), "batches": int(bins[index])} for index in _used(bins)]


def _added(arrays: Sequence[Int64Array], *shape: int | None) -> Int64Array:
    """Return the sum of arrays; without any, zeros of ``shape``, in which None stands for no items."""
    return np.sum(arrays, axis=0) if arrays else np.zeros([each or 0 for each in shape], np.int64)


def _used(bins: Int64Array) -> range:
    used = np.flatnonzero(bins)
    return range(int(used[0]), int(used[-1]) + 1) if len(used) else range(0)


def _bounds(index: int, unit: str) -> Document:
    low, high = bin_bounds(index)
    return {f"{unit}_from": low, f"{unit}_to": high}


# --- Damage ---


def bad_documents(found: Sequence[PartitionHealth]) -> list[Document]:
    """Return the batches whose checksum is wrong, as far as they are listed."""
    return [
        {
            **_partition(each),
            "offset": bad.base_offset,
            "last_offset": bad.last_offset,
            "bytes": bad.size_bytes,
            "origin": bad.origin,
        }
        for each in found
        for bad in each.batches.bad_batches
    ]


def damage_documents(found: Sequence[PartitionHealth]) -> list[Document]:
    """Return the ranges of offsets that could not be read, as far as they are listed."""
    return [
        {**_partition(each), "offset": damage.start_offset, "end_offset": damage.end_offset, "reason": damage.reason}
        for each in found
        for damage in each.batches.damages
    ]


def _partition(health: PartitionHealth) -> Document:
    return {"topic": health.offsets.partition.topic, "partition": health.offsets.partition.partition}


def damage_count(document: Mapping[str, Any]) -> int:
    """Return how many batches and stretches are damaged."""
    totals = document["totals"]
    return (totals["bad_batches"] or 0) + (totals["unreadable_stretches"] or 0)


# --- Numbers ---


def mean(total: int, count: int) -> float | None:
    """Return the mean to one decimal place."""
    return round(total / count, 1) if count else None


def ratio(part: int, total: int) -> float | None:
    """Return a share to four decimal places."""
    return round(part / total, 4) if total else None


def time_text(timestamp_ms: int) -> str:
    """Return milliseconds since 1970 in ISO 8601, or the number where Python's calendar does not have that day."""
    try:
        moment = EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
