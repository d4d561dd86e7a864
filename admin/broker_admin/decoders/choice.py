"""The decoders by name, and the choice of one by content.

By content: an object or an array of JSON, other text, a map of MessagePack, four or eight bytes as a number, the prefix
that schema registries have agreed on (a zero byte and the schema's id, if a registry may have given it out), text with
a few control characters among it, such as the colours of a terminal, and hexadecimal for the rest. A lone JSON number
or string is left as text, so that ``key == "42"`` means what it says.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from broker_admin.decoders import plain
from broker_admin.decoders.avro import AvroSchema
from broker_admin.decoders.decoded import MAX_DECODED_BYTES, Decoded, NotDecodable
from broker_admin.decoders.message_pack import MAP_PREFIXES, decode_message_pack
from broker_admin.decoders.protobuf import decode_protobuf

AUTOMATIC: Final = "auto"
AVRO: Final = "avro"

REGISTRY_PREFIX = struct.Struct(">bi")
"""A zero byte and the id of the schema, of which registries give out positive ones."""

MAX_PLAUSIBLE_SCHEMA_ID = 2**24 - 1
"""Registries count up, from 1 or from 100,001. The first byte of a larger id is not zero, and in text never is: what
begins with a NUL and goes on as text is no schema 1,853,189,228."""

MAX_CONTROL_SHARE = 0.25
"""Of the characters of a text: binary data that happens to be UTF-8 has more."""

NUMBER_SIZES: Final = {4: "int32", 8: "int64"}


def decode_registry(data: bytes) -> dict[str, Any]:
    """The id of the schema, and what stands behind it, by content."""
    if len(data) <= REGISTRY_PREFIX.size or data[0]:
        raise NotDecodable("no prefix of a registry: a zero byte and four more")
    _, schema_id = REGISTRY_PREFIX.unpack_from(data)
    payload = decode_by_content(data[REGISTRY_PREFIX.size :], may_have_prefix=False)
    return {"schema_id": schema_id, "payload_decoder": payload.decoder, "payload": payload.data}


DECODERS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "text": plain.decode_text,
    "json": plain.decode_json,
    "hex": plain.decode_hex,
    "base64": plain.decode_base64,
    "int32": plain.decode_int32,
    "int64": plain.decode_int64,
    "double": plain.decode_double,
    "registry": decode_registry,
    "protobuf": decode_protobuf,
    "msgpack": decode_message_pack,
}
"""Those that need nothing but the bytes. Besides them there are ``auto``, and ``avro``, which needs a schema."""

TEXT_DECODERS: Final = frozenset({AUTOMATIC, "text", "json"})
"""Those that show text as what it says."""

DECODER_NAMES: Final = (AUTOMATIC, *DECODERS, AVRO)


@attrs.frozen
class Decoder:
    """A choice of a decoder: its name, and for Avro the schema."""

    name: str = AUTOMATIC
    schema: AvroSchema | None = None

    def decode(self, data: bytes | None) -> Decoded | None:
        """``data`` decoded; by content where the chosen decoder fails, with the reason. A null is None."""
        if data is None:
            return None
        if self.name == AUTOMATIC:
            return decode_by_content(data)
        try:
            return Decoded(self.name, self._apply(data))
        except NotDecodable as error:
            return attrs.evolve(decode_by_content(data), problem=str(error))

    def _apply(self, data: bytes) -> Any:
        if len(data) > MAX_DECODED_BYTES and self.name not in ("text", "hex", "base64"):
            raise NotDecodable(f"{len(data)} bytes; at most {MAX_DECODED_BYTES} are decoded")
        if self.name != AVRO:
            return DECODERS[self.name](data)
        if self.schema is None:
            raise NotDecodable("Avro needs the schema")
        has_prefix = len(data) > REGISTRY_PREFIX.size and not data[0]
        try:
            return self.schema.decode(data[REGISTRY_PREFIX.size :] if has_prefix else data)
        except NotDecodable:
            # A value without a prefix may begin with a zero byte as well.
            if not has_prefix:
                raise
            return self.schema.decode(data)


def decode_by_content(data: bytes, *, may_have_prefix: bool = True) -> Decoded:
    """``data`` by the decoder that its content suggests; what stands behind a registry's prefix has no second one, and
    is not text with control characters: such bytes are Avro's or Protobuf's."""
    if len(data) <= MAX_DECODED_BYTES and data[:64].lstrip()[:1] in (b"{", b"["):
        try:
            return Decoded("json", plain.decode_json(data))
        except NotDecodable:
            pass
    text = text_of(data)
    if text is not None and not has_control_characters(text):
        return Decoded("text", text)
    if len(data) <= MAX_DECODED_BYTES and data[0] in MAP_PREFIXES:
        try:
            return Decoded("msgpack", decode_message_pack(data))
        except NotDecodable:
            pass
    if name := NUMBER_SIZES.get(len(data)):
        return Decoded(name, DECODERS[name](data))
    if may_have_prefix and REGISTRY_PREFIX.size < len(data) <= MAX_DECODED_BYTES and has_plausible_prefix(data):
        return Decoded("registry", decode_registry(data))
    if may_have_prefix and text is not None and is_mostly_text(text):
        return Decoded("text", text)
    return Decoded("hex", data.hex())


def text_of(data: bytes) -> str | None:
    """``data`` as text, if it is UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def has_plausible_prefix(data: bytes) -> bool:
    magic, schema_id = REGISTRY_PREFIX.unpack_from(data)
    return bool(magic == 0 and 1 <= schema_id <= MAX_PLAUSIBLE_SCHEMA_ID)


_CONTROL_CHARACTERS = frozenset(map(chr, range(32))) - set("\t\n\r")


def has_control_characters(text: str) -> bool:
    """Whether ``text`` has characters that only binary data have."""
    # ``isprintable`` looks at every character in C; the set only at those that there are.
    return not text.isprintable() and not _CONTROL_CHARACTERS.isdisjoint(text)


def is_mostly_text(text: str) -> bool:
    """Whether no more of ``text`` are control characters than a text may have. Pages show them as escapes."""
    return sum(map(text.count, _CONTROL_CHARACTERS)) <= len(text) * MAX_CONTROL_SHARE
