"""Reads what a user may do from short texts: ``write:orders`` is an operation and a topic.

A name that ends in ``*`` stands for all that begin so, ``*`` alone for all. Who may read, write, delete or alter
something may describe it, so that needs no text.

Source: docs/rights.md; Kafka's AclOperation and PatternType.
"""

from __future__ import annotations

from typing import Final

import attrs

from kafka_wire.acl import (
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclNumber,
    AclOperation,
    PatternType,
    ResourceType,
)
from trio_broker.common.did_you_mean import did_you_mean

FORM: Final = "OPERATION:TOPIC"


def word_of(member: AclNumber) -> str:
    """How an operation or a type is typed."""
    return member.name.lower().replace("_", "-")


OPERATIONS: Final = {word_of(each): each for each in (*SUPPORTED_OPERATIONS[ResourceType.TOPIC], AclOperation.ALL)}
"""What may be done to a topic, by its word."""


@attrs.frozen
class GrantedRight:
    """What somebody may do, from everywhere, or by a denial may not."""

    operation: AclOperation
    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType = PatternType.LITERAL
    is_denial: bool = False


def parse_right(text: str) -> GrantedRight:
    """Return the right to do something to a topic.

    Raises:
        ValueError: the text is not of that form; the message is one line.
    """
    word, separator, name = text.partition(":")
    if not (separator and name):
        raise ValueError(f"{text!r}: the form is {FORM}, as in write:orders")
    if word not in OPERATIONS:
        raise ValueError(f"{text!r}: {word!r} is none of {', '.join(OPERATIONS)}{did_you_mean(word, OPERATIONS)}")
    return right_to(OPERATIONS[word], ResourceType.TOPIC, name)


def right_to(operation: AclOperation, resource_type: ResourceType, name: str) -> GrantedRight:
    """Return the right to do ``operation`` to what ``name`` stands for."""
    if name != WILDCARD and name.endswith(WILDCARD):
        return GrantedRight(operation, resource_type, name.removesuffix(WILDCARD), PatternType.PREFIXED)
    return GrantedRight(operation, resource_type, name)


def group_right(name: str) -> GrantedRight:
    """The right to be a member of a group, and to commit."""
    return right_to(AclOperation.READ, ResourceType.GROUP, name)


def transactional_right(name: str) -> GrantedRight:
    """The right to write in transactions with an id."""
    return right_to(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name)


def right_text(right: GrantedRight) -> str:
    """A right in the words that ``parse_right`` reads, with the type of what is no topic, and ``not`` if denied."""
    star = WILDCARD if right.pattern_type is PatternType.PREFIXED else ""
    kind = "" if right.resource_type is ResourceType.TOPIC else f"{word_of(right.resource_type)}:"
    return f"{'not ' if right.is_denial else ''}{word_of(right.operation)}:{kind}{right.resource_name}{star}"
