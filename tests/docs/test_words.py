"""The words that ``CONTRIBUTING.md`` lists as "not" are written nowhere, and no class has a namesake."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".html", ".js", ".mjs", ".java", ".go", ".md", ".txt"}

FOLDERS = ("trio_broker", "protocol", "admin", "bench", "fuzz", "docs", "tests", "examples", "scripts", "newsfragments")

BROUGHT = {"node_modules", "target"}
"""Folders of what others wrote, which git ignores."""

PRODUCT = ("trio_broker/", "protocol/", "admin/")

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## Words\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`]+)`")
CLASS = re.compile(r"^ *class (\w+)[(:]", re.MULTILINE)


def entries() -> list[str]:
    """The entries of the table's first column."""
    section = SECTION.search(CONTRIBUTING)
    assert section is not None
    rows = [line.split("|")[1] for line in section[0].splitlines() if line.startswith("| `")]
    return [entry for row in rows for entry in QUOTED.findall(row)]


def pattern(entry: str) -> re.Pattern[str]:
    """Names match as they are written; words in any case, also across the end of a line and inside of a name."""
    if is_name(entry):
        return re.compile((r"\b" if entry[0].isalnum() else "") + r"\s+".join(map(re.escape, entry.split())) + r"\b")
    starts = r"(?<![^\W_])" if entry[0].isalnum() else ""
    words = r"[\s#_]+".join(map(re.escape, entry.split()))
    return re.compile(rf"{starts}{words}(?![^\W_])", re.IGNORECASE)


def is_name(entry: str) -> bool:
    return "_" in entry or not entry.islower()


FORBIDDEN = {pattern(entry): sorted(entry.lower().split(), key=len, reverse=True) for entry in entries()}
"""Each pattern and its words, the longest first: most texts lack one of them, which is known sooner."""


def texts() -> dict[str, str]:
    """Every file that somebody reads, by its path; ``CONTRIBUTING.md`` without the table itself, and not this one."""
    found = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES and BROUGHT.isdisjoint(path.parts) and path != Path(__file__)
    }
    found["README.md"] = (ROOT / "README.md").read_text(encoding="utf-8")
    found["CONTRIBUTING.md"] = SECTION.sub("", CONTRIBUTING)
    return found


TEXTS = texts()


def findings(text: str) -> list[str]:
    """Each forbidden word in ``text``, with its line."""
    lowered = text.lower()
    return [
        f"line {text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for forbidden, words in FORBIDDEN.items()
        if all(word in lowered for word in words)
        for match in forbidden.finditer(text)
    ]


def test_no_file_uses_a_forbidden_word():
    assert {path: found for path, text in TEXTS.items() if (found := findings(text))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "Whoever asks",
        "which is\n    told",
        "which is\n    # told",
        "as the group (trap 33) does",
        "class Asker:",
        "test_it_is_told_at_once",
    ],
)
def test_a_forbidden_word_is_found(text: str):
    assert len(findings(text)) == 1


@pytest.mark.parametrize("text", ["the obedient", "MAX_INPUT outside", "the moment it starts", "input output"])
def test_longer_words_and_plain_words_with_a_forbidden_one_inside_are_allowed(text: str):
    assert findings(text) == []


def test_no_class_name_is_defined_twice_outside_the_messages():
    """Kafka's messages have nested structs of the same name; everywhere else one name means one thing."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path, text in TEXTS.items():
        is_product = path.startswith(PRODUCT) and not path.startswith("protocol/kafka_wire/messages/")
        if is_product and path.endswith(".py"):
            for name in CLASS.findall(text):
                modules[name].append(path)
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
