"""What the listener between brokers may be."""

from __future__ import annotations

import pytest

from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.security.sasl.broker_login import refuse_tls_between_brokers


def test_a_listener_between_brokers_has_no_tls():
    listeners = "SSL://:1,SASL_SSL://:2,PLAINTEXT://:3"
    for name in ("SSL", "SASL_SSL"):
        with pytest.raises(ConfigError, match="do not speak to each other"):
            refuse_tls_between_brokers(BrokerConfig({"listeners": listeners, "inter.broker.listener.name": name}))
    refuse_tls_between_brokers(BrokerConfig({"listeners": listeners, "inter.broker.listener.name": "PLAINTEXT"}))
