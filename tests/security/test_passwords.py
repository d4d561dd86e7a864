"""Names and passwords that are asked about by something that is no listener."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.sasl.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.security.sasl.passwords import Passwords

SALT = b"some salt"
SETTINGS = {
    "listeners": "PLAINTEXT://:0,CLIENTS://:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.clients.plain.sasl.jaas.config": 'x required user_alice="alice-secret";',
    "listener.name.plaintext.plain.sasl.jaas.config": 'x required user_eve="eve-secret";',
}


def passwords(mechanism: ScramMechanism = ScramMechanism.SHA_256, iterations: int = MIN_ITERATIONS) -> Passwords:
    """Those of a listener with Alice by PLAIN, and with Bob by SCRAM."""

    def find(user: str, wanted: ScramMechanism) -> ScramCredential | None:
        salted = mechanism.salted_password("bob-secret", SALT, iterations)
        return mechanism.credential(salted, SALT, iterations) if (user, wanted) == ("bob", mechanism) else None

    return Passwords(BrokerConfig({**SETTINGS, "log.dirs": "/nowhere"}), find)


@pytest.mark.parametrize(
    ("user", "password", "is_right"),
    [
        ("alice", "alice-secret", True),
        ("alice", "bob-secret", False),
        ("bob", "bob-secret", True),
        ("bob", "alice-secret", False),
        ("bob", "", False),
        ("eve", "eve-secret", False),
        ("nobody", "", False),
    ],
)
def test_a_password_opens_at_a_listener_with_a_login_only(user: str, password: str, is_right: bool) -> None:
    assert passwords().known(user).is_right(password) is is_right


@pytest.mark.parametrize("fields", [{"mechanism": ScramMechanism.SHA_512}, {"iterations": MIN_ITERATIONS - 1}])
def test_what_no_listener_takes_opens_nothing(fields: Any) -> None:
    assert not passwords(**fields).known("bob").is_right("bob-secret")
    assert passwords(**fields).known("bob").mark == b""


def test_another_password_has_another_mark_and_no_secret_is_shown() -> None:
    known = passwords().known("alice")
    assert known.mark != passwords().known("bob").mark
    assert "alice-secret" not in repr(known)
