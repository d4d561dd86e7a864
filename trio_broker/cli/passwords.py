"""Where passwords come from: a file or a variable, never an argument, which everybody sees who lists the processes."""

from __future__ import annotations

import os

from trio_broker.security.private_files import read_private_file


def read_password(path: str) -> str:
    """Return the password in a file: all of it, but for the end of its last line.

    Raises:
        ValueError: others may read it, it cannot be read, or is empty; the message is one line.
    """
    try:
        return password_in(read_private_file(path), path)
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
