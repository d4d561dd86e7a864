"""Records in a format as kcat's, and separators with escapes."""

from __future__ import annotations

import click
import pytest

from kafka_wire.records.record import Record
from trio_broker.cli.escapes import separator, unescape
from trio_broker.cli.record_format import as_it_is, for_terminal, parse_format, plain_format
from trio_broker.common.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 3)
RECORD = Record(42, 1_700_000_000_000, b"key", b"\xff value", (("a", b"1"), ("b", None)))
NULLS = Record(0, -1)


@pytest.mark.parametrize(
    ("template", "record", "printed"),
    [
        ("%t %p %o %T", RECORD, b"orders 3 42 1700000000000"),
        (r"%k=%s\n", RECORD, b"key=\xff value\n"),
        (r"%K\t%S", RECORD, b"3\t7"),
        ("%h", RECORD, b"a=1,b=NULL"),
        ("[%k|%s|%K|%S|%h|%T]", NULLS, b"[||-1|-1||-1]"),
        ("100%% %s", RECORD, b"100% \xff value"),
        (r"\x1f\\n\0ü", RECORD, b"\x1f\\n\0" + "ü".encode()),
        ("", RECORD, b""),
    ],
)
def test_a_record_is_printed_in_the_format(template: str, record: Record, printed: bytes):
    assert parse_format(template, null=b"", shown=as_it_is).line(ORDERS, record) == printed


def test_what_is_null_may_be_shown():
    assert parse_format("%k %s", null=b"NULL", shown=as_it_is).line(ORDERS, NULLS) == b"NULL NULL"


@pytest.mark.parametrize("template", ["%x", "%", r"\q", "\\", r"\x1"])
def test_what_is_no_token_and_no_escape_is_refused(template: str):
    with pytest.raises(click.BadParameter, match=r"is no (token|escape); there are"):
        parse_format(template, null=b"", shown=as_it_is)


def test_without_a_format_values_are_printed_and_keys_if_asked_for():
    percent = Record(0, 0, b"%s", b"\\n")
    plain = plain_format(key_separator=None, delimiter=b"\n", null=b"", shown=as_it_is)
    assert plain.line(ORDERS, percent) == b"\\n\n"
    keyed = plain_format(key_separator=b"%t", delimiter=b"\0", null=b"", shown=as_it_is)
    assert keyed.line(ORDERS, percent) == b"%s%t\\n\0"


def test_a_value_cannot_steer_the_terminal():
    form = parse_format("%s|%k|%h", null=b"", shown=for_terminal)
    evil = Record(0, 0, "größe".encode(), b"\x1b[2J\r\xff\n\ttab", (("\x07", b"\x9b1m"),))
    assert form.line(ORDERS, evil).decode() == "\\x1b[2J\\r\\xff\n\ttab|größe|\\x07=\\x9b1m"


def test_a_separator_is_not_empty():
    assert separator(r"\t") == b"\t"
    with pytest.raises(click.BadParameter, match="empty"):
        separator("")


def test_text_without_escapes_is_what_it_is():
    assert unescape("a: b\udcff") == b"a: b\xff"
