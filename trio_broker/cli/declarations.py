"""Reads what ``trio-broker start`` is given to declare."""

from __future__ import annotations

from pathlib import Path

from trio_broker.declaration.declaration import Declaration, DeclarationError, DeclaredTopic, united
from trio_broker.declaration.topic_text import parse_topic


def read_declarations(file: Path | None, topics: tuple[str, ...], topics_origin: str) -> Declaration:
    """Return what a file and the texts of topics declare together.

    Args:
        topics_origin: what gives ``topics``, an option or a variable, as errors name it.

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
        declared += [parse_topic(text, topics_origin) for text in topics]
    except ValueError as error:
        raise DeclarationError([f"{topics_origin}: {error}"]) from None
    return united(declared)
