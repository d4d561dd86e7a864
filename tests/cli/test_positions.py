"""Places in a log as they are typed, and the offsets that they mean."""

from __future__ import annotations

import time

import click
import pytest

from tests.cli.scripted_commands import EARLIEST, LATEST, group_server
from tests.client.scripted_client import client_of
from trio_broker.cli.positions import AtMoment, AtOffset, BeforeEnd, Boundary, known_ranges, position, resolve
from trio_broker.common.topic_partition import TopicPartition

PARTITION = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", Boundary.EARLIEST),
        ("beginning", Boundary.EARLIEST),
        ("latest", Boundary.LATEST),
        ("end", Boundary.LATEST),
        ("42", AtOffset(42)),
        ("-5", BeforeEnd(5)),
        ("1" * 30, AtOffset((1 << 63) - 1)),
        ("s@1700000000000", AtMoment(1_700_000_000_000)),
        ("1970-01-01T00:00:01", AtMoment(1000)),
        ("1970-01-01T01:00:01+01:00", AtMoment(1000)),
        ("1969-01-01", AtMoment(0)),
    ],
)
def test_a_place_is_read(text, place):
    assert position(text) == place


@pytest.mark.parametrize(
    ("text", "ago_ms"), [("90m", 5_400_000), ("PT90M", 5_400_000), ("2d", 172_800_000), ("5s", 5000)]
)
def test_a_duration_before_now_is_counted_from_now(text, ago_ms, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    assert position(text) == AtMoment(10**12 - ago_ms)


@pytest.mark.parametrize("text", ["", "soon", "--5", "1.5", "P", "5y", "s@", "s@x", "²"])
def test_what_is_no_place_is_refused_with_the_forms_that_there_are(text):
    with pytest.raises(click.BadParameter, match="is no position in a log; one is earliest, latest, an offset"):
        position(text)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("42", 42),
        ("3", EARLIEST),
        ("1000", LATEST),
        ("-1", LATEST - 1),
        ("-1000", EARLIEST),
        ("1970-01-01", EARLIEST + 7),
        ("2026-01-01", LATEST),
    ],
)
def test_a_place_means_an_offset_that_the_log_has(text, offset):
    with group_server() as server, client_of(server) as client:
        assert resolve(client, position(text), known_ranges(client, [PARTITION])) == {PARTITION: offset}
