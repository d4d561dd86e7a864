"""A missing oracle skips a test only where nobody requires it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.oracles import ORACLES, VARIABLE, absent, required_oracles

HERE = Path(__file__).parent

OTHER_SKIPS = {
    "admin/test_admin_server.py": "a machine without IPv6",
    "bench/test_bench_helpers.py": "a file system without holes",
    "docs/test_readme.py": "a machine without curl",
    "network/test_listen_everywhere.py": "a machine without IPv6",
    "network/test_send.py": "a file system that keeps its pages in memory",
    "oracles.py": "the one place for oracles",
    "runtime/test_memory.py": "a C library that is not glibc",
    "spark/workarounds/test_switch.py": "an environment without PySpark",
    "test_broker_on_a_full_disk.py": "a machine that gives users no mount namespace",
    "test_fork_server.py": "a system without pidfd",
}
"""Files that may skip a test, and for what they do."""


def test_a_test_without_its_oracle_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "schemas,java")
    with pytest.raises(pytest.skip.Exception, match="kcat is not installed"):
        absent("kcat", "kcat is not installed")


@pytest.mark.parametrize("oracle", ORACLES)
def test_a_test_without_an_oracle_that_is_required_fails(monkeypatch: pytest.MonkeyPatch, oracle: str) -> None:
    monkeypatch.setenv(VARIABLE, f" {oracle} ,")
    with pytest.raises(pytest.fail.Exception, match=f"it is not there, and REQUIRE_ORACLES requires {oracle}"):
        absent(oracle, "it is not there")


def test_a_name_that_is_no_oracle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "java,jvaa")
    with pytest.raises(ValueError, match="jvaa"):
        required_oracles()


def test_no_test_is_skipped_for_an_oracle_by_other_means() -> None:
    skips = {"skip", "skipif", "importorskip"}
    found = {
        path.relative_to(HERE).as_posix()
        for path in HERE.rglob("*.py")
        if path != Path(__file__) and any(f"{skip}(" in path.read_text() for skip in skips)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in skips
    }
    assert found == set(OTHER_SKIPS)
