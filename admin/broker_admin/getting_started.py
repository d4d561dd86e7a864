"""How a first record is written to a broker that has none: its address, and what to copy. Pure functions.

A listener with a login or TLS has it in every snippet, with the file of the authority that clients trust. ``USER`` and
``PASSWORD`` stand for a user that somebody creates: nothing here is secret.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

import attrs

from broker_admin.views.node.identity import AdvertisedListener, NodeDescription
from trio_broker.common.host_port import host_port

TOPIC = "greetings"

PLAINTEXT = AdvertisedListener("PLAINTEXT", "PLAINTEXT", "", 9092)

AUTHORITY = "ca.pem"
"""Where the settings of the broker do not name the file."""


@attrs.frozen
class Snippet:
    """Lines to copy, and what they need."""

    title: str
    text: str


def first_listener(node: NodeDescription) -> AdvertisedListener:
    """The listener whose address the pages show."""
    return node.listeners[0] if node.listeners else PLAINTEXT


def bootstrap_address(node: NodeDescription, dialled_host: str) -> str:
    """The address to start from. A listener without a host advertises what the client dialled: ``dialled_host``."""
    listener = first_listener(node)
    return host_port(listener.host or dialled_host, listener.port)


def creation_command(bootstrap: str, listener: AdvertisedListener) -> str:
    """What makes the topic, for a broker that makes none by itself."""
    return f"trio-broker topics create {TOPIC} -b {bootstrap}{command_config(listener)}"


def snippets(bootstrap: str, listener: AdvertisedListener) -> tuple[Snippet, ...]:
    """The same record five times, and before that the user who writes it and the file that two of them read, if they
    need one."""
    config = command_config(listener)
    properties = java_properties(listener)
    file = Snippet("client.properties of Java's clients, Kafka's tools and trio-broker", lines(properties))
    kcat_options = "".join(f" -X {shlex.quote(f'{key}={value}')}" for key, value in librdkafka(listener).items())
    settings = {"bootstrap.servers": bootstrap, **librdkafka(listener)}
    python = f"""\
from confluent_kafka import Producer

producer = Producer({{{", ".join(f"{quoted(key)}: {quoted(value)}" for key, value in settings.items())}}})
producer.produce("{TOPIC}", "hello")
producer.flush()"""
    node = f"""\
const {{ Kafka }} = require("kafkajs")
const kafka = new Kafka({{ brokers: [{quoted(bootstrap)}]{kafkajs(listener)} }})
const producer = kafka.producer()
producer.connect()
  .then(() => producer.send({{ topic: "{TOPIC}", messages: [{{ value: "hello" }}] }}))
  .finally(() => producer.disconnect())"""
    kcat = f"""\
echo hello | kcat -P -b {bootstrap} -t {TOPIC}{kcat_options}
kcat -C -b {bootstrap} -t {TOPIC} -o beginning -e{kcat_options}"""
    producer_config = config.replace("--command-config", "--producer.config")
    java = f"echo hello | kafka-console-producer.sh --bootstrap-server {bootstrap} --topic {TOPIC}{producer_config}"
    commands = f"""\
echo hello | trio-broker produce {TOPIC} -b {bootstrap}{config}
trio-broker consume {TOPIC} -b {bootstrap}{config}"""
    user = f"""\
trio-broker users create USER --may create:{TOPIC} write:{TOPIC} read:{TOPIC} \\
  -b {bootstrap} --command-config admin.properties"""
    has_users = login_mechanism(listener).startswith("SCRAM-")
    return (
        *([Snippet("A user with these rights alone, created by an administrator", user)] if has_users else []),
        *([file] if properties else []),
        Snippet("Python: pip install confluent-kafka", python),
        Snippet("Node: npm install kafkajs", node),
        Snippet("kcat", kcat),
        Snippet("Kafka's own tools, in Java", java),
        Snippet("trio-broker, which came with this broker", commands),
    )


def command_config(listener: AdvertisedListener) -> str:
    """The option that names the file of properties; empty where there is nothing to say in it."""
    return " --command-config client.properties" if java_properties(listener) else ""


def java_properties(listener: AdvertisedListener) -> dict[str, str]:
    """The security of Kafka's own clients; empty on a listener without any."""
    if listener.security_protocol == "PLAINTEXT":
        return {}
    properties = {"security.protocol": listener.security_protocol}
    if has_tls(listener):
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority(listener)}
    if mechanism := login_mechanism(listener):
        kind = "scram.Scram" if mechanism.startswith("SCRAM") else "plain.Plain"
        module = f"org.apache.kafka.common.security.{kind}LoginModule"
        jaas = f'{module} required username="USER" password="PASSWORD";'
        properties |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    return properties


def librdkafka(listener: AdvertisedListener) -> dict[str, str]:
    """The security of clients that are made of librdkafka; empty on a listener without any."""
    if listener.security_protocol == "PLAINTEXT":
        return {}
    settings = {"security.protocol": listener.security_protocol}
    if has_tls(listener):
        settings["ssl.ca.location"] = authority(listener)
    if mechanism := login_mechanism(listener):
        settings |= {"sasl.mechanisms": mechanism, "sasl.username": "USER", "sasl.password": "PASSWORD"}
    return settings


def kafkajs(listener: AdvertisedListener) -> str:
    """What follows the brokers in the settings of kafkajs."""
    tls = f', ssl: {{ ca: [require("fs").readFileSync({quoted(authority(listener))})] }}' if has_tls(listener) else ""
    mechanism = login_mechanism(listener).lower()
    login = f', sasl: {{ mechanism: "{mechanism}", username: "USER", password: "PASSWORD" }}' if mechanism else ""
    return tls + login


def has_tls(listener: AdvertisedListener) -> bool:
    return listener.security_protocol.endswith("SSL")


def authority(listener: AdvertisedListener) -> str:
    """The file with the certificate that clients trust."""
    return listener.authority or AUTHORITY


def login_mechanism(listener: AdvertisedListener) -> str:
    """The best mechanism with a password; empty without one."""
    of_passwords = [each for each in listener.mechanisms if each == "PLAIN" or each.startswith("SCRAM-")]
    return max(of_passwords, default="")


def lines(properties: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={value}" for key, value in properties.items())


def quoted(text: str) -> str:
    """A string of Python and of JavaScript."""
    return json.dumps(text, ensure_ascii=False)
