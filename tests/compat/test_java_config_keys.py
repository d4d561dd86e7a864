"""The table of keys against Kafka's own definitions, which ``ConfigKeys`` of ``tests/compat/java`` prints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.java_programs import Java
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS

KEYS = {"broker": BROKER_KEYS, "throttles": BROKER_KEYS, "topic": TOPIC_KEYS, "group": GROUP_KEYS}

OTHER_UPDATE_MODES = {
    "listeners": "read-only here: no listener is opened or closed while the broker runs",
    "listener.security.protocol.map": "read-only here, as listeners",
    "queued.max.requests": "cluster-wide here",
}

SHOWN_HERE = {
    "group.consumer.regex.refresh.interval.ms": "has an effect here",
    "log.initial.task.delay.ms": "has an effect here",
}


BORDERS = [
    *(
        (name, value)
        for name in (
            "connections.max.idle.ms",
            "default.replication.factor",
            "group.initial.rebalance.delay.ms",
            "group.max.session.timeout.ms",
            "group.min.session.timeout.ms",
            "log.cleaner.backoff.ms",
            "log.flush.interval.ms",
            "log.retention.hours",
            "log.retention.minutes",
            "log.roll.hours",
            "log.roll.jitter.hours",
            "log.roll.jitter.ms",
            "log.roll.ms",
            "offsets.topic.segment.bytes",
            "queued.max.request.bytes",
            "socket.receive.buffer.bytes",
            "socket.send.buffer.bytes",
            "transaction.state.log.segment.bytes",
        )
        for value in ("-2", "-1", "0", "1")
    ),
    ("connection.failed.authentication.delay.ms", "599999"),
    ("connection.failed.authentication.delay.ms", "600000"),
    ("connections.max.idle.ms", "100"),
    ("connections.max.idle.ms", "101"),
    ("group.consumer.assignors", ""),
    ("group.consumer.migration.policy", "Upgrade"),
    ("log.cleanup.policy", "delete,delete"),
    ("log.preallocate", " TRUE"),
    ("max.connections", "1"),
    ("max.connections.per.ip", "-1"),
    ("max.connections.per.ip", "0"),
    ("max.connections.per.ip", "1"),
    ("max.connections.per.ip.overrides", "localhost:0"),
    ("offset.metadata.max.bytes", "0"),
    ("queued.max.request.bytes", "104857599"),
    ("queued.max.request.bytes", "104857600"),
    ("replica.high.watermark.checkpoint.interval.ms", "1"),
]
"""Values at the borders of what a key takes."""

TIGHTER = [
    ("log.cleaner.io.buffer.load.factor", "0"),
    ("log.cleaner.io.max.bytes.per.second", "0"),
    ("log.retention.ms", "-2"),
    ("max.connection.creation.rate", "0"),
    ("max.connections", "0"),
    ("max.connections.per.ip.overrides", "localhost:-1"),
    ("num.io.threads", "257"),
    ("offset.metadata.max.bytes", "-1"),
    ("replica.high.watermark.checkpoint.interval.ms", "0"),
]
"""Values that Kafka takes and ours refuses on purpose; docs/config.md says why."""


@pytest.fixture(scope="module")
def answers(java: Java) -> list[dict[str, Any]]:
    return java.run("ConfigKeys", given=[*BORDERS, *TIGHTER])


@pytest.fixture(scope="module")
def kafka_keys(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [answer for answer in answers if answer["of"] in KEYS]


def test_every_key_of_kafka_is_known(kafka_keys: list[dict[str, Any]]) -> None:
    assert [(answer["of"], answer["name"]) for answer in kafka_keys if answer["name"] not in KEYS[answer["of"]]] == []


def test_no_key_without_effect_is_one_that_kafka_has_not(kafka_keys: list[dict[str, Any]]) -> None:
    for of, keys in (("broker", BROKER_KEYS), ("group", GROUP_KEYS)):
        ours = {name for name, key in keys.items() if key.without_effect}
        kafka = {answer["name"] for answer in kafka_keys if KEYS[answer["of"]] is keys}
        assert ours - kafka == set(), of


def test_types_and_update_modes_are_kafka_s(kafka_keys: list[dict[str, Any]]) -> None:
    types, modes = {}, set()
    for answer in kafka_keys:
        key = KEYS[answer["of"]][answer["name"]]
        if key.type.name != answer["type"]:
            types[key.name] = answer["type"]
        if KEYS[answer["of"]] is BROKER_KEYS and key.update_mode.value != answer["mode"]:
            modes.add(key.name)
    assert types == {}
    assert modes == OTHER_UPDATE_MODES.keys()


def test_keys_that_kafka_does_not_show_are_not_shown(kafka_keys: list[dict[str, Any]]) -> None:
    shown = {
        answer["name"] for answer in kafka_keys if KEYS[answer["of"]][answer["name"]].internal is not answer["internal"]
    }
    assert shown == SHOWN_HERE.keys()


def test_what_kafka_takes_at_the_borders_is_taken(answers: list[dict[str, Any]]) -> None:
    values = [answer for answer in answers if answer["of"] == "value"]
    assert len(values) == len(BORDERS) + len(TIGHTER)
    differences = [
        (answer["name"], answer["value"])
        for answer in values
        if is_taken(answer["name"], answer["value"]) is not (answer["error"] is None)
    ]
    assert differences == TIGHTER


def is_taken(name: str, value: str) -> bool:
    try:
        BrokerConfig({name: value})
    except ConfigError:
        return False
    return True
