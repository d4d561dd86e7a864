"""The table of keys against Kafka's own definitions, which ``ConfigKeys`` of ``tests/compat/java`` prints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.java_programs import Java
from trio_broker.config.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS

KEYS = {"broker": BROKER_KEYS, "throttles": BROKER_KEYS, "topic": TOPIC_KEYS, "group": GROUP_KEYS}

OTHER_TYPES = {"listener.security.protocol.map": "LIST here, of pairs", "log.dir": "STRING here, one directory"}

OTHER_UPDATE_MODES = {
    "listeners": "read-only here: no listener is opened or closed while the broker runs",
    "listener.security.protocol.map": "read-only here, as listeners",
    "queued.max.requests": "cluster-wide here",
}

SHOWN_HERE = {
    "group.consumer.regex.refresh.interval.ms": "has an effect here",
    "log.initial.task.delay.ms": "has an effect here",
}


@pytest.fixture(scope="module")
def kafka_keys(java: Java) -> list[dict[str, Any]]:
    return [told for told in java.run("ConfigKeys") if told["of"] in KEYS]


def test_every_key_of_kafka_is_known(kafka_keys: list[dict[str, Any]]) -> None:
    assert [(told["of"], told["name"]) for told in kafka_keys if told["name"] not in KEYS[told["of"]]] == []


def test_no_key_without_effect_is_one_that_kafka_has_not(kafka_keys: list[dict[str, Any]]) -> None:
    for of, keys in (("broker", BROKER_KEYS), ("group", GROUP_KEYS)):
        ours = {name for name, key in keys.items() if key.without_effect}
        kafka = {told["name"] for told in kafka_keys if KEYS[told["of"]] is keys}
        assert ours - kafka == set(), of


def test_types_and_update_modes_are_kafka_s(kafka_keys: list[dict[str, Any]]) -> None:
    types, modes = set(), set()
    for told in kafka_keys:
        key = KEYS[told["of"]][told["name"]]
        if key.type.name != told["type"]:
            types.add(key.name)
        if KEYS[told["of"]] is BROKER_KEYS and key.update_mode.value != told["mode"]:
            modes.add(key.name)
    assert types == OTHER_TYPES.keys()
    assert modes == OTHER_UPDATE_MODES.keys()


def test_keys_that_kafka_does_not_show_are_not_shown(kafka_keys: list[dict[str, Any]]) -> None:
    shown = {told["name"] for told in kafka_keys if KEYS[told["of"]][told["name"]].internal is not told["internal"]}
    assert shown == SHOWN_HERE.keys()
