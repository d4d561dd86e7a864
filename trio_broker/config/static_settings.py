"""Gathers the static settings of a start from the file, the environment and the command line; the last of them wins.

The environment variable of a key is ``TRIO_BROKER_`` and the key in capitals, with ``_`` for every dot:
``num.io.threads`` is ``TRIO_BROKER_NUM_IO_THREADS``. Every setting has its origin, so that an error can name the file
and line, the variable or the option.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from trio_broker.config.entries import ConfigLevel
from trio_broker.config.keys import BROKER_KEYS
from trio_broker.config.properties import parse_properties
from trio_broker.suggestion import did_you_mean

ENVIRONMENT_PREFIX = "TRIO_BROKER_"

CLIENT_VARIABLES = frozenset({"TRIO_BROKER_BOOTSTRAP_SERVER"})
"""Variables that the commands for a cluster read; a broker ignores them without a warning."""

COMMAND_LINE = "command line"
"""The origin of a setting that an option of the command sets."""


@attrs.frozen
class StaticSetting:
    """The text of one setting; ``origin`` names the file and line, the variable or the option."""

    text: str
    origin: str


@attrs.define
class StaticSettings:
    """Settings by level and key, the weakest level first, and a warning for each setting that has no effect."""

    levels: dict[ConfigLevel, dict[str, StaticSetting]] = attrs.Factory(
        lambda: {ConfigLevel.FILE: {}, ConfigLevel.ENVIRONMENT: {}, ConfigLevel.COMMAND_LINE: {}}
    )
    warnings: list[str] = attrs.Factory(list)

    def set(self, key: str, value: str, origin: str, level: ConfigLevel = ConfigLevel.COMMAND_LINE) -> None:
        self.levels[level][key] = StaticSetting(value, origin)

    @property
    def effective(self) -> dict[str, StaticSetting]:
        """The setting of each key that wins over those of the other levels."""
        return {key: setting for level in self.levels.values() for key, setting in level.items()}


def environment_name(key: str) -> str:
    """Return the name of the environment variable that sets ``key``."""
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_")


@attrs.frozen
class SettingsFile:
    """A properties file that was read, and its name as messages give it."""

    name: str
    content: bytes

    @property
    def text(self) -> str:
        """The content, which is in UTF-8 or, as Java reads properties, in Latin-1."""
        try:
            return self.content.decode("utf-8-sig")
        # Never fails: in Latin-1 every byte is a character.
        except UnicodeDecodeError:
            return self.content.decode("latin-1")


def gather_settings(
    file: SettingsFile | None, overrides: Mapping[str, str], environment: Mapping[str, str]
) -> StaticSettings:
    """Return the settings of the file, the environment and the command line, without checking their values.

    Raises:
        ConfigError: the file is malformed.
    """
    settings = StaticSettings()
    if file is not None:
        _add_file(settings, file)
    _add_environment(settings, environment)
    for key, value in overrides.items():
        settings.set(key, value, COMMAND_LINE)
    return settings


def _add_file(settings: StaticSettings, file: SettingsFile) -> None:
    for item in parse_properties(file.text, file.name):
        origin = f"{file.name}:{item.line}"
        if item.key in settings.levels[ConfigLevel.FILE]:
            settings.warnings.append(f"{origin}: {item.key} was set above already; the last value counts")
        settings.set(item.key, item.value, origin, ConfigLevel.FILE)


def _add_environment(settings: StaticSettings, environment: Mapping[str, str]) -> None:
    keys = {environment_name(key): key for key in BROKER_KEYS}
    variables = {name for name in environment if name.startswith(ENVIRONMENT_PREFIX)}
    for variable in sorted(variables - CLIENT_VARIABLES):
        if (key := keys.get(variable)) is None:
            hint = did_you_mean(variable, keys)
            settings.warnings.append(f"environment variable {variable}: no key has that name, and it is ignored{hint}")
        else:
            origin = f"environment variable {variable}"
            settings.set(key, environment[variable], origin, ConfigLevel.ENVIRONMENT)
