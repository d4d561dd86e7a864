"""Reads a declaration from a TOML file, or from a YAML file with the same tables.

    [topics.orders]
    partitions = 12
    replication_factor = 1

    [topics.orders.config]
    retention.ms = 86_400_000
    cleanup.policy = ["compact", "delete"]

    [users.orders-app]
    password_file = "/run/secrets/orders-app"
    may = ["write:orders", "read:returns-*"]
    may_not = ["all:orders-secret"]
    groups = ["billing"]

    [users.orders-app.quotas]
    producer_byte_rate = 1_048_576

    [default_quotas.users]
    request_percentage = 50

A password stands in another file, or in the variable that ``password_env`` names.

A setting may be written with quotes or without: TOML makes tables of dotted keys, which are joined again here. A list
stands for its items with commas between them. Every table and key that is not known is refused, so that a misspelt one
is found, and so that a file for a later version, with further tables, is not carried out in part.

Source: TOML 1.0; docs/decisions/0116-what-a-declaration-may-say.md.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from kafka_wire.limits import MAX_PARTITION_COUNT, MAX_REPLICATION_FACTOR
from trio_broker.common.did_you_mean import did_you_mean
from trio_broker.declaration.declaration import Declaration, DeclarationError, DeclaredTopic
from trio_broker.declaration.quota_table import default_quotas, unknown
from trio_broker.declaration.user_table import NO_SECRETS, Secrets, declared_user

T = TypeVar("T")

YAML_SUFFIXES: Final = (".yaml", ".yml")
TABLES: Final = ("topics", "users", "default_quotas")
TOPIC_KEYS: Final = ("partitions", "replication_factor", "config")

_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_declaration(name: str, content: bytes, secrets: Secrets = NO_SECRETS) -> Declaration:
    """Return what a file declares; ``name`` is the file's, for messages.

    Raises:
        DeclarationError: it is no TOML, or declares what cannot be.
    """
    document = _parsed(name, content)
    if not isinstance(document, dict):
        raise DeclarationError([f"{name}: it has to be a table of {', '.join(TABLES)}"])
    reasons = list(unknown(document, TABLES, name, "table"))
    topics = _each(name, document, "topics", partial(_topic, name), reasons)
    users = _each(name, document, "users", partial(declared_user, name, secrets=secrets), reasons)
    quotas = _each(name, document, "default_quotas", partial(default_quotas, name), reasons)
    if reasons:
        raise DeclarationError(reasons)
    return Declaration(topics=topics, users=users, default_quotas=quotas)


def _each(
    file: str, document: Mapping[str, Any], kind: str, read: Callable[[str, Any], T], reasons: list[str]
) -> tuple[T, ...]:
    """Read each table of a kind, and note what is refused."""
    tables = document.get(kind, {})
    if not isinstance(tables, dict):
        reasons.append(f"{file}: {kind} has to be a table of tables, by their names")
        return ()
    found = []
    for name, table in tables.items():
        try:
            found.append(read(name, table))
        except DeclarationError as error:
            reasons += error.reasons
    return tuple(found)


def _parsed(name: str, content: bytes) -> Any:
    try:
        text = content.decode("utf-8-sig")
        return _parsed_yaml(name, text) if name.lower().endswith(YAML_SUFFIXES) else _parsed_toml(name, text)
    except UnicodeDecodeError as error:
        raise DeclarationError([f"{name}: it is not in UTF-8, at byte {error.start}"]) from None
    except RecursionError:
        raise DeclarationError([f"{name}: its values are nested too deeply"]) from None


def _parsed_yaml(name: str, text: str) -> Any:
    try:
        from trio_broker.declaration.yaml_document import parse_yaml
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise DeclarationError([f"{name}: YAML needs the extra: pip install 'trio-broker[yaml]'"]) from None
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise DeclarationError([f"{name}:{error}"]) from None


def _parsed_toml(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        found = _POSITION.search(message)
        position = f":{found[1]}:{found[2]}" if found is not None and found[1] else ""
        where = " at the end of the file" if found is not None and not found[1] else ""
        raise DeclarationError([f"{name}{position}: {_POSITION.sub('', message)}{where}"]) from None


def _topic(file: str, name: str, table: Any) -> DeclaredTopic:
    where = f"{file}: topic {name!r}"
    if not isinstance(table, dict):
        raise DeclarationError([f"{where}: it has to be a table"])
    reasons = list(unknown((key for key in table if not _is_part_of_name(key, table)), TOPIC_KEYS, where, "key"))
    reasons += [
        f'{where}: unknown key {key!r}; a name with a dot is one key: "{name}.{key}"'
        for key in table
        if _is_part_of_name(key, table)
    ]
    values: dict[str, int | None] = {}
    for key, largest in (("partitions", MAX_PARTITION_COUNT), ("replication_factor", MAX_REPLICATION_FACTOR)):
        value = values[key] = table.get(key)
        # A bool is an int, too.
        if value is not None and (type(value) is not int or not 1 <= value <= largest):
            reasons.append(f"{where}: {key} has to be a whole number from 1 to {largest}, not {value!r}")
    config = table.get("config", {})
    settings: dict[str, str] = {}
    if isinstance(config, dict):
        for setting, value in _flat(config):
            if (text := _text_of(value)) is None:
                reasons.append(f"{where}: {setting} has to be a text, a number, a boolean or a list of them")
            elif setting in settings:
                reasons.append(f"{where}: {setting} is set twice")
            else:
                settings[setting] = text
    else:
        reasons.append(f"{where}: config has to be a table of settings")
    if reasons:
        raise DeclarationError(reasons)
    return DeclaredTopic(name=name, settings=settings, origin=file, **values)


def _is_part_of_name(key: str, table: Mapping[str, Any]) -> bool:
    """Whether TOML has taken what stands behind a dot in the name of a topic for a key of the topic."""
    return isinstance(table[key], dict) and key not in TOPIC_KEYS and not did_you_mean(key, TOPIC_KEYS)


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a table of settings by their names, of which TOML has made tables at each dot."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text_of(value: Any) -> str | None:
    """Return the text of a setting as Kafka writes it, None for a value that no setting has."""
    if isinstance(value, list):
        items = [None if isinstance(item, list) else _text_of(item) for item in value]
        return None if None in items else ",".join(str(item) for item in items)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int, float)) else None
