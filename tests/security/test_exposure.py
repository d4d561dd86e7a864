"""What is said of a listener that other machines reach."""

from __future__ import annotations

import pytest

from trio_broker.config.authorizer_config import STANDARD_AUTHORIZER
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import listener_endpoints
from trio_broker.security.exposure import exposure_of

AUTHORIZER = {"authorizer.class.name": STANDARD_AUTHORIZER}
EVERYTHING = "may read, write and delete everything"


@pytest.mark.parametrize(
    ("protocol", "settings", "said"),
    [
        ("PLAINTEXT", {}, f"WITHOUT LOGIN OR ENCRYPTION: anyone who reaches it {EVERYTHING}"),
        ("SSL", {}, f"WITHOUT LOGIN: anyone who reaches it {EVERYTHING}"),
        ("SSL", {"ssl.client.auth": "requested"}, f"WITHOUT LOGIN: anyone who reaches it {EVERYTHING}"),
        ("SSL", {"listener.name.ssl.ssl.client.auth": "required"}, ""),
        ("SASL_PLAINTEXT", {}, "WITHOUT ENCRYPTION: anyone on the way reads all, and the passwords of PLAIN"),
        ("SASL_SSL", {}, ""),
    ],
)
def test_it_says_what_is_missing(protocol: str, settings: dict[str, str], said: str) -> None:
    assert exposure(protocol, settings) == said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "is User:ANONYMOUS, and may do what access control entries give to it"),
        (
            {"allow.everyone.if.no.acl.found": "true"},
            "is User:ANONYMOUS, and may do what access control entries give to it, and all that no entry is about",
        ),
        ({"super.users": "User:admin;User:ANONYMOUS"}, f"is User:ANONYMOUS, a super user, and {EVERYTHING}"),
    ],
)
def test_with_an_authorizer_it_says_who_comes_and_what_they_may(settings: dict[str, str], said: str) -> None:
    for protocol in ("PLAINTEXT", "SSL"):
        assert exposure(protocol, AUTHORIZER | settings).endswith(f": anyone who reaches it {said}")


def exposure(protocol: str, settings: dict[str, str]) -> str:
    config = BrokerConfig({"listeners": f"{protocol}://0.0.0.0:9092", **settings})
    [endpoint] = listener_endpoints(config.socket_server)
    return exposure_of(endpoint, config)
