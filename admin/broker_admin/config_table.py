"""The table of settings on the page ``/config``: which keys are shown, grouped, and each with its six levels.

Pure functions of the entries, which the route masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlencode

import attrs

from broker_admin.schemas import bounded
from trio_broker.config.config_key import ConfigType, UpdateMode
from trio_broker.config.entries import ON_TRIAL, ConfigEntry, ConfigLevel, ConfigLevelValue
from trio_broker.config.quantities import quantity_text

LEVEL_TITLES: Mapping[ConfigLevel, str] = {
    ConfigLevel.BROKER: "this broker",
    ConfigLevel.CLUSTER: "cluster default",
    ConfigLevel.COMMAND_LINE: "command line",
    ConfigLevel.ENVIRONMENT: "environment",
    ConfigLevel.FILE: "file",
    ConfigLevel.BUILT_IN: "built-in",
}

DYNAMIC_LEVELS = frozenset({ConfigLevel.BROKER, ConfigLevel.CLUSTER})
"""Those that are set while the broker runs."""

MODE_TITLES: Mapping[UpdateMode, str] = {
    UpdateMode.CLUSTER_WIDE: "live",
    UpdateMode.PER_BROKER: "live, for one broker",
    UpdateMode.READ_ONLY: "restart",
}

MAX_SEARCH_LENGTH = 200
"""Longer than any key."""


@attrs.frozen(kw_only=True)
class ConfigTableQuery:
    """Which keys are shown, and which of them is opened."""

    search: str = bounded("", maxLength=MAX_SEARCH_LENGTH)
    group: str = bounded("", maxLength=MAX_SEARCH_LENGTH)
    changed: bool = False
    """Only keys whose value in effect is not the built-in one."""
    live: bool = False
    """Only keys that can be changed while the broker runs."""
    key: str = bounded("", maxLength=MAX_SEARCH_LENGTH)

    def address(self, key: str, path: str) -> str:
        """The page at ``path`` with the same keys, of which ``key`` is opened, or none if it is empty."""
        given = {
            "search": self.search,
            "group": self.group,
            "changed": "true" if self.changed else "",
            "live": "true" if self.live else "",
            "key": key,
        }
        query = urlencode({name: text for name, text in given.items() if text})
        return f"{path}?{query}" if query else path


@attrs.frozen
class LevelRow:
    """One level of an opened key: the values that it has, of the key and of its fallbacks."""

    title: str
    values: tuple[ConfigLevelValue, ...]


@attrs.frozen
class ConfigRow:
    """One key as the table shows it."""

    entry: ConfigEntry
    source: str
    is_open: bool
    address: str
    """Where this row is opened or, if it is open, closed."""

    @property
    def is_live(self) -> bool:
        return not self.entry.read_only

    @property
    def value(self) -> str | None:
        """The value in effect as text, None if there is none or it is secret."""
        return self.entry.effective_value

    @property
    def reading(self) -> str | None:
        """The value as it is read best."""
        return quantity_text(self.value, self.entry.unit)

    @property
    def mode(self) -> str:
        return MODE_TITLES[self.entry.update_mode]

    @property
    def limits(self) -> str:
        """What may be set, in words."""
        if (allowed := self.entry.allowed_range) is not None:
            return f"{allowed.minimum} to {allowed.maximum}"
        return self.entry.valid_values or KIND_TEXTS.get(self.entry.type, "")

    @property
    def levels(self) -> list[LevelRow]:
        return [
            LevelRow(title, tuple(each for each in self.entry.levels if each.level is level))
            for level, title in LEVEL_TITLES.items()
        ]

    @property
    def chosen(self) -> frozenset[str]:
        """The items of a list."""
        return frozenset(item.strip() for item in (self.value or "").split(","))

    @property
    def reset_refusal(self) -> str:
        """Why there is nothing to reset, empty if there is."""
        if is_on_trial(self.entry):
            return "It is on trial: keep it or undo it"
        if any(each.level in DYNAMIC_LEVELS and each.name == self.entry.name for each in self.entry.levels):
            return ""
        return "Nothing was set while the broker ran, for this broker or for all"

    def reading_of(self, level: ConfigLevelValue) -> str | None:
        """The value of a level as it is read best; that of a fallback is in another unit, and shown as it is."""
        return quantity_text(level.value, self.entry.unit) if level.name == self.entry.name else None


def is_on_trial(entry: ConfigEntry) -> bool:
    """Whether the value in effect is one that is tried."""
    return any(each.origin == ON_TRIAL for each in entry.levels)


KIND_TEXTS: Mapping[ConfigType, str] = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.INT: "a whole number",
    ConfigType.LONG: "a whole number",
    ConfigType.SHORT: "a whole number",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "a list, separated by commas",
}


@attrs.frozen
class ConfigTable:
    """The keys that are shown, by subject, and how many there are in all."""

    groups: Mapping[str, Sequence[ConfigRow]]
    subjects: Sequence[str]
    matching: int
    total: int
    is_key_shown: bool
    """Whether the key that is to be opened is among them; true if none is."""


def config_table(entries: Iterable[ConfigEntry], query: ConfigTableQuery, path: str = "/config") -> ConfigTable:
    """Return the keys that ``query`` asks for. A search looks into names, values and documentation."""
    everything = list(entries)
    groups: dict[str, list[ConfigRow]] = {}
    for entry in everything:
        if is_wanted(entry, query):
            is_open = entry.name == query.key
            source = next((LEVEL_TITLES[each.level] for each in entry.levels if each.wins), "not set")
            row = ConfigRow(entry, source, is_open, query.address("" if is_open else entry.name, path))
            groups.setdefault(entry.group, []).append(row)
    rows = [row for group in groups.values() for row in group]
    return ConfigTable(
        groups=groups,
        subjects=list(dict.fromkeys(entry.group for entry in everything)),
        matching=len(rows),
        total=len(everything),
        is_key_shown=not query.key or any(row.is_open for row in rows),
    )


def is_wanted(entry: ConfigEntry, query: ConfigTableQuery) -> bool:
    is_changed = any(each.wins and each.level is not ConfigLevel.BUILT_IN for each in entry.levels)
    needle = query.search.casefold().strip()
    return (
        (not query.changed or is_changed)
        and (not query.live or not entry.read_only)
        and (not query.group or entry.group == query.group)
        and any(needle in (text or "").casefold() for text in (entry.name, entry.documentation, entry.effective_value))
    )
