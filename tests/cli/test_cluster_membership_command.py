"""``cluster join`` and ``leave``: where they have their settings from. What they do is shown on a real etcd, in
``tests/test_cluster_membership.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from trio_broker.cli import main

NOWHERE = "etcd://127.0.0.1:1"


@pytest.mark.parametrize("variable", ["TRIO_BROKER_DATA_DIR", "TRIO_BROKER_CONFIG"])
def test_the_variables_of_a_start_say_where_the_metadata_are(tmp_path: Path, variable: str) -> None:
    directory, settings = tmp_path / "data", tmp_path / "server.properties"
    settings.write_text(f"log.dirs={directory}\n")
    value = directory if variable == "TRIO_BROKER_DATA_DIR" else settings
    result = CliRunner().invoke(main, ["cluster", "join", NOWHERE], env={variable: str(value)})
    assert f"{directory} has no metadata" in result.output
