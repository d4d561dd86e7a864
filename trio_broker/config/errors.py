"""The error of this package: a setting that is refused.

Source: Kafka's ConfigException and InvalidConfigurationException.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError


class ConfigError(KafkaError):
    """A key or a value is refused. The text is one line with the key, the value and the reason.

    ``key`` is the key at fault, or None if the error concerns several. ``code`` is INVALID_CONFIG unless one is given.
    """

    code = ErrorCode.INVALID_CONFIG

    def __init__(self, message: str, *, key: str | None = None, code: ErrorCode | None = None) -> None:
        super().__init__(message, code=code)
        self.key = key


class ContradictorySettings(ConfigError):
    """Settings that are valid one by one contradict each other; ``keys`` are theirs, those at fault first."""

    def __init__(self, message: str, *keys: str) -> None:
        super().__init__(message)
        self.keys = keys
