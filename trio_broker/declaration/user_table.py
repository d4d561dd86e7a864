"""Reads a declared user from a table of a file. Its password stands elsewhere, and in no message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from kafka_wire.sasl.scram import MIN_ITERATIONS, ScramMechanism
from trio_broker.declaration.declaration import DeclarationError, DeclaredCredential, DeclaredUser
from trio_broker.declaration.quota_table import OF_CLIENTS, read_quotas, unknown
from trio_broker.declaration.rights_text import GrantedRight, group_right, parse_right, transactional_right

RIGHTS: Final[Mapping[str, Callable[[str], GrantedRight]]] = {
    "may": parse_right,
    "groups": group_right,
    "transactional_ids": transactional_right,
    "may_not": lambda text: attrs.evolve(parse_right(text), is_denial=True),
}
"""What the texts of a list stand for, by its key."""

USER_KEYS: Final = ("password_file", "password_env", "mechanism", *RIGHTS, "quotas")

EVERYBODY: Final = "*"
"""The name of a user that stands for every one in entries, and is none that logs in or has a quota."""


def _refuse(name: str) -> str:
    raise ValueError(f"{name}: no secrets are read here")


@attrs.frozen
class Secrets:
    """Reads passwords: from a file by its name, from a variable by its. Both raise ValueError with one line."""

    in_file: Callable[[str], str]
    in_variable: Callable[[str], str]


NO_SECRETS: Final = Secrets(_refuse, _refuse)


def declared_user(file: str, name: str, table: Any, *, secrets: Secrets) -> DeclaredUser:
    """Return the user ``name``.

    Raises:
        DeclarationError: the table is none of a user, or the password cannot be read.
    """
    where = f"{file}: user {name!r}"
    if not isinstance(table, dict):
        raise DeclarationError([f"{where}: it has to be a table"])
    reasons = list(unknown(table, USER_KEYS, where, "key"))
    credential = None
    try:
        credential = _credential(file, name, table, secrets)
    except ValueError as error:
        reasons.append(f"{where}: {error}")
    rights: list[GrantedRight] = []
    for key, read in RIGHTS.items():
        texts = table.get(key, [])
        if not isinstance(texts, list) or not all(isinstance(each, str) and each for each in texts):
            reasons.append(f"{where}: {key} has to be a list of texts")
            continue
        try:
            rights += map(read, texts)
        except ValueError as error:
            reasons.append(f"{where}: {key}: {error}")
    quotas, refused = read_quotas(table.get("quotas", {}), OF_CLIENTS, where)
    reasons += refused
    if name == EVERYBODY and (credential or quotas):
        reasons.append(f"{where}: it is everybody, with rights alone; quotas of all are default_quotas.users")
    if reasons:
        raise DeclarationError(reasons)
    return DeclaredUser(
        name=name,
        credential=credential,
        rights=tuple(dict.fromkeys(rights)),
        quotas=quotas,
        origin=file,
    )


def _credential(file: str, name: str, table: Mapping[str, Any], secrets: Secrets) -> DeclaredCredential | None:
    sources = {"password_file": secrets.in_file, "password_env": secrets.in_variable}
    given = [key for key in sources if key in table]
    mechanism = table.get("mechanism", ScramMechanism.SHA_512.value)
    if mechanism not in [each.value for each in ScramMechanism]:
        raise ValueError(f"mechanism has to be one of {', '.join(each.value for each in ScramMechanism)}")
    if not given:
        return None
    if len(given) > 1:
        raise ValueError("it needs either password_file or password_env")
    [key] = given
    if not isinstance(table[key], str):
        raise ValueError(f"{key} has to be a text")
    return DeclaredCredential(
        name=name,
        mechanism=ScramMechanism(mechanism),
        password=sources[key](table[key]),
        iterations=MIN_ITERATIONS,
        origin=file,
    )
