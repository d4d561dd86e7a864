"""What brokers need to connect to each other."""

from __future__ import annotations

import pytest

from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.config.listeners import inter_broker_listener
from trio_broker.security.broker_security import broker_credentials, check_broker_security


def test_the_listener_between_brokers_is_named_by_one_of_two_keys():
    listeners = {"listeners": "PLAINTEXT://:1,SSL://:2"}
    by_name, by_protocol = {"inter.broker.listener.name": "ssl"}, {"security.inter.broker.protocol": "SSL"}
    for given in (by_name, by_protocol):
        assert inter_broker_listener(BrokerConfig({**listeners, **given}).socket_server) == "SSL"
    with pytest.raises(ConfigError, match="give one of the two"):
        inter_broker_listener(BrokerConfig({**listeners, **by_name, **by_protocol}).socket_server)
    with pytest.raises(ConfigError, match=r"^security.inter.broker.protocol: SASL_SSL is not in listeners"):
        inter_broker_listener(BrokerConfig({**listeners, "security.inter.broker.protocol": "SASL_SSL"}).socket_server)


def test_a_truststore_that_is_missing_is_refused_by_its_key():
    config = BrokerConfig({"listeners": "SSL://:1", "ssl.truststore.location": "/none"})
    with pytest.raises(ConfigError, match=r"^listener SSL: ssl.truststore.location: /none: No such file"):
        check_broker_security(config)


def test_a_login_module_without_a_password_is_refused_by_its_key():
    key = "listener.name.plaintext.plain.sasl.jaas.config"
    config = BrokerConfig({key: "x required username=broker;", "sasl.mechanism.inter.broker.protocol": "PLAIN"})
    with pytest.raises(ConfigError, match=rf"^{key}: a username and a password are needed, by which"):
        broker_credentials(config)
