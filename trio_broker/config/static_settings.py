"""Gathers the static settings of a start from the file, the environment and the command line; the last of them wins.

Every setting has its origin, so that an error can name the file and line, the variable or the option. A variable of the
environment that begins as ours do (``environment``) and means nothing is refused: nobody reads the warnings of a
container that runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from trio_broker.common.did_you_mean import did_you_mean
from trio_broker.common.environment import ENVIRONMENT_PREFIX, environment_name, is_of_service, key_of_variable
from trio_broker.common.properties import PropertiesError, parse_properties
from trio_broker.config.entries import ConfigLevel
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import BROKER_KEYS

CLIENT_VARIABLES = frozenset({"TRIO_BROKER_BOOTSTRAP_SERVER", "TRIO_BROKER_SPARK_WORKAROUNDS"})
"""Variables that the commands for a cluster and Spark's jobs read; a broker ignores them."""

COMMAND_LINE = "command line"
"""The origin of a setting that an option of the command sets."""


@attrs.frozen
class StaticSetting:
    """The text of one setting; ``origin`` names the file and line, the variable or the option."""

    text: str = attrs.field(repr=False)
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
    file: SettingsFile | None,
    overrides: Mapping[str, str],
    environment: Mapping[str, str],
    option_variables: Collection[str] = (),
) -> StaticSettings:
    """Return the settings of the file, the environment and the command line, without checking their values.

    ``option_variables`` are those of the command's options, which the command reads.

    Raises:
        ConfigError: the file is malformed, or a variable means nothing.
    """
    settings = StaticSettings()
    if file is not None:
        _add_file(settings, file)
    _add_environment(settings, environment, option_variables)
    for key, value in overrides.items():
        settings.set(key, value, COMMAND_LINE)
    return settings


def _add_file(settings: StaticSettings, file: SettingsFile) -> None:
    try:
        properties = parse_properties(file.text, file.name)
    except PropertiesError as error:
        raise ConfigError(str(error)) from None
    for item in properties:
        origin = f"{file.name}:{item.line}"
        if item.key in settings.levels[ConfigLevel.FILE]:
            settings.warnings.append(f"{origin}: {item.key} was set above already; the last value counts")
        settings.set(item.key, item.value, origin, ConfigLevel.FILE)


def _add_environment(
    settings: StaticSettings, environment: Mapping[str, str], option_variables: Collection[str]
) -> None:
    others = CLIENT_VARIABLES.union(option_variables)
    for variable, value in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in others or is_of_service(variable, value):
            continue
        if (key := key_of_variable(variable)) not in BROKER_KEYS:
            hint = did_you_mean(variable, [*map(environment_name, BROKER_KEYS), *option_variables])
            raise ConfigError(f"{origin_of(variable)}: no setting of a broker has that name{hint}")
        settings.set(key, value, origin_of(variable), ConfigLevel.ENVIRONMENT)


def origin_of(variable: str) -> str:
    """The origin of a setting that an environment variable sets."""
    return f"environment variable {variable}"
