"""Parses settings and partitions on a command line: ``key=value``, ``topic:0,1,2``."""

from __future__ import annotations

import attrs
import click


def key_value(text: str) -> tuple[str, str]:
    """Read ``KEY=VALUE``; the value may be empty and may have further equals signs.

    Raises:
        click.BadParameter: the text is not of that form.
    """
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE")
    return key.strip(), value


@attrs.frozen
class TopicSelection:
    """Some partitions of a topic, or all of them if ``partitions`` is None."""

    topic: str
    partitions: tuple[int, ...] | None


def topic_selection(text: str) -> TopicSelection:
    """Read ``TOPIC`` or ``TOPIC:0,1,2``, Kafka's own form; the name of a topic cannot contain a colon.

    Raises:
        click.BadParameter: the text is not of that form.
    """
    topic, separator, numbers = text.partition(":")
    if not topic:
        raise click.BadParameter(f"{text!r} names no topic")
    if not separator:
        return TopicSelection(topic, None)
    partitions = [number.strip() for number in numbers.split(",")]
    if not all(number.isdecimal() for number in partitions):
        raise click.BadParameter(f"{text!r} is not of the form TOPIC:0,1,2")
    return TopicSelection(topic, tuple(sorted({int(number) for number in partitions})))
