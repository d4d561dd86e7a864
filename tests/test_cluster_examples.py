"""The files of ``examples/cluster/`` fit the broker and etcd: settings, ports, options, and the order of stops."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.oracles import absent
from tests.test_deploy import (
    COMPOSE,
    CONTAINERFILE,
    ENTRYPOINT,
    GRACE_SECONDS,
    IMAGE_ENVIRONMENT,
    STATE,
    Unit,
    misfits,
    seconds,
    started,
)
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import inter_broker_listener
from trio_broker.config.metadata_store_config import etcd_location

CLUSTER = Path(__file__).parents[1] / "examples" / "cluster"
BROKERS = (1, 2, 3)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((CLUSTER / "compose.yaml").read_text(encoding="utf-8"))
    return {key: value for key, value in document.items() if not key.startswith("x-")}


def unit(name: str, instance: str = "") -> Unit:
    """A unit, for one instance of a template. Of a key with several lines the last one counts here."""
    text = (CLUSTER / name).read_text(encoding="utf-8").replace("%i", instance)
    lines = re.findall(r"^Environment=(.*)$", text, re.MULTILINE)
    text = re.sub(r"^Environment=.*\n", "", text, flags=re.MULTILINE)
    parser = Unit()
    parser.read_string(text)
    parser["Service"]["Environment"] = " ".join(lines)
    return parser


def flags(command: str) -> set[str]:
    return set(re.findall(r"--[a-z-]+", command))


def require_cluster(configs: dict[int, BrokerConfig]) -> None:
    """That the brokers are those of one cluster."""
    assert {node_id: config.node.node_id for node_id, config in configs.items()} == {each: each for each in BROKERS}
    assert len({config.metadata_store for config in configs.values()}) == 1
    assert {config.log.min_insync_replicas for config in configs.values()} == {2}
    assert {config.request.default_replication_factor for config in configs.values()} == {3}


# --- compose


def test_compose_has_fields_of_compose_alone(compose):
    assert misfits(compose, COMPOSE, "compose") == []


def test_compose_starts_three_brokers_of_one_cluster(compose, monkeypatch):
    configs = {}
    for node_id in BROKERS:
        service = compose["services"][f"broker-{node_id}"]
        config = started(ENTRYPOINT, {**IMAGE_ENVIRONMENT, **service["environment"]}, monkeypatch).config
        configs[node_id] = config
        outside = f"909{node_id}"
        assert config.socket_server.advertised_listeners == (
            f"INSIDE://broker-{node_id}:29092",
            f"OUTSIDE://localhost:{outside}",
        )
        assert inter_broker_listener(config.socket_server) == "INSIDE"
        assert service["ports"][0] == f"127.0.0.1:{outside}:9092"
        assert service["volumes"] == [f"data-{node_id}:{STATE}"]
        assert seconds(service["stop_grace_period"]) > GRACE_SECONDS
        assert (CLUSTER / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == CONTAINERFILE
    require_cluster(configs)
    [(host, port)] = etcd_location(configs[1].metadata_store.metadata_store).endpoints
    assert f"--advertise-client-urls=http://{host}:{port}" in compose["services"][host]["command"]
    mounted = [volume for each in compose["services"].values() for volume in each.get("volumes", ())]
    assert {each.partition(":")[0] for each in mounted} == set(compose["volumes"])


# --- systemd


def test_the_units_start_three_brokers_of_one_cluster(monkeypatch):
    configs, ports = {}, set()
    for node_id in BROKERS:
        service = unit("trio-broker@.service", str(node_id))["Service"]
        program, *arguments = service["ExecStart"].split()
        variables = dict(each.split("=", maxsplit=1) for each in service["Environment"].split())
        config = configs[node_id] = started([Path(program).name, *arguments], variables, monkeypatch).config
        assert [Path(each).parent for each in config.node.log_dirs] == [Path("/var/lib") / service["StateDirectory"]]
        assert float(service["TimeoutStopSec"]) > GRACE_SECONDS
        ports |= {config.socket_server.listeners[0].rpartition(":")[2], config.node.admin_listener.rpartition(":")[2]}
    assert len(ports) == 2 * len(BROKERS)
    require_cluster(configs)
    [(host, port)] = etcd_location(configs[1].metadata_store.metadata_store).endpoints
    etcd = unit("trio-broker-etcd.service")["Service"]
    assert f"--listen-client-urls http://{host}:{port}" in etcd["ExecStart"]
    assert f"--data-dir /var/lib/{etcd['StateDirectory']}/" in etcd["ExecStart"]


def test_brokers_stop_before_their_etcd():
    """Each hands over what it leads by way of it."""
    assert "trio-broker-etcd.service" in unit("trio-broker@.service", "1")["Unit"]["After"].split()


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path):
    if shutil.which("systemd-analyze") is None:
        absent("systemd", "there is no systemd-analyze")
    for name in ("trio-broker@.service", "trio-broker-etcd.service"):
        # The program is looked up, so that of this environment stands for the installed one.
        text = (CLUSTER / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", text))
    units = [str(tmp_path / name) for name in ("trio-broker@1.service", "trio-broker-etcd.service")]
    (tmp_path / "trio-broker@1.service").write_text((tmp_path / "trio-broker@.service").read_text())
    completed = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60, check=False
    )
    assert [line for line in completed.stderr.splitlines() if "trio-broker" in line] == []


# --- etcd


def test_etcd_has_the_options_that_it_is_started_with(compose):
    if shutil.which("etcd") is None:
        absent("etcd", "there is no etcd")
    completed = subprocess.run(["etcd", "--help"], capture_output=True, text=True, timeout=60, check=False)
    used = flags(unit("trio-broker-etcd.service")["Service"]["ExecStart"])
    used |= flags(" ".join(compose["services"]["etcd"]["command"]))
    assert "--auto-compaction-retention" in used
    assert used - flags(completed.stdout + completed.stderr) == set()
