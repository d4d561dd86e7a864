"""How the bytes between a client and a listener are secured.

Source: Kafka's SecurityProtocol.
"""

from __future__ import annotations

import enum
from typing import Final


class SecurityProtocol(enum.IntEnum):
    """Numbered as in Kafka's SecurityProtocol and RegisterBrokerRecord."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


TLS_PROTOCOLS: Final = frozenset({SecurityProtocol.SSL, SecurityProtocol.SASL_SSL})

SASL_PROTOCOLS: Final = frozenset({SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL})
