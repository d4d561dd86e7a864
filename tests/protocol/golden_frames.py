"""Frames that real clients sent, and what they say.

``golden_frames.json`` is written by ``record_golden_frames`` and read here. A frame is a request without its size
prefix. Beside it stands its reading, so that a change in the codec shows as a change in meaning.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

from kafka_wire.codec import decode
from kafka_wire.headers import read_request_header
from kafka_wire.messages.catalogue import all_requests

GOLDEN_FRAMES_FILE = Path(__file__).with_name("golden_frames.json")


@attrs.frozen
class GoldenFrame:
    """One recorded request: who sent it, its bytes, how many bytes the client left over, and what it says."""

    client: str
    client_version: str
    request: str
    version: int
    frame: bytes
    left_over: int
    says: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.client}-{self.request}-v{self.version}-{len(self.frame)}"


def describe(client: str, client_version: str, frame: bytes) -> GoldenFrame:
    """Return ``frame`` with its reading beside it."""
    header, position = read_request_header(memoryview(frame))
    kind = all_requests()[header.api_key]
    request, end = decode(kind, header.api_version, frame, position)
    says = {"client_id": header.client_id, **readable(request)}
    return GoldenFrame(client, client_version, kind.__name__, header.api_version, frame, len(frame) - end, says)


def readable(value: Any) -> Any:
    """Return a message as plain dicts and lists, its bytes as hexadecimal text: what JSON can hold."""
    if attrs.has(type(value)):
        return {field.name: readable(getattr(value, field.name)) for field in attrs.fields(type(value))}
    if isinstance(value, list):
        return [readable(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value


def load_golden_frames() -> list[GoldenFrame]:
    """Return the frames in the file."""
    entries = json.loads(GOLDEN_FRAMES_FILE.read_text())
    return [GoldenFrame(**{**entry, "frame": bytes.fromhex(entry["frame"])}) for entry in entries]


def save_golden_frames(frames: list[GoldenFrame]) -> None:
    """Write ``frames`` to the file, one line each, so that a diff shows which changed."""
    entries = [{**attrs.asdict(frame), "frame": frame.frame.hex()} for frame in frames]
    GOLDEN_FRAMES_FILE.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n")
