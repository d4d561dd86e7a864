"""A short, repeatable slice of ``fuzz.security_apis``, and proof that it finds what is wrong."""

from __future__ import annotations

from fuzz import security_apis
from fuzz.decoders import Statistics
from trio_broker.handlers.support import authorization
from trio_broker.handlers.support.audit_log import AuditLog

ROUNDS = 400
SEED = 20261130


def test_broken_requests_about_rights_change_nothing_for_who_has_none() -> None:
    statistics = Statistics()
    findings = list(security_apis.fuzz(SEED, range(ROUNDS), statistics))
    assert not findings, "\n".join(map(str, findings))
    assert statistics.tried == ROUNDS
    assert 0.3 * ROUNDS < statistics.read < 0.8 * ROUNDS


def test_a_change_without_a_right_and_a_handler_that_fails_are_findings(monkeypatch) -> None:
    monkeypatch.setattr(authorization, "require_any", lambda *_: None)
    assert "changed what it has no right to" in first_finding()
    monkeypatch.undo()
    monkeypatch.setattr(AuditLog, "note", lambda *_, **__: 1 / 0)
    assert "ZeroDivisionError" in first_finding()


def first_finding() -> str:
    return str(next(security_apis.fuzz(SEED, range(ROUNDS), Statistics())))
