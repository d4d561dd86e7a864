"""The properties of a client that logs in by SCRAM, in Kafka's format: what every Java tool and our commands take."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

_ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def scram_properties(user: str, password: str, mechanism: str) -> dict[str, str]:
    """As whom the client logs in, by keys."""
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{LOGIN_MODULE} required username={_quoted(user)} password={_quoted(password)};",
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """The text of a file. In ASCII, since Java reads such files as Latin-1."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def write_new_private_file(path: Path, text: str) -> None:
    """Write a file that was not there, and that its owner alone may read.

    Raises:
        FileExistsError: it was there.
        OSError: it cannot be written.
    """
    # The mode is given with the creation: a file that is readable for a moment may be opened in that moment.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escaped(value: str) -> str:
    # A blank at the beginning would be dropped.
    return ("\\" if value.startswith(" ") else "") + "".join(map(_character, value))


def _character(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[index] << 8 | units[index + 1]:04x}" for index in range(0, len(units), 2))
