"""The origin of a change as text, in which the metadata of several brokers carry it to all of their journals.

Source: docs/decisions/0098-who-asked-is-in-the-metadata.md.
"""

from __future__ import annotations

import json

from trio_broker.changes.change import ChangeOrigin
from trio_broker.changes.change_file import converter


def origin_text(origin: ChangeOrigin) -> str:
    """``origin`` as one line of JSON."""
    return json.dumps(converter.unstructure(origin), separators=(",", ":"))


def read_origin(text: str) -> ChangeOrigin | None:
    """The origin in ``text``; None if it is something else, as a newer version or another program may write."""
    try:
        return converter.structure(json.loads(text), ChangeOrigin)
    except Exception:  # cattrs raises whatever the values make it raise
        return None
