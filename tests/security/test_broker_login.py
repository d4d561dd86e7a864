"""What the listener between brokers may be."""

from __future__ import annotations

import pytest

from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.security.sasl.broker_login import broker_credentials, refuse_tls_between_brokers


def test_a_listener_between_brokers_has_no_tls():
    listeners = "SSL://:1,SASL_SSL://:2,PLAINTEXT://:3"
    for name in ("SSL", "SASL_SSL"):
        with pytest.raises(ConfigError, match="do not speak to each other"):
            refuse_tls_between_brokers(BrokerConfig({"listeners": listeners, "inter.broker.listener.name": name}))
    refuse_tls_between_brokers(BrokerConfig({"listeners": listeners, "inter.broker.listener.name": "PLAINTEXT"}))


def test_a_login_module_without_a_password_is_refused_by_its_key():
    key = "listener.name.plaintext.plain.sasl.jaas.config"
    config = BrokerConfig({key: "x required username=broker;", "sasl.mechanism.inter.broker.protocol": "PLAIN"})
    with pytest.raises(ConfigError, match=rf"^{key}: a username and a password are needed, by which"):
        broker_credentials(config)
