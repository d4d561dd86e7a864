"""The oracles: what was not written here and serves the tests as a second opinion.

A test that needs an oracle which is not there is skipped, so that a plain clone can be tested. ``REQUIRE_ORACLES``, an
environment variable with names from ``ORACLES`` separated by commas, turns the skips for those oracles into failures:
where it is set, no comparison is left out unnoticed. CI sets all of them (``.ci/run``).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final, NoReturn

import pytest

ORACLES: Final = {
    "schemas": "Kafka's message schemas, in shared/kafka-messages-4.4.0 beside the checkout",
    "java": "a JDK, and the jars of the poms of tests/compat/java, java_older, java_streams and java_mirror",
    "spark": "the jars of tests/compat/spark/pom.xml",
    "kcat": "kcat",
    "chromium": "Chromium, or Chrome",
    "schemathesis": "schemathesis, which `pip install -e '.[dev]'` brings",
    "promtool": "promtool, of Debian's package prometheus",
    "node": "Node, and the packages of tests/compat/node/package.json",
    "rsync": "rsync",
    "systemd": "systemd-analyze",
    "etcd": "etcd and etcdctl, of Debian's packages etcd-server and etcd-client",
    "go": "Go, and the modules of tests/compat/go/go.mod",
}

VARIABLE: Final = "REQUIRE_ORACLES"


def required_oracles() -> frozenset[str]:
    """The oracles that ``REQUIRE_ORACLES`` names.

    Raises:
        ValueError: it names one that does not exist.
    """
    names = frozenset(filter(None, (name.strip() for name in os.environ.get(VARIABLE, "").split(","))))
    if unknown := names - ORACLES.keys():
        raise ValueError(f"{VARIABLE} names {', '.join(sorted(unknown))}; there are {', '.join(ORACLES)}")
    return names


def absent(oracle: str, reason: str) -> NoReturn:
    """End the running test because ``oracle`` is not there: skipped, or failed if that oracle is required."""
    assert oracle in ORACLES, oracle
    if oracle in required_oracles():
        pytest.fail(f"{reason}, and {VARIABLE} requires {oracle}: {ORACLES[oracle]}", pytrace=False)
    pytest.skip(reason)


def node_package(name: str) -> Path:
    """The folder of a package of ``tests/compat/node``; ends the running test if it is not installed."""
    folder = Path(__file__).parent / "compat" / "node" / "node_modules" / name
    if not folder.exists() or shutil.which("node") is None:
        absent("node", f"{name} is not installed")
    return folder
