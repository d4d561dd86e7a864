"""Values as JSON: attrs classes through cattrs, with the values of sensitive keys left out.

Masking is done here, once, on the way out, so that no route can forget it and no broker has to be trusted with it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import attrs
import cattrs

from broker_admin.views.cluster.config import SettingChange
from trio_broker.config.config_key import ConfigType
from trio_broker.config.entries import ConfigDifference, ConfigEntry, ConfigSource
from trio_broker.coordinator.reporting.snapshot import GroupLag, GroupRates, GroupSnapshot

converter = cattrs.Converter()
"""Turns the values that a ``BrokerView`` returns into what ``json`` can write: enums by value, tuples as lists."""

# Their numbers are those of Kafka's DescribeConfigs; in JSON they go by name.
converter.register_unstructure_hook(ConfigSource, lambda source: source.name)
converter.register_unstructure_hook(ConfigType, lambda type_: type_.name.lower())

MEMBERS_OF_GROUPS = frozenset({"leader", "members"})
"""What a list of groups leaves out; a group's own address has it."""


@converter.register_unstructure_hook
def unstructure_group_lag(lag: GroupLag) -> dict[str, Any]:
    """A line of the list of groups is flat: the group's own fields beside those of its lag."""
    fields: dict[str, Any] = {
        field.name: converter.unstructure(getattr(lag, field.name))
        for field in attrs.fields(GroupLag)
        if field.name != "group"
    }
    group = converter.unstructure(lag.group)
    return {name: value for name, value in group.items() if name not in MEMBERS_OF_GROUPS} | fields


@converter.register_structure_hook
def structure_group_lag(fields: dict[str, Any], kind: type[GroupLag]) -> GroupLag:
    """A line of such a list, as another broker has sent it, with what it leaves out."""
    own = {field.name for field in attrs.fields(GroupLag)}
    group = converter.structure({name: fields[name] for name in fields.keys() - own} | {"leader": None}, GroupSnapshot)
    rates = fields["rates"]
    known = {name: fields[name] for name in fields.keys() & own}
    return GroupLag(**known | {"group": group, "rates": converter.structure(rates, GroupRates) if rates else None})


def encode(value: Any) -> bytes:
    """``value`` as JSON text, ended by a line feed so that it looks right in a terminal."""
    return json.dumps(converter.unstructure(value), separators=(",", ":")).encode() + b"\n"


def mask_entry(entry: ConfigEntry) -> ConfigEntry:
    """``entry`` without its values if they are secret."""
    if not entry.sensitive:
        return entry
    synonyms = tuple(attrs.evolve(synonym, value=None) for synonym in entry.synonyms)
    levels = tuple(attrs.evolve(level, value=None) for level in entry.levels)
    return attrs.evolve(entry, value=None, default=None, effective_value=None, synonyms=synonyms, levels=levels)


def mask_changes(changes: Sequence[SettingChange], sensitive_keys: Collection[str]) -> list[SettingChange]:
    """``changes`` without the values of secret keys; that such a key was changed stays visible."""
    return [attrs.evolve(change, old=None, new=None) if change.key in sensitive_keys else change for change in changes]


def mask_differences(
    differences: Sequence[ConfigDifference], sensitive_keys: Collection[str]
) -> list[ConfigDifference]:
    """``differences`` without the values of secret keys."""
    return [
        attrs.evolve(each, old=None, new=None, effective_old=None, effective_new=None)
        if each.key in sensitive_keys
        else each
        for each in differences
    ]


def sensitive_keys(entries: Sequence[ConfigEntry]) -> frozenset[str]:
    """The names of the secret keys."""
    return frozenset(entry.name for entry in entries if entry.sensitive)
