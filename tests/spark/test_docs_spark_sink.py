"""docs/spark-sink.md says what the code does: its tables, header and example; its other claims name their tests."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest

from trio_broker.spark.options.kafka_options import REFUSED_IN_WRITING, WRITE_OPTIONS
from trio_broker.spark.options.option import Option
from trio_broker.spark.options.write_options import OWN_OPTIONS
from trio_broker.spark.producer.row_columns import ROW_ID_HEADER_BYTES
from trio_broker.spark.producer.row_ids import HEADER, ROW_ID_BYTES, RowId, TaskId

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark-sink.md").read_text(encoding="utf-8")
TESTED = re.compile(r"\[`(?P<name>test_\w+)`\]\(\.\./(?P<path>[\w/]+\.py)\)")
FIELD = re.compile(r"^\| (\d+) \| (\d+) \| `(\w+)` \|", re.MULTILINE)
LIMIT = re.compile(r"^\| `(?P<module>[\w.]+)\.(?P<name>[A-Z_]+)` \| (?P<value>[\d.]+) \|", re.MULTILINE)


def row(option: Option[Any]) -> str:
    """The line of the table of options."""
    texts = (option.form, option.documented_default(), option.meaning, option.difference)
    return f"| `{option.name}` | {' | '.join(texts)} |"


@pytest.mark.parametrize("option", [*OWN_OPTIONS, *WRITE_OPTIONS], ids=lambda option: option.name)
def test_the_page_has_every_option_as_it_is(option: Option[Any]):
    assert row(option) in PAGE.splitlines()


@pytest.mark.parametrize("name", sorted(REFUSED_IN_WRITING))
def test_the_page_has_what_is_refused_and_why(name: str):
    assert f"| `{name}` | {REFUSED_IN_WRITING[name]} |" in PAGE.splitlines()


def test_the_header_has_the_fields_of_the_page():
    value = RowId(TaskId(UUID(int=0x0102), -1, 0x0304), 0x0506).to_bytes()
    fields = {name: value[int(start) : int(start) + int(size)] for start, size, name in FIELD.findall(PAGE)}

    assert {name: int.from_bytes(data, "big", signed=True) for name, data in fields.items()} == {
        "version": 1,
        "query_id": 0x0102,
        "batch_id": -1,
        "task": 0x0304,
        "row": 0x0506,
    }
    assert sum(map(len, fields.values())) == ROW_ID_BYTES
    assert f"Key `{HEADER}`, and {ROW_ID_BYTES} bytes" in " ".join(PAGE.split())
    assert f"It costs {ROW_ID_HEADER_BYTES} bytes a record" in " ".join(PAGE.split())


def test_every_claim_names_a_test_that_is_there():
    named = [(match["name"], ROOT / match["path"]) for match in TESTED.finditer(PAGE)]

    assert len(named) > 15
    assert [name for name, path in named if f"def {name}(" not in path.read_text(encoding="utf-8")] == []


def test_limits_are_those_of_the_code():
    limits = LIMIT.findall(PAGE)

    assert len(limits) >= 4
    for module, name, value in limits:
        assert getattr(importlib.import_module(module), name) == float(value), name


@attrs.frozen
class FakeRecord:
    """As kafka-python gives them."""

    topic: str
    partition: int
    value: bytes
    headers: list[tuple[str, bytes]]


def test_the_example_of_a_consumer_keeps_each_row_once():
    [example] = re.findall(r"```python\n(from trio_broker.spark.producer.row_ids.*?)```", PAGE, re.DOTALL)
    task = TaskId(UUID(int=1), 4, 0)
    rows = [0, 1, 2, 0, 1, 2, 3]
    records = [FakeRecord("orders", 0, b"%d" % row, [(HEADER, RowId(task, row).to_bytes())]) for row in rows]
    handled: list[bytes] = []

    exec(example, {"consumer": records, "handle": lambda record: handled.append(record.value)})

    assert handled == [b"0", b"1", b"2", b"3"]


def test_every_claim_about_transactions_names_a_test_that_is_there():
    page = (ROOT / "docs" / "spark-exactly-once.md").read_text(encoding="utf-8")
    named = [(match["name"], ROOT / match["path"]) for match in TESTED.finditer(page)]

    assert len(named) >= 10
    assert [name for name, path in named if f"def {name}(" not in path.read_text(encoding="utf-8")] == []
