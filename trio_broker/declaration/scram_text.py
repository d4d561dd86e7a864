"""Reads a user of SCRAM from one text: ``SCRAM-SHA-512=[name=admin,password-file=/run/secrets/admin]``.

The form is that of Kafka's ``kafka-storage.sh format --add-scram``, with ``password-file`` beside ``password``: what
stands in an argument is seen by everybody who may list the processes of the machine.

Source: Kafka's ScramParser.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from kafka_wire.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism
from trio_broker.common.did_you_mean import did_you_mean
from trio_broker.declaration.declaration import DeclaredCredential

FORM: Final = "SCRAM-SHA-512=[name=NAME,password-file=FILE]"
PARTS: Final = ("name", "password", "password-file", "iterations")

_FORM = re.compile(r"(SCRAM-SHA-256|SCRAM-SHA-512)=\[(.*)\]")


def parse_scram(text: str, origin: str, read_password: Callable[[str], str]) -> DeclaredCredential:
    """Return the user that ``text`` declares; ``origin`` is the option, and ``read_password`` reads
    a file by its name.

    Raises:
        ValueError: the text is not of that form, or ``read_password`` refuses; the message is one line without a
            password.
    """
    if (found := _FORM.fullmatch(text.strip())) is None:
        raise ValueError(f"the form is {FORM}, of SCRAM-SHA-256 or SCRAM-SHA-512")
    parts: dict[str, str] = {}
    for item in found[2].split(","):
        key, separator, value = item.partition("=")
        if key not in PARTS:
            # Not shown itself: it may be the end of a password with a comma.
            raise ValueError(f"a part is none of {', '.join(PARTS)}{did_you_mean(key, PARTS) or '; none has a comma'}")
        if not separator or key in parts:
            raise ValueError(f"{key} is named twice" if separator else f"{key} has no value")
        parts[key] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    if not parts.get("name"):
        raise ValueError(f"it names no user; the form is {FORM}")
    if ("password" in parts) == ("password-file" in parts):
        raise ValueError(f"user {parts['name']!r}: it needs either password-file or password")
    return DeclaredCredential(
        name=parts["name"],
        mechanism=ScramMechanism(found[1]),
        password=parts["password"] if "password" in parts else read_password(parts["password-file"]),
        iterations=parse_iterations(parts.get("iterations", str(MIN_ITERATIONS))),
        origin=origin,
    )


def parse_iterations(text: str) -> int:
    """Return the number of iterations.

    Raises:
        ValueError: it is none that Kafka takes.
    """
    if not (text.isascii() and text.isdecimal() and MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS):
        raise ValueError(f"iterations has to be from {MIN_ITERATIONS} to {MAX_ITERATIONS}, not {text!r}")
    return int(text)
