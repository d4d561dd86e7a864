"""Reads a declared topic from one text: ``name[:partitions[:key=value,key=value…]]``.

Commas separate settings, and the items of a list as well: what has no equals sign belongs to the setting before it. So
``cleanup.policy=compact,delete,retention.ms=60000`` is two settings, and needs no quotes. The number of partitions may
be empty, which leaves it to the broker.
"""

from __future__ import annotations

from kafka_wire.limits import MAX_PARTITION_COUNT
from trio_broker.declaration.declaration import DeclaredTopic

FORM = "NAME[:PARTITIONS[:KEY=VALUE,KEY=VALUE…]]"


def parse_topic(text: str, origin: str) -> DeclaredTopic:
    """Return the topic that ``text`` declares; ``origin`` is the option.

    Raises:
        ValueError: the text is not of that form; the message is one line.
    """
    # Twice only: values may have colons, as those of throttled replicas do.
    name, partitions, settings = (*text.split(":", 2), "", "")[:3]
    if not name:
        raise ValueError(f"{text!r} names no topic; the form is {FORM}")
    if partitions and not (
        partitions.isascii() and partitions.isdecimal() and 0 < int(partitions) <= MAX_PARTITION_COUNT
    ):
        raise ValueError(f"{text!r}: {partitions!r} is no number of partitions; the form is {FORM}")
    return DeclaredTopic(
        name=name, partitions=int(partitions) if partitions else None, settings=_settings(text, settings), origin=origin
    )


def _settings(text: str, settings: str) -> dict[str, str]:
    parsed: dict[str, str] = {}
    key = ""
    for item in settings.split(",") if settings else ():
        name, separator, value = item.partition("=")
        if separator:
            key = name.strip()
            if not key or key in parsed:
                raise ValueError(f"{text!r}: {f'{key} is set twice' if key else f'{item!r} has no key'}")
            parsed[key] = value.strip()
        elif key:
            parsed[key] += f",{item.strip()}"
        else:
            raise ValueError(f"{text!r}: {item!r} is not of the form KEY=VALUE")
    return parsed
