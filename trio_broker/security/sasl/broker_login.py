"""As whom brokers of a cluster log in at each other: by the login module of the listener between them.

Source: Kafka's ``sasl.mechanism.inter.broker.protocol`` and JaasContext.
"""

from __future__ import annotations

from kafka_wire.sasl.mechanisms import SaslClient, SaslCredentials
from trio_broker.common.security_protocol import SASL_PROTOCOLS, TLS_PROTOCOLS
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.config.listeners import (
    Endpoint,
    inter_broker_listener,
    listener_endpoints,
)
from trio_broker.runtime.randomness import Random
from trio_broker.security.sasl.authenticators import OFFERED, login_module, login_module_key


def is_login_between_brokers(config: BrokerConfig) -> bool:
    """Whether the listener by which brokers reach each other asks for a login."""
    return endpoint_between_brokers(config).security_protocol in SASL_PROTOCOLS


def refuse_tls_between_brokers(config: BrokerConfig) -> None:
    """Refuse a listener that other brokers, which speak no TLS to each other, cannot use.

    Raises:
        ConfigError: the listener between brokers is of TLS.
    """
    if (endpoint := endpoint_between_brokers(config)).security_protocol in TLS_PROTOCOLS:
        raise ConfigError(
            f"inter.broker.listener.name: {endpoint} is of {endpoint.security_protocol.name}, which brokers do not"
            " speak to each other; name a listener of PLAINTEXT or SASL_PLAINTEXT"
        )


def endpoint_between_brokers(config: BrokerConfig) -> Endpoint:
    name = inter_broker_listener(config.socket_server)
    return next(each for each in listener_endpoints(config.socket_server) if each.listener_name == name)


def broker_credentials(config: BrokerConfig) -> SaslCredentials:
    """Return as whom this broker logs in at others, by the settings at this time.

    Raises:
        ConfigError: the mechanism is not offered, or the login module has no user and password.
    """
    listener, mechanism = inter_broker_listener(config.socket_server), config.sasl.sasl_mechanism_inter_broker_protocol
    if mechanism not in OFFERED:
        reason = f"{mechanism} is not offered; name one of {', '.join(OFFERED)}"
        raise ConfigError(f"sasl.mechanism.inter.broker.protocol: {reason}")
    entry = login_module(config, listener, mechanism)
    try:
        return entry.credentials(mechanism)
    except ValueError as error:
        where = login_module_key(listener, mechanism)
        raise ConfigError(f"{where}: {error}, by which this broker logs in at others") from None


def new_broker_client(config: BrokerConfig, random: Random) -> SaslClient:
    """Return the client of one login at another broker.

    Raises:
        ConfigError: as ``broker_credentials``.
    """
    return broker_credentials(config).client(random.randbytes)
