"""Text, JSON, hexadecimal, base64, and the numbers that Kafka's own serializers write (big-endian)."""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any

from broker_admin.decoders.decoded import NotDecodable

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")


def decode_text(data: bytes) -> str:
    """UTF-8; what is none is written as ``\\xff``."""
    return data.decode("utf-8", "backslashreplace")


def decode_json(data: bytes) -> Any:
    """Any JSON text in UTF-8; names that appear twice have their last value."""
    try:
        return json.loads(data.decode(), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = (
            f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else "it is none"
        )
        raise NotDecodable(f"no JSON: {reason}") from None


def refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def decode_hex(data: bytes) -> str:
    return data.hex()


def decode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_int32(data: bytes) -> int:
    return int(unpacked(_INT32, data))


def decode_int64(data: bytes) -> int:
    return int(unpacked(_INT64, data))


def decode_double(data: bytes) -> float | str:
    """The number; those that JSON has no way to write by their names, ``nan``, ``inf`` and ``-inf``."""
    number: float = unpacked(_DOUBLE, data)
    return number if math.isfinite(number) else str(number)


def unpacked(form: struct.Struct, data: bytes) -> Any:
    if len(data) != form.size:
        raise NotDecodable(f"{len(data)} bytes, not {form.size}")
    return form.unpack(data)[0]
