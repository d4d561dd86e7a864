"""The page about the keys."""

from __future__ import annotations

from pathlib import Path

from trio_broker.config.documentation import render
from trio_broker.config.keys import BROKER_KEYS
from trio_broker.config.topic_keys import TOPIC_KEYS

PAGE = Path(__file__).parents[2] / "docs" / "config.md"


def test_the_page_is_up_to_date():
    """Else write it again: ``python -m trio_broker.config.documentation``."""
    assert PAGE.read_text(encoding="utf-8") == render()


def test_every_key_is_on_the_page():
    page = render()
    assert all(f"| `{name}` |" in page for name in (*BROKER_KEYS, *TOPIC_KEYS))
