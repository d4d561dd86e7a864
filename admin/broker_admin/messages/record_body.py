"""A record in JSON, as it is sent to be appended, and as an exported line has it."""

from __future__ import annotations

import attrs

from broker_admin.schemas import PartitionNumber, bounded
from kafka_wire.limits import MAX_TIMESTAMP_MS

FORMS = ("text", "json", "base64")


@attrs.frozen(kw_only=True)
class HeaderBody:
    """A header: its key is text, or bytes in ``key_base64``; its value is that too, or null."""

    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None


@attrs.frozen(kw_only=True)
class RecordBody:
    """A record to append. Key and value are text, or bytes in ``key_base64`` and ``value_base64``.

    ``key_format`` and ``value_format`` say what the text is: ``json`` is checked to be some, ``base64`` is decoded. A
    value has to be given: null, or ``tombstone``, deletes the key in a compacted topic. Without a ``partition`` the key
    chooses one; without a ``timestamp``, in milliseconds since 1970, it is now. ``topic``, ``offset`` and
    ``timestamp_type`` are what exported lines have too, and mean nothing here.
    """

    key: str | None = None
    key_base64: str | None = None
    key_format: str = bounded("text", enum=list(FORMS))
    value: str | None = attrs.field(default="")
    value_base64: str | None = None
    value_format: str = bounded("text", enum=list(FORMS))
    tombstone: bool = False
    headers: tuple[HeaderBody, ...] = bounded((), maxItems=1000)
    partition: PartitionNumber | None = None
    timestamp: int | None = bounded(None, minimum=0, maximum=MAX_TIMESTAMP_MS)
    topic: str | None = None
    offset: int | None = None
    timestamp_type: str | None = None
