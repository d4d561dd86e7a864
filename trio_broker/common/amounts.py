"""Counts, sizes and durations as text: one form for pages, terminals and messages."""

from __future__ import annotations

from typing import Final

THIN_SPACE: Final = "\u202f"
"""Sets thousands apart on a page. In a terminal, where it may be missing, a comma or nothing does so."""


def number_text(number: int, thousands: str = THIN_SPACE) -> str:
    """A count with its thousands apart."""
    return f"{number:,}".replace(",", thousands)


def counted(count: int, one: str, many: str | None = None, thousands: str = THIN_SPACE) -> str:
    """A number of things: ``1 group``, ``2 groups``."""
    return f"{number_text(count, thousands)} {one if count == 1 else many or f'{one}s'}"


def short_number_text(number: float) -> str:
    """A rounded number with a decimal unit: ``950``, ``1.2 M``."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"


def bytes_text(count: float) -> str:
    """A size in binary units: ``1.4 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration_text(seconds: float) -> str:
    """A duration by its two largest units: ``3 d 4 h``."""
    whole = int(seconds)
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    while len(parts) > 1 and parts[0][0] == 0:
        del parts[0]
    return " ".join(f"{amount} {unit}" for amount, unit in parts[:2])


def short_duration_text(seconds: float) -> str:
    """A duration that may be short: ``0 s``, ``43 ms``, ``4.2 s``, then as ``duration_text``."""
    if 0 < seconds < 1:
        return f"{max(1, seconds * 1000):.0f} ms"
    return f"{seconds:.1f} s" if 0 < seconds < 10 else duration_text(seconds)
