"""Reads what ``trio-broker start`` is given to declare."""

from __future__ import annotations

from pathlib import Path

from trio_broker.declaration.declaration import Declaration, DeclarationError, DeclaredTopic, united
from trio_broker.declaration.topic_text import parse_topic

TOPIC_OPTION = "--topic"


def read_declarations(file: Path | None, topics: tuple[str, ...]) -> Declaration:
    """Return what a file and the options ``--topic`` declare together.

    Raises:
        DeclarationError: one of them is malformed, or a topic is declared twice.
    """
    declared: list[DeclaredTopic] = []
    if file is not None:
        # Imported here: most commands need no TOML.
        from trio_broker.declaration.declaration_file import read_declaration

        try:
            declared += read_declaration(str(file), file.read_bytes())
        except OSError as error:
            raise DeclarationError([f"{file}: {error.strerror or error}"]) from None
    try:
        declared += [parse_topic(text, TOPIC_OPTION) for text in topics]
    except ValueError as error:
        raise DeclarationError([f"{TOPIC_OPTION}: {error}"]) from None
    return united(declared)
