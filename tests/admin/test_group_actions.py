"""The addresses of groups and the words of commands, whatever their ids are."""

from __future__ import annotations

import subprocess

import pytest

from broker_admin.group_actions import blocked, group_address, shell_word
from tests.admin.fake_groups import fake_group, fake_member


@pytest.mark.parametrize(
    ("group_id", "address"),
    [
        ("billing", "/groups/billing"),
        ("a/b c", "/groups/a%2Fb%20c"),
        ("", "/groups/-?id="),
        ("..", "/groups/-?id=.."),
        ("detail", "/groups/-?id=detail"),
        ("日本", "/groups/%E6%97%A5%E6%9C%AC"),
    ],
)
def test_every_group_has_an_address(group_id: str, address: str):
    assert group_address(group_id) == address


@pytest.mark.parametrize(
    "text", ["billing", "two words", "it's", "", "$(id)", "a{b}[c]", "tab\t\u202ereversed", "back\\slash{", "日本\n"]
)
def test_an_id_is_one_word_of_a_shell_in_which_everything_can_be_seen(text: str):
    word = shell_word(text)
    assert word.isprintable()
    echoed = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert echoed.stdout.decode() == text


def test_a_group_with_members_is_blocked_and_says_what_to_do():
    assert blocked(fake_group("g").snapshot) == ""
    assert "it has a member" in blocked(fake_group("g", [fake_member("a", 1, {})]).snapshot)
    assert "Stop the consumers first" in blocked(
        fake_group("g", [fake_member("a", 1, {}), fake_member("b", 2, {})]).snapshot
    )
