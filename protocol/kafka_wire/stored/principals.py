"""A principal as one broker sends it to another, in an Envelope (KIP-590).

Source: Kafka's DefaultPrincipalData.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, String
from kafka_wire.schema import message


@message(versions="0", flexible="0+")
class DefaultPrincipalData:
    """A principal, and whether it has logged in by a delegation token."""

    type: String
    name: String
    token_authenticated: Boolean
