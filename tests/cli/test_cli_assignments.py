"""How settings and partitions are written on a command line."""

from __future__ import annotations

import click
import pytest

from trio_broker.cli.assignments import TopicSelection, key_value, topic_selection


@pytest.mark.parametrize(
    ("text", "pair"),
    [("a=1", ("a", "1")), (" a =1 ", ("a", "1 ")), ("a=", ("a", "")), ("a=b=c", ("a", "b=c"))],
)
def test_a_setting_is_a_key_and_the_rest(text: str, pair: tuple[str, str]):
    assert key_value(text) == pair


@pytest.mark.parametrize("text", ["", "a", "=1", " =1"])
def test_what_is_no_setting_is_refused(text: str):
    with pytest.raises(click.BadParameter, match="KEY=VALUE"):
        key_value(text)


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ("t", TopicSelection("t", None)),
        ("t:0", TopicSelection("t", (0,))),
        ("t:2, 0,2", TopicSelection("t", (0, 2))),
    ],
)
def test_a_topic_may_have_partitions(text: str, selection: TopicSelection):
    assert topic_selection(text) == selection


@pytest.mark.parametrize("text", ["", ":0", "t:", "t:a", "t:-1", "t:0,", "t:0:1"])
def test_what_names_no_partitions_is_refused(text: str):
    with pytest.raises(click.BadParameter):
        topic_selection(text)
