"""Reads quotas from a table: those of a user, and those of all users, client ids or addresses that have none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from trio_broker.common.did_you_mean import did_you_mean
from trio_broker.declaration.declaration import DeclarationError, DeclaredDefaultQuotas

OF_CLIENTS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")

DEFAULTS: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "users": ("user", OF_CLIENTS),
    "client_ids": ("client-id", OF_CLIENTS),
    "addresses": ("ip", ("connection_creation_rate",)),
}
"""The type of entity, as Kafka calls it, and its quotas, by what has none of its own."""


def default_quotas(file: str, kind: str, table: Any) -> DeclaredDefaultQuotas:
    """Return the default quotas of a ``kind``.

    Raises:
        DeclarationError: there is no such kind, or the table is none of quotas.
    """
    where = f"{file}: default_quotas"
    if kind not in DEFAULTS:
        raise DeclarationError([f"{where}: {kind!r} is none of {', '.join(DEFAULTS)}{did_you_mean(kind, DEFAULTS)}"])
    entity_type, known = DEFAULTS[kind]
    quotas, reasons = read_quotas(table, known, f"{where}: {kind}")
    if reasons:
        raise DeclarationError(reasons)
    return DeclaredDefaultQuotas(kind=kind, entity_type=entity_type, quotas=quotas, origin=file)


def read_quotas(table: Any, known: Sequence[str], where: str) -> tuple[dict[str, float], list[str]]:
    """Return the quotas in ``table``, and why some are refused, a line each."""
    if not isinstance(table, dict):
        return {}, [f"{where}: quotas have to be a table of numbers"]
    reasons = list(unknown(table, known, where, "quota"))
    # A bool is an int, too.
    wrong = [key for key, value in table.items() if type(value) not in (int, float) or not value > 0]
    reasons += [f"{where}: {key} has to be a number above 0" for key in wrong]
    return {key: float(value) for key, value in table.items() if key not in wrong}, reasons


def unknown(names: Iterable[str], known: Sequence[str], where: str, kind: str) -> Iterator[str]:
    """Yield a line for each of ``names`` that is not known."""
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; known: {', '.join(known)}"
            yield f"{where}: unknown {kind} {name!r}{hint}"
