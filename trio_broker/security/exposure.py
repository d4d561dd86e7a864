"""What is open at a listener that other machines reach: without a login to everybody, without TLS to who is on the way.

Source: docs/threat-model.md.
"""

from __future__ import annotations

from trio_broker.common.security_protocol import SASL_PROTOCOLS, TLS_PROTOCOLS, SecurityProtocol
from trio_broker.config.authorizer_config import AuthorizerConfig, principals_of
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import Endpoint
from trio_broker.security.kafka_principal import ANONYMOUS


def exposure_of(endpoint: Endpoint, config: BrokerConfig) -> str:
    """Return what is to be said of a listener that other machines reach; empty where all that come are known and nobody
    else can read what they send."""
    is_plain = endpoint.security_protocol not in TLS_PROTOCOLS
    if has_login(endpoint, config):
        return "WITHOUT ENCRYPTION: anyone on the way reads all, and the passwords of PLAIN" if is_plain else ""
    what = "WITHOUT LOGIN OR ENCRYPTION" if is_plain else "WITHOUT LOGIN"
    return f"{what}: anyone who reaches it {rights_of_anonymous(config.authorizer)}"


def has_login(endpoint: Endpoint, config: BrokerConfig) -> bool:
    """Whether every client of a listener proves who it is."""
    if endpoint.security_protocol is SecurityProtocol.SSL:
        return config.ssl_of(endpoint.listener_name).ssl_client_auth == "required"
    return endpoint.security_protocol in SASL_PROTOCOLS


def rights_of_anonymous(config: AuthorizerConfig) -> str:
    """What a client may do that has not logged in."""
    everything = "may read, write and delete everything"
    if not config.authorizer_class_name:
        return everything
    if str(ANONYMOUS) in principals_of(config.super_users):
        return f"is {ANONYMOUS}, a super user, and {everything}"
    unless = ", and all that no entry is about" if config.allow_everyone_if_no_acl_found else ""
    return f"is {ANONYMOUS}, and may do what access control entries give to it{unless}"
