"""How brokers of a cluster secure their connections to each other: by the settings of the listener between them.

What a broker shows to clients there, it shows to other brokers, and whom it trusts as clients it trusts as brokers. It
logs in as the user of that listener's login module.

Source: Kafka's ``sasl.mechanism.inter.broker.protocol``, JaasContext and ChannelBuilders.clientChannelBuilder.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

import attrs

from kafka_wire.sasl.mechanisms import SaslClient, SaslCredentials
from trio_broker.common.security_protocol import SASL_PROTOCOLS, TLS_PROTOCOLS, SecurityProtocol
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.config.listeners import inter_broker_listener, listener_endpoints
from trio_broker.runtime.randomness import Random
from trio_broker.runtime.workers import Workers
from trio_broker.security.sasl.authenticators import BY_PASSWORD, login_module, login_module_key


@attrs.frozen
class BrokerSecurity:
    """How this broker's connections to others are secured, each by what there is when it is made.

    ``new_context`` is None where there is no TLS, ``new_sasl_client`` where there is no login. What takes long is done
    in a thread of ``workers``: reading keys, salting a password. Both raise ``ConfigError``.
    """

    workers: Workers
    new_context: Callable[[], ssl.SSLContext] | None = None
    new_sasl_client: Callable[[], SaslClient] | None = None


def broker_security(config: BrokerConfig, random: Random, workers: Workers) -> BrokerSecurity:
    """Return how this broker's connections to others are secured, by the settings that there are when one is made."""
    protocol = protocol_between_brokers(config)
    return BrokerSecurity(
        workers,
        new_context=partial(broker_context, config) if protocol in TLS_PROTOCOLS else None,
        new_sasl_client=partial(new_broker_client, config, random) if protocol in SASL_PROTOCOLS else None,
    )


def check_broker_security(config: BrokerConfig) -> None:
    """Read what connections to other brokers need.

    Raises:
        ConfigError: it is not there, or is not what it should be.
    """
    protocol = protocol_between_brokers(config)
    if protocol in TLS_PROTOCOLS:
        broker_context(config)
    if protocol in SASL_PROTOCOLS:
        broker_credentials(config)


def protocol_between_brokers(config: BrokerConfig) -> SecurityProtocol:
    name = inter_broker_listener(config.socket_server)
    endpoints = listener_endpoints(config.socket_server)
    return next(each.security_protocol for each in endpoints if each.listener_name == name)


def broker_context(config: BrokerConfig) -> ssl.SSLContext:
    """Return what this broker shakes hands by where it connects to another one, by the settings at this time.

    Raises:
        ConfigError: a key or certificate is not what it should be.
    """
    # Imported here: see the head of the module.
    from trio_broker.security.ssl_factory import present_client_context

    listener = inter_broker_listener(config.socket_server)
    try:
        return present_client_context(config.ssl_of(listener))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"listener {listener}: {reason}") from None


def broker_credentials(config: BrokerConfig) -> SaslCredentials:
    """Return as whom this broker logs in at others, by the settings at this time.

    Raises:
        ConfigError: the mechanism is not offered, or the login module has no user and password.
    """
    listener, mechanism = inter_broker_listener(config.socket_server), config.sasl.sasl_mechanism_inter_broker_protocol
    if mechanism not in BY_PASSWORD:
        reason = f"{mechanism} is not offered; name one of {', '.join(BY_PASSWORD)}"
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
