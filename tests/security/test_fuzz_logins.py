"""A short, repeatable slice of ``fuzz.logins``, and proof that it gets as far as good clients do."""

from __future__ import annotations

import random

from fuzz import logins
from fuzz.decoders import Statistics
from tests.security.sasl_conversation import PASSWORDS
from trio_broker.security.sasl.server_authenticator import SaslServerAuthenticator

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
    # Of each login one frame is refused at most, and of each handshake a second hello.
    assert statistics.read >= statistics.tried - (logins.LOGINS + 1) * ROUNDS


def test_bob_is_let_in_and_goes_on_to_log_in_again(monkeypatch) -> None:
    monkeypatch.setattr(logins, "BREAK_CHANCE", 0)
    makers, conversations = logins.Logins(random.Random(SEED)), [logins.Conversation() for _ in range(ROUNDS)]
    for each in conversations:
        logins.converse(makers, each, b"", Statistics())
    assert {each.user for each in conversations} == {None, "bob"}
    # A login takes six frames at most.
    assert max(len(each.sent) for each in conversations) > 6


def test_a_login_without_a_password_is_a_finding(monkeypatch) -> None:
    monkeypatch.setitem(PASSWORDS, "alice", "wrong")
    findings = list(logins.fuzz(SEED, range(ROUNDS), Statistics()))
    assert "logged in without a password" in str(findings[0])


def test_another_user_behind_a_second_login_is_a_finding(monkeypatch) -> None:
    monkeypatch.setattr(logins, "BREAK_CHANCE", 0)
    monkeypatch.setattr(SaslServerAuthenticator, "_require_same_user", lambda *_: None)
    findings = list(logins.fuzz(SEED, range(ROUNDS), Statistics()))
    assert "alice is logged in without a password" in str(findings[0])
