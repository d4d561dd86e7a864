"""Clients whose members live in a process of their own (``member_host``): Java's, kafkajs and @platformatic/kafka.

``npm install --prefix tests/compat/node`` brings the packages of Node, CONTRIBUTING.md tells of the jars.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.compat.group_claims import Kind
from tests.compat.member_host import HostedMember
from tests.java_programs import Java
from tests.oracles import absent

NODE = shutil.which("node")
SCRIPTS = Path(__file__).parent / "node"
PACKAGES = {"kafkajs": "kafkajs", "platformatic": "@platformatic/kafka"}


class JavaRange(HostedMember):
    name = "java range"
    settings_of_kind = {"strategies": "org.apache.kafka.clients.consumer.RangeAssignor"}


class JavaCooperative(HostedMember):
    name = "java cooperative-sticky"
    settings_of_kind = {"strategies": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"}


class JavaConsumer(HostedMember):
    """The protocol of KIP-848, with the broker's first assignor."""

    name = "java consumer"


class JavaConsumerRange(HostedMember):
    name = "java consumer range"
    settings_of_kind = {"assignor": "range"}


class KafkajsMember(HostedMember):
    """It assigns round robin."""

    name = "kafkajs"


class PlatformaticMember(HostedMember):
    """The classic protocol; it assigns round robin.

    Its commits carry no metadata (consumer.js, #commit). Nobody looks for new partitions before the next rebalance
    (#performSyncGroup), and then they are not read by a member that just waits for metadata in order to fetch: it asks
    for the offset "undefined", again and again (messages-stream.js, #fetch).
    """

    name = "platformatic"
    commits_metadata = False
    reads_what_is_new = False


class PlatformaticCooperative(PlatformaticMember):
    name = "platformatic cooperative-sticky"
    settings_of_kind: ClassVar[dict[str, Any]] = {"strategy": "cooperative-sticky"}


class PlatformaticConsumer(PlatformaticMember):
    """The protocol of KIP-848, where it is the broker that notices new partitions. They are not read any better."""

    name = "platformatic consumer"
    settings_of_kind: ClassVar[dict[str, Any]] = {"protocol": "consumer"}


JAVA_KINDS: list[Kind] = [JavaRange, JavaCooperative, JavaConsumer]
NODE_KINDS: list[Kind] = [KafkajsMember, PlatformaticMember, PlatformaticConsumer]
LIBRARIES: dict[str, list[Kind]] = {
    "java": JAVA_KINDS,
    "kafkajs": [KafkajsMember],
    "platformatic": [PlatformaticMember, PlatformaticConsumer],
}
"""The kinds of each, whose names begin with it."""


def script_command(library: str, script: str) -> list[str]:
    if NODE is None or not (SCRIPTS / "node_modules" / PACKAGES[library]).exists():
        absent("node", f"{PACKAGES[library]} is not installed")
    return [NODE, str(SCRIPTS / f"{library}_{script}.mjs")]


def host_command(library: str, request: pytest.FixtureRequest) -> list[str]:
    """What starts a host of members."""
    if library != "java":
        return script_command(library, "members")
    java: Java = request.getfixturevalue("java")
    return ["java", *java.quick_start, "-cp", java.class_path, "Members"]
