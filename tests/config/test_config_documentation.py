"""The page about the keys."""

from __future__ import annotations

from pathlib import Path

from trio_broker.config.documentation import render
from trio_broker.config.keys import BROKER_KEYS, TOPIC_KEYS

PAGE = Path(__file__).parents[2] / "docs" / "config.md"


def test_the_page_is_up_to_date():
    """Else write it again: ``python -m trio_broker.config.documentation``."""
    assert PAGE.read_text(encoding="utf-8") == render()


def test_every_key_is_on_the_page():
    page = render()
    shown = [key for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()) if not key.internal]
    assert all(f"| `{key.name}` |" in page for key in shown)
