"""Reads what ``trio-broker start`` is given to declare."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs

from trio_broker.cli.passwords import password_in_variable, read_password
from trio_broker.declaration.declaration import Declaration, DeclarationError, DeclaredCredential, require_once
from trio_broker.declaration.topic_text import parse_topic

T = TypeVar("T")


@attrs.frozen
class GivenTexts:
    """What an option declares; ``origin`` is what gives it, the option or a variable, as errors name it."""

    texts: tuple[str, ...]
    origin: str


def read_declarations(
    file: Path | None, topics: GivenTexts, first_credentials: GivenTexts = GivenTexts((), "")
) -> Declaration:
    """Return what a file and options declare together.

    Raises:
        DeclarationError: one of them is malformed, or something is declared twice.
    """
    in_file = Declaration()
    if file is not None:
        # Imported here: most commands need neither TOML nor YAML.
        from trio_broker.declaration.declaration_file import read_declaration
        from trio_broker.declaration.user_table import Secrets

        try:
            in_file = read_declaration(str(file), file.read_bytes(), Secrets(read_password, password_in_variable))
        except OSError as error:
            raise DeclarationError([f"{file}: {error.strerror or error}"]) from None
    declared = (*in_file.topics, *parsed(parse_topic, topics))
    credentials: list[DeclaredCredential] = []
    if first_credentials.texts:
        # Imported here: a start without the option needs nothing of the wire.
        from trio_broker.declaration.scram_text import parse_scram

        credentials = parsed(partial(parse_scram, read_password=read_password), first_credentials)
    return require_once(attrs.evolve(in_file, topics=declared, first_credentials=tuple(credentials)))


def parsed(parse: Callable[[str, str], T], given: GivenTexts) -> list[T]:
    """Return what each text declares.

    Raises:
        DeclarationError: one is malformed.
    """
    try:
        return [parse(text, given.origin) for text in given.texts]
    except ValueError as error:
        raise DeclarationError([f"{given.origin}: {error}"]) from None
