"""MessagePack, by the library ``msgpack``, which the extra ``trio-broker[decoders]`` installs."""

from __future__ import annotations

import math
from typing import Any

from broker_admin.decoders.decoded import ElementBudget, NotDecodable

UNIX_SECONDS = 1
"""How the library gives timestamps: as a number of seconds, which needs no calendar and so cannot fail."""

MAP_PREFIXES = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
"""The first byte of a map; no text in UTF-8 begins so."""


def decode_message_pack(data: bytes) -> Any:
    """Any value; keys of maps are texts, bytes are hexadecimal, extensions have their type beside them."""
    try:
        import msgpack
    except ImportError:
        raise NotDecodable("MessagePack needs the extra: pip install 'trio-broker[decoders]'") from None
    try:
        # The library takes no array or map of more elements than there are bytes, and bounds its own nesting.
        value = msgpack.unpackb(data, strict_map_key=False, timestamp=UNIX_SECONDS, unicode_errors="backslashreplace")
        return plain(value, ElementBudget())
    except RecursionError:
        raise NotDecodable("no MessagePack: it is nested too deeply") from None
    # What the library raises has several bases: ValueError, and Exception for bytes that are left over.
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise NotDecodable(f"no MessagePack: {str(error)[:100] or type(error).__name__}") from None


def plain(value: Any, budget: ElementBudget) -> Any:
    """``value`` with nothing in it that JSON lacks."""
    budget.take()
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(plain(key, budget)): plain(value[key], budget) for key in value}
    if hasattr(value, "code"):
        return {"extension": value.code, "data": value.data.hex()}
    if isinstance(value, list | tuple):
        return [plain(each, budget) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
