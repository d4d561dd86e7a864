"""Where passwords come from: a file or a variable, never an argument, which everybody sees who lists the processes."""

from __future__ import annotations

import os
from pathlib import Path


def read_password(path: str) -> str:
    """Return the password in a file: all of it, but for the end of its last line.

    Raises:
        ValueError: it cannot be read, or is empty; the message is one line.
    """
    try:
        return password_in(Path(path).read_bytes(), path)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None


def password_in_variable(name: str) -> str:
    """Return the password in a variable of the environment.

    Raises:
        ValueError: it is not set, or is empty.
    """
    if not (password := os.environ.get(name, "")):
        raise ValueError(f"the variable {name} is not set")
    return password


def password_in(content: bytes, name: str) -> str:
    """Return the password that ``content`` is, of which ``name`` is the name in messages.

    Raises:
        ValueError: it is none.
    """
    try:
        password = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: it is not in UTF-8, at byte {error.start}") from None
    if not password:
        raise ValueError(f"{name}: it has no password in it")
    return password
