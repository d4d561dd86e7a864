"""Sizes and durations with a suffix, and the numbers they stand for."""

from __future__ import annotations

import pytest

from trio_broker.config.config_key import ConfigUnit
from trio_broker.config.keys import BROKER_KEYS
from trio_broker.config.quantities import plain_number, quantity_text

BYTES, MS = ConfigUnit.BYTES, ConfigUnit.MILLISECONDS


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("64 MiB", BYTES, "67108864"),
        (" 64mib ", BYTES, "67108864"),
        ("1.5 GB", BYTES, "1500000000"),
        ("512 B", BYTES, "512"),
        ("10 MiB/s", ConfigUnit.BYTES_PER_SECOND, "10485760"),
        ("10 MiB", ConfigUnit.BYTES_PER_SECOND, "10485760"),
        ("7 d", MS, "604800000"),
        ("1.5h", MS, "5400000"),
        ("250 ms", MS, "250"),
        ("2 w", ConfigUnit.HOURS, "336"),
        ("1 d", ConfigUnit.MINUTES, "1440"),
        ("67108864", BYTES, "67108864"),
        ("-1", MS, "-1"),
        ("a lot", BYTES, "a lot"),
    ],
)
def test_a_suffix_is_read_in_the_unit_of_the_key(text, unit, number):
    assert plain_number(text, unit) == number


@pytest.mark.parametrize(
    ("text", "unit", "reason"),
    [
        ("7 d", BYTES, "d is no unit of this key; use one of B, kB"),
        ("64 MiB", MS, "use one of ms, s, min, h, d, w"),
        ("90 s", ConfigUnit.HOURS, "90 s is not a whole number of h"),
        ("0.3 B", BYTES, "not a whole number of bytes"),
    ],
)
def test_what_is_no_number_of_the_unit_is_refused(text, unit, reason):
    with pytest.raises(ValueError, match=reason):
        plain_number(text, unit)


@pytest.mark.parametrize(
    ("text", "unit", "shown"),
    [
        ("67108864", BYTES, "64 MiB"),
        ("1048588", BYTES, "≈ 1 MiB"),
        ("100", BYTES, None),
        ("-1", BYTES, None),
        ("604800000", MS, "7 d"),
        ("5400000", MS, "1.5 h"),
        ("250", MS, None),
        ("168", ConfigUnit.HOURS, "7 d"),
        ("5", ConfigUnit.HOURS, None),
        ("10485760", ConfigUnit.BYTES_PER_SECOND, "10 MiB/s"),
        ("9223372036854775807", MS, "no limit"),
        ("1.7976931348623157E308", ConfigUnit.BYTES_PER_SECOND, "no limit"),
        ("8", None, None),
        ("delete", None, None),
        ("NaN", BYTES, None),
        ("Infinity", BYTES, None),
        ("1e999999", ConfigUnit.BYTES_PER_SECOND, None),
        ("1e30", ConfigUnit.BYTES_PER_SECOND, None),
        (None, BYTES, None),
    ],
)
def test_a_number_is_shown_in_the_largest_unit_that_fits(text, unit, shown):
    assert quantity_text(text, unit) == shown


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("log.segment.bytes", BYTES),
        ("log.cleaner.io.buffer.size", BYTES),
        ("log.cleaner.io.max.bytes.per.second", ConfigUnit.BYTES_PER_SECOND),
        ("leader.replication.throttled.rate", ConfigUnit.BYTES_PER_SECOND),
        ("log.retention.ms", MS),
        ("log.retention.hours", ConfigUnit.HOURS),
        ("offsets.retention.minutes", ConfigUnit.MINUTES),
        ("socket.listen.backlog.size", None),
        ("max.connection.creation.rate", None),
        ("log.cleaner.io.buffer.load.factor", None),
    ],
)
def test_the_name_of_a_key_says_its_unit(name, unit):
    assert BROKER_KEYS[name].unit is unit
