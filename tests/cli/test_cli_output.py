"""Tables, and texts that would steer a terminal."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from trio_broker.cli.output import cell, let_everything_be_printed, print_json, print_table


def test_numbers_stand_to_the_right_and_texts_to_the_left(capsys: pytest.CaptureFixture[str]):
    rows: list[dict[str, Any]] = [
        {"n": "a", "c": 5, "l": [1, 2]},
        {"n": "long", "c": 1000, "l": []},
        {"n": "", "c": None, "l": (3,)},
    ]
    print_table({"NAME": "n", "COUNT": "c", "LIST": "l"}, rows)
    assert capsys.readouterr().out.splitlines() == [
        "NAME  COUNT  LIST",
        "a         5  1,2",
        "long   1000  -",
        "-         -  3",
    ]


def test_a_table_without_rows_has_its_headings(capsys: pytest.CaptureFixture[str]):
    print_table({"NAME": "n"}, [])
    assert capsys.readouterr().out == "NAME\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), ("", "-"), ([], "-"), (True, "yes"), (False, "no"), (0, "0"), ("x", "x"), (["a\n", None], r"a\n,-")],
)
def test_a_value_is_shown_as_people_read_it(value: object, text: str):
    assert cell(value) == text


def test_a_letter_that_the_terminal_lacks_does_not_end_the_command(monkeypatch: pytest.MonkeyPatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    let_everything_be_printed()
    print_table({"NAME": "n"}, [{"n": "組"}])
    sys.stdout.flush()
    assert written.getvalue() == b"NAME\n\\u7d44\n"


def test_json_keeps_names_as_they_are(capsys: pytest.CaptureFixture[str]):
    document = [{"group": "группа\x1b", "lag": None}]
    print_json(document)
    printed = capsys.readouterr().out
    assert json.loads(printed) == document
    assert "\x1b" not in printed
