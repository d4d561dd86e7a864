"""A short, repeatable slice of ``fuzz.logins``, and proof that it gets as far as good clients do."""

from __future__ import annotations

from fuzz import logins
from fuzz.decoders import Statistics
from tests.security.sasl_conversation import PASSWORDS

ROUNDS = 60
SEED = 20261130


def test_broken_logins_and_handshakes_let_nobody_in_and_raise_nothing() -> None:
    statistics = Statistics()
    findings = list(logins.fuzz(SEED, range(ROUNDS), statistics))
    assert not findings, "\n".join(map(str, findings))
    assert ROUNDS < statistics.read < statistics.tried


def test_what_is_not_broken_goes_on_to_its_end(monkeypatch) -> None:
    monkeypatch.setattr(logins, "BREAK_CHANCE", 0)
    statistics = Statistics()
    assert not list(logins.fuzz(SEED, range(ROUNDS), statistics))
    # All of a handshake's flights but the first ones are read; of a login its last frame is refused.
    assert statistics.read >= statistics.tried - 3 * ROUNDS


def test_a_login_without_a_password_is_a_finding(monkeypatch) -> None:
    monkeypatch.setitem(PASSWORDS, "alice", "wrong")
    findings = list(logins.fuzz(SEED, range(ROUNDS), Statistics()))
    assert "logged in without a password" in str(findings[0])
