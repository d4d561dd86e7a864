"""Sizes and durations as they are typed and read: ``64 MiB`` for 67108864 bytes, ``7 d`` for 604800000 milliseconds.

Only the admin app reads and writes them so. A setting is stored and sent as the number, as Kafka's tools expect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

from trio_broker.config.config_key import DOUBLE_MAX, INT_MAX, LONG_MAX, ConfigUnit

_SIZES = MappingProxyType(
    {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    | {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
)

_SECOND_MS, _MINUTE_MS, _HOUR_MS = 1000, 60_000, 3_600_000

_DURATIONS_MS = MappingProxyType(
    {"ms": 1, "s": _SECOND_MS, "min": _MINUTE_MS, "h": _HOUR_MS, "d": 24 * _HOUR_MS, "w": 168 * _HOUR_MS}
)

_QUANTITY = re.compile(r"(?P<number>[0-9]{1,19}(?:\.[0-9]{1,9})?)\s*(?P<suffix>[A-Za-z]{1,4})(?P<rate>/s)?", re.ASCII)

_READ_SIZES = ("TiB", "GiB", "MiB", "KiB")
_READ_DURATIONS = ("d", "h", "min", "s")


def _suffixes(unit: ConfigUnit) -> tuple[Mapping[str, int], int]:
    """The suffixes that ``unit`` can be written with, and how much of the smallest of them it is."""
    match unit:
        case ConfigUnit.BYTES | ConfigUnit.BYTES_PER_SECOND:
            return _SIZES, 1
        case ConfigUnit.MILLISECONDS:
            return _DURATIONS_MS, 1
        case ConfigUnit.MINUTES:
            return _DURATIONS_MS, _MINUTE_MS
        case ConfigUnit.HOURS:
            return _DURATIONS_MS, _HOUR_MS


def plain_number(text: str, unit: ConfigUnit) -> str:
    """Return the number of ``unit`` for which ``text`` stands; a text without a known suffix is returned as it is.

    Upper and lower case mean the same.

    Raises:
        ValueError: it is no whole number of ``unit``.
    """
    suffixes, one = _suffixes(unit)
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or (found["rate"] and unit is not ConfigUnit.BYTES_PER_SECOND):
        return text
    factor = next((size for suffix, size in suffixes.items() if suffix.lower() == found["suffix"].lower()), None)
    if factor is None:
        raise ValueError(f"{found['suffix']} is no unit of this key; use one of {', '.join(suffixes)}")
    number = Decimal(found["number"]) * factor / one
    if number != int(number):
        raise ValueError(f"{text.strip()} is not a whole number of {unit.value}")
    return str(int(number))


def quantity_text(text: str | None, unit: ConfigUnit | None) -> str | None:
    """Return the number ``text`` of ``unit`` as it is read best; None if that says no more than the number itself.

    What is not exact begins with ``≈``.
    """
    try:
        number = Decimal(text or "")
    except ArithmeticError:
        return None
    if float(number) in (float(INT_MAX), float(LONG_MAX), DOUBLE_MAX):
        return "no limit"
    # A larger number, as a double may be, has no suffix that is read better, and more digits than Decimal rounds.
    if unit is None or not number.is_finite() or abs(number) > LONG_MAX:
        return None
    suffixes, one = _suffixes(unit)
    rate = "/s" if unit is ConfigUnit.BYTES_PER_SECOND else ""
    for suffix in _READ_SIZES if suffixes is _SIZES else _READ_DURATIONS:
        shown = number * one / suffixes[suffix]
        if shown >= 1 and suffixes[suffix] > one:
            rounded = round(shown, 1)
            return f"{'' if rounded == shown else '≈ '}{rounded.normalize():f} {suffix}{rate}"
    return None
