"""The broker's config keys, and changing them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import attrs

from trio_broker.config.config_key import ConfigUnit
from trio_broker.config.entries import ConfigDifference, ConfigEntry, ConfigScope


@attrs.frozen
class SettingChange:
    """One setting of a change: its effective value before and after.

    ``sequence`` is the number of the change in ``/api/v1/changes``, the same for all keys of one change.
    ``changed_by`` says who and from where, in words:
    ``kafka client rdkafka from 10.0.0.7``.
    """

    sequence: int
    changed_at_ms: int
    changed_by: str
    key: str
    old: str | None
    new: str | None


@attrs.frozen
class ConfigRefusal:
    """Why one key of a change was not accepted; ``key`` is empty for what is wrong with several of them together, and
    a name with a question mark, ``?level``, for what else the change says."""

    key: str
    reason: str


@attrs.frozen
class ConfigChangeResult:
    """What came of a change: all of it (``changes``) or nothing of it (``refusals``).

    ``differences`` has the keys that were named, as they were changed or, in a dry run, would be.
    """

    changes: tuple[SettingChange, ...] = ()
    refusals: tuple[ConfigRefusal, ...] = ()
    differences: tuple[ConfigDifference, ...] = ()


class ConfigView(Protocol):
    """The config keys of a broker, as the admin app sees and changes them."""

    def entries(self) -> Sequence[ConfigEntry]:
        """Every broker key, in the order they are to be shown."""
        ...

    def entry(self, name: str) -> ConfigEntry | None:
        """One broker key, as ``entries`` has it; None if there is none of this name."""
        ...

    def units(self, names: Iterable[str]) -> Mapping[str, ConfigUnit | None]:
        """The units of those of ``names`` that are broker keys, None where a key has none."""
        ...

    async def change(
        self,
        changes: Mapping[str, str | None],
        *,
        changed_by: str,
        level: ConfigScope = ConfigScope.BROKER,
        dry_run: bool = False,
        try_seconds: int | None = None,
        compare_seconds: int | None = None,
    ) -> ConfigChangeResult:
        """Set keys at a level, or reset those whose value is None to the level below; all of them or none.

        With ``try_seconds`` the broker takes the change back after so long unless ``keep_change`` comes,
        with ``compare_seconds`` it has the old and the new values in effect in turn, three times.

        Returns once the change is durable and in effect; with ``dry_run`` nothing is changed. A key that keeps its
        effective value is not among the changes.
        """
        ...
