"""Limits that several keys share, each with a text that explains it.

Source: the validators in Kafka's ConfigDef, and the ones its keys define for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import attrs

from trio_broker.common.host_port import parse_host_port
from trio_broker.config.config_key import Validator, ValueBounds, split_list

T = TypeVar("T")
Number = TypeVar("Number", int, float)


def at_least(minimum: Number) -> Validator[Number]:
    """Accept ``minimum`` and anything above."""
    return Validator(f"at least {minimum}", lambda value: value >= minimum, ValueBounds(minimum=minimum))


def between(minimum: Number, maximum: Number) -> Validator[Number]:
    """Accept anything from ``minimum`` to ``maximum``, both included."""
    bounds = ValueBounds(minimum=minimum, maximum=maximum)
    return Validator(f"between {minimum} and {maximum}", lambda value: minimum <= value <= maximum, bounds)


MAX_POOL_SIZE = 256
"""Threads of one pool. More bring nothing to a process with one event loop, and a digit too many must not start
thousands, which take a gigabyte and hold the loop for seconds, at each start again."""

POOL_SIZE: Validator[int] = between(1, MAX_POOL_SIZE)


def minus_one_or_at_least(minimum: int) -> Validator[int]:
    """Accept -1, which stands for no limit or no choice, and ``minimum`` and anything above."""
    bounds = ValueBounds(minimum=minimum, special=-1)
    return Validator(f"-1, or at least {minimum}", lambda value: value == -1 or value >= minimum, bounds)


def negative_or_at_least(minimum: int) -> Validator[int]:
    """Accept any negative number, each of which stands for no limit, and ``minimum`` and anything above."""
    bounds = ValueBounds(minimum=minimum, special=-1)
    return Validator(f"negative, or at least {minimum}", lambda value: value < 0 or value >= minimum, bounds)


def optionally(validator: Validator[T]) -> Validator[T | None]:
    """Accept what ``validator`` accepts, on a key that may also be unset."""
    return Validator(validator.valid_values, lambda value: value is None or validator.accepts(value), validator.bounds)


def default_or_between(default: int, minimum: int, maximum: int) -> Validator[int]:
    """Accept ``default``, with which the codec chooses the level, or a number in the range."""
    return Validator(
        f"{default} (the codec's own choice) or between {minimum} and {maximum}",
        lambda value: value == default or minimum <= value <= maximum,
        ValueBounds(minimum=minimum, maximum=maximum, special=default),
    )


def one_of(*choices: str) -> Validator[str]:
    """Accept exactly these words."""
    return Validator(f"one of {', '.join(choices)}", lambda value: value in choices, ValueBounds(choices=choices))


def each_of(*choices: str) -> Validator[tuple[str, ...]]:
    """Accept any of these words, several, or none."""
    return Validator(f"any of {', '.join(choices)}", lambda values: set(values) <= set(choices))


def exactly(value: T, valid_values: str) -> Validator[T]:
    """Accept one value only."""
    return Validator(valid_values, lambda given: given == value)


@attrs.frozen
class Choice(Generic[T]):
    """The words that a key accepts, and their values."""

    values: Mapping[str, T]

    def parse(self, text: str) -> T:
        """Return the value of a word.

        Raises:
            ValueError: ``text`` is not one of the words.
        """
        if text not in self.values:
            raise ValueError(f"the value must be one of {', '.join(self.values)}")
        return self.values[text]

    def text_of(self, value: T) -> str:
        """Return the word for ``value``."""
        return next(word for word, known in self.values.items() if known == value)

    @property
    def attributes(self) -> dict[str, Any]:
        """The arguments with which ``key`` declares a key of these words."""
        # The validator accepts everything, because ``parse`` has checked the word: it is there for its text.
        explained = attrs.evolve(one_of(*self.values), accepts=lambda value: True)
        return {"parser": self.parse, "formatter": self.text_of, "validator": explained}


def rebalance_protocols(*, served: tuple[str, ...], known: tuple[str, ...]) -> Validator[tuple[str, ...]]:
    """Accept a list of protocols with ``classic`` in it. Those in ``known`` exist in Kafka and are not served here."""
    choices = subset_of(*served, *known)
    return Validator(
        f"{choices.valid_values}, with classic",
        lambda values: "classic" in values and choices.accepts(values),
        choices.bounds,
    )


def throttled_replicas() -> Validator[tuple[str, ...]]:
    """Accept Kafka's list of replicas whose replication is throttled."""
    one = re.compile(r"[0-9]+:[0-9]+", re.ASCII)
    return Validator(
        "the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        lambda replicas: replicas == ("*",) or all(one.fullmatch(replica) for replica in replicas),
    )


def subset_of(*choices: str) -> Validator[tuple[str, ...]]:
    """Accept a list of these words, none of them twice."""
    return Validator(
        f"a list of {', '.join(choices)}, each at most once",
        lambda values: set(values) <= set(choices) and len(set(values)) == len(values),
        ValueBounds(choices=choices),
    )


def some_of(*choices: str) -> Validator[tuple[str, ...]]:
    """Accept a list of at least one of these words, none of them twice."""
    subset = subset_of(*choices)
    return Validator(
        f"{subset.valid_values}, and not empty", lambda values: bool(values) and subset.accepts(values), subset.bounds
    )


def parse_connection_overrides(text: str) -> Mapping[str, int]:
    """Return the limit for each host of a ``host:count,host:count`` list.

    The count follows the last colon, so an IPv6 address needs no brackets.

    Raises:
        ValueError: an item has no host, no count, or a count below 0.
    """
    overrides = {}
    for item in split_list(text):
        host, separator, count = item.rpartition(":")
        if not separator or not host or not count.isascii() or not count.isdigit():
            raise ValueError(f"{item!r} is not host:count")
        overrides[host.removeprefix("[").removesuffix("]")] = int(count)
    return overrides


CONNECTION_OVERRIDES: Validator[Mapping[str, int]] = Validator(
    "a list of host:count, as in 10.0.0.7:200,::1:50", lambda overrides: min(overrides.values(), default=0) >= 0
)


def _is_host_port_or_empty(text: str) -> bool:
    try:
        return text == "" or bool(parse_host_port(text))
    except ValueError:
        return False


HOST_PORT_OR_EMPTY = Validator("host:port, or empty for none", _is_host_port_or_empty)

NOT_EMPTY: Validator[tuple[str, ...]] = Validator(
    "a list with at least one item, none of them blank", lambda items: bool(items) and all(items)
)
