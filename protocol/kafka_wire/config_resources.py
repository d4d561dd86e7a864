"""What has settings, and what a change does to one, as the requests about settings and the records of them number it.

Source: Kafka's ConfigResource and AlterConfigOp.
"""

from __future__ import annotations

import enum


class ConfigResourceType(enum.IntEnum):
    """What a setting may belong to, numbered as on the wire and in ConfigRecord."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    """The levels of a broker's loggers, which hold until it is started again (KIP-412)."""
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(enum.IntEnum):
    """What a change does to a value; the last two are for lists (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
