"""The properties of a client that logs in by SCRAM, in Kafka's format: what every Java tool and our commands take."""

from __future__ import annotations

from collections.abc import Mapping

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
