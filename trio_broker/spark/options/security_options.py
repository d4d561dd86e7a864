"""How the connections of a job are secured: the properties of Kafka's clients for that, behind ``kafka.``.

They have secrets in them, so what a job writes down about itself leaves them out.

Source: docs/security.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trio_broker.client.security import SECURITY_PREFIXES, ClientSecurity, SecurityKeyError, parse_security
from trio_broker.spark.errors import OptionError
from trio_broker.spark.options.kafka_options import PREFIX
from trio_broker.spark.options.option import GivenOptions
from trio_broker.spark.options.read_option_table import ADMIN_TOKEN

SECURITY_OPTIONS: Final = tuple(PREFIX + prefix for prefix in SECURITY_PREFIXES)
"""What the names of these options begin with."""


def read_security(given: GivenOptions) -> ClientSecurity:
    """Return what ``given`` says about security.

    Raises:
        OptionError: one is unknown, or asks for what there is not; neither text nor reason has a secret in it.
    """
    names = [name for name in given.names() if name.startswith(SECURITY_OPTIONS)]
    try:
        return parse_security({name.removeprefix(PREFIX): given.text_of(name) for name in names})
    except SecurityKeyError as error:
        raise OptionError(given.spelling(PREFIX + error.key), error.reason) from None


def as_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return as options what a client's properties say about security."""
    return {PREFIX + name: value for name, value in properties.items() if name.startswith(SECURITY_PREFIXES)}


def without_security(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that say what a job does, without those that say how and as whom it connects."""
    return {
        name: value
        for name, value in options.items()
        if not name.lower().startswith(SECURITY_OPTIONS) and name.lower() != ADMIN_TOKEN.name.lower()
    }
