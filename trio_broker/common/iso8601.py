"""Parses times and durations in the forms of ISO 8601 that Kafka's tools accept.

Source: java.time.Duration.parse and Kafka's Utils.getDateTime.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

DURATION: Final = re.compile(
    r"(?P<sign>[+-]?)P"
    r"(?:(?P<days>[+-]?\d{1,18})D)?"
    r"(?:T(?=[\d+-])"
    r"(?:(?P<hours>[+-]?\d{1,18})H)?"
    r"(?:(?P<minutes>[+-]?\d{1,18})M)?"
    r"(?:(?P<seconds>[+-]?\d{1,18}(?:[.,]\d{0,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
"""Units up to days of 24 hours; months and years have no fixed length. At most 18 digits, which fit into an int64."""

UNIT_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


def parse_moment(text: str) -> int:
    """Return the milliseconds since 1970 of a date, with or without a time. Without a time zone it is in UTC.

    Raises:
        ValueError: the text is not an ISO 8601 date.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; one is written 2026-01-31T12:00:00, in UTC or with a zone") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(milliseconds=1)


def parse_duration(text: str) -> int:
    """Return the milliseconds of a duration such as ``P7D``, ``PT90M`` or ``P1DT12H``.

    Raises:
        ValueError: the text is not an ISO 8601 duration.
    """
    found = DURATION.fullmatch(text)
    if found is None or not any(found[unit] for unit in UNIT_MS):
        raise ValueError(f"{text!r} is not a duration; one is written PnDTnHnMnS, such as PT90M or P7D")
    # Fractions are exact: with floats, long durations would be off by milliseconds.
    total = sum(Fraction((found[unit] or "0").replace(",", ".")) * scale for unit, scale in UNIT_MS.items())
    return int(-total if found["sign"] == "-" else total)
