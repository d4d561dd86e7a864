"""Listeners and the addresses they advertise."""

from __future__ import annotations

import pytest

from trio_broker.common.security_protocol import SecurityProtocol
from trio_broker.config.broker_config import BrokerConfig, load_broker_config
from trio_broker.config.errors import ConfigError
from trio_broker.config.listeners import (
    Endpoint,
    advertised_endpoints,
    inter_broker_listener,
    listener_endpoints,
)


def plaintext(name, host, port):
    return Endpoint(name, SecurityProtocol.PLAINTEXT, host, port)


def listeners(text, **others):
    return listener_endpoints(BrokerConfig({"listeners": text, **others}).socket_server)


def test_name_host_and_port_are_read():
    assert listeners("PLAINTEXT://localhost:9092") == (plaintext("PLAINTEXT", "localhost", 9092),)


def test_an_empty_host_is_every_interface():
    assert listeners("PLAINTEXT://:0") == (plaintext("PLAINTEXT", "", 0),)


def test_an_ipv6_address_stands_in_brackets():
    (endpoint,) = listeners("PLAINTEXT://[::1]:9092")
    assert (endpoint.host, str(endpoint)) == ("::1", "PLAINTEXT://[::1]:9092")


def test_a_listener_name_is_mapped_to_its_security_protocol():
    found = listeners(
        "INSIDE://:1,outside://:2", **{"listener.security.protocol.map": "inside:PLAINTEXT,OUTSIDE:plaintext"}
    )
    assert found == (plaintext("INSIDE", "", 1), plaintext("OUTSIDE", "", 2))


def test_controller_listeners_of_kafkas_sample_file_are_left_out():
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
    )
    assert listener_endpoints(config.socket_server) == (plaintext("PLAINTEXT", "", 9092),)
    assert advertised_endpoints(config.socket_server) == (plaintext("PLAINTEXT", "localhost", 9092),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("localhost:9092", "is not NAME://host:port"),
        ("PLAINTEXT://localhost", "'localhost' is not host:port"),
        ("PLAINTEXT://localhost:70000", "is not host:port"),
        ("PLAINTEXT://::1:9092", "an IPv6 address stands in brackets"),
        ("OTHER://:9092", "OTHER has no entry in listener.security.protocol.map"),
        ("PLAINTEXT://:1,plaintext://:2", "the listener PLAINTEXT appears twice"),
    ],
)
def test_a_listener_that_cannot_be_is_refused_in_one_line(text, reason):
    with pytest.raises(ConfigError) as refusal:
        listeners(text)
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_two_listeners_may_not_want_the_same_port():
    protocols = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    with pytest.raises(ConfigError, match="want the same port"):
        listeners("A://:9092,B://:9092", **protocols)
    assert len(listeners("A://:0,B://:0", **protocols)) == 2


def test_a_broker_of_controller_listeners_alone_is_refused():
    with pytest.raises(ConfigError, match="no listener is left"):
        listeners("PLAINTEXT://:1", **{"controller.listener.names": "PLAINTEXT"})


def test_a_listener_without_an_advertised_address_advertises_what_was_dialled():
    protocols = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    config = BrokerConfig({"listeners": "A://0.0.0.0:1,B://inner:2", **protocols})
    assert advertised_endpoints(config.socket_server) == (plaintext("A", "", 1), plaintext("B", "inner", 2))


@pytest.mark.parametrize(
    ("advertised", "reason"),
    [("PLAINTEXT://0.0.0.0:9092", "no client can connect to"), ("SSL://host:1", "SSL is not in listeners")],
)
def test_an_advertised_address_that_helps_nobody_is_refused(advertised, reason):
    with pytest.raises(ConfigError, match=reason):
        advertised_endpoints(BrokerConfig({"advertised.listeners": advertised}).socket_server)


@pytest.mark.parametrize(("name", "expected"), [(None, "OUTSIDE"), ("inside", "INSIDE")])
def test_brokers_reach_each_other_by_the_listener_in_the_setting_or_the_first(name, expected):
    settings = {"listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"}
    if name is not None:
        settings["inter.broker.listener.name"] = name
    config = BrokerConfig({"listeners": "OUTSIDE://:1,INSIDE://:2", **settings})
    assert inter_broker_listener(config.socket_server) == expected


def test_the_listener_of_brokers_has_to_be_one():
    """It is asked when the settings are read: found out behind the registration it would be too late."""
    with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name: INSIDE is not in listeners"):
        load_broker_config(overrides={"inter.broker.listener.name": "INSIDE"})
