"""How a first record is written to a broker that has none: its address, and three ways to copy. Pure functions."""

from __future__ import annotations

import attrs

from broker_admin.views.node.identity import AdvertisedListener, NodeDescription
from trio_broker.common.host_port import host_port

TOPIC = "greetings"


@attrs.frozen
class Snippet:
    """Lines to copy, and what they need."""

    title: str
    text: str


def bootstrap_address(node: NodeDescription, dialled_host: str) -> str:
    """The address to start from. A listener without a host advertises what the client dialled: ``dialled_host``."""
    listener = node.listeners[0] if node.listeners else AdvertisedListener("PLAINTEXT", "PLAINTEXT", "", 9092)
    return host_port(listener.host or dialled_host, listener.port)


def creation_command(bootstrap: str) -> str:
    """What makes the topic, for a broker that makes none by itself."""
    return f"trio-broker topics create {TOPIC} -b {bootstrap}"


def snippets(bootstrap: str) -> tuple[Snippet, ...]:
    """The same record three times."""
    python = f"""\
from confluent_kafka import Producer

producer = Producer({{"bootstrap.servers": "{bootstrap}"}})
producer.produce("{TOPIC}", "hello")
producer.flush()"""
    kcat = f"""\
echo hello | kcat -P -b {bootstrap} -t {TOPIC}
kcat -C -b {bootstrap} -t {TOPIC} -o beginning -e"""
    commands = f"""\
echo hello | trio-broker produce {TOPIC} -b {bootstrap}
trio-broker consume {TOPIC} -b {bootstrap}"""
    return (
        Snippet("Python: pip install confluent-kafka", python),
        Snippet("kcat", kcat),
        Snippet("trio-broker, which came with this broker", commands),
    )
