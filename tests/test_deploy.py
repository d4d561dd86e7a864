"""The files of ``deploy/`` fit the broker: options, settings, ports, paths, probes, users and times.

What needs a tool (systemd's own check of a unit) is an oracle; the rest is read here, without any.
"""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from broker_admin.authentication import OPEN_PATHS
from broker_admin.routes.health import ROUTES
from tests.oracles import absent
from trio_broker.cli import main
from trio_broker.cli.start import configured
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.testing import BrokerProcess

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = DEPLOY / "Containerfile"
STATE = "/var/lib/trio-broker"
GRACE_SECONDS = BrokerConfig({}).node.shutdown_grace_ms / 1000


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, lines that a backslash joins as one."""
    lines = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = lines.replace("\\\n", " ")
    return [(name, text.strip()) for name, _, text in (line.partition(" ") for line in lines.splitlines() if line)]


def instruction(name: str) -> str:
    """The last instruction of that name, which is the one in force."""
    return [text for each, text in instructions() if each == name][-1]


ENTRYPOINT: list[str] = json.loads(instruction("ENTRYPOINT"))


def settings_of(arguments: list[str]) -> BrokerConfig:
    """The configuration of ``trio-broker start`` with these arguments, all of which it has to know."""
    program, command, *rest = arguments
    assert (program, command) == ("trio-broker", "start")
    start = main.get_command(click.Context(main), "start")
    assert start is not None
    values = start.make_context("start", rest).params
    names = ("config_file", "overrides", "data_dir", "port", "admin_port")
    return configured(*(values[name] for name in names))


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def manifest(kind: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "statefulset.yaml").read_text(encoding="utf-8"))
    (found,) = (each for each in documents if each["kind"] == kind)
    return found


def seconds(text: str) -> float:
    assert text.endswith("s")
    return float(text[:-1])


# --- the image


def test_what_the_image_copies_is_there():
    copied = [text.split() for name, text in instructions() if name == "COPY" and not text.startswith("--from")]
    assert copied
    assert [source for *sources, _ in copied for source in sources if not (ROOT / source).exists()] == []


def test_the_image_has_all_that_its_package_is_built_from():
    copied = {source for name, text in instructions() if name == "COPY" for source in text.split()[:-1]}
    assert {"pyproject.toml", "README.md", "LICENSE", "scripts/index_readme.py"} <= copied
    assert {"trio_broker", "protocol", "admin"} <= copied


def test_the_image_serves_on_the_ports_it_exposes_as_a_user_without_rights():
    config = settings_of([*ENTRYPOINT, *json.loads(instruction("CMD"))])
    exposed = instruction("EXPOSE").split()
    assert exposed == [
        config.socket_server.listeners[0].rpartition(":")[2],
        config.node.admin_listener.rpartition(":")[2],
    ]
    assert instruction("USER") == "10001:10001"
    assert instruction("VOLUME") == STATE
    assert [Path(each).parent for each in config.node.log_dirs] == [Path(STATE)]


def test_the_health_check_is_a_command_of_ours():
    words = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    assert words[0] == "trio-broker"
    assert main.get_command(click.Context(main), words[1]) is not None
    assert words[2:] == []


# --- compose


def test_compose_starts_the_broker_with_an_address_for_each_side():
    service = compose()["services"]["broker"]
    config = settings_of([*ENTRYPOINT, *service["command"]])
    assert "INSIDE://broker:29092" in config.socket_server.advertised_listeners
    assert "OUTSIDE://localhost:9092" in config.socket_server.advertised_listeners
    assert config.node.admin_token_file.startswith(STATE)
    published = [each.rpartition(":")[2] for each in service["ports"]]
    assert published == ["9092", config.node.admin_listener.rpartition(":")[2]]
    assert all(each.startswith("127.0.0.1:") for each in service["ports"])
    assert seconds(service["stop_grace_period"]) > GRACE_SECONDS
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == CONTAINERFILE


def test_the_client_of_compose_uses_the_inner_address_once_the_broker_is_healthy():
    file = compose()
    client = file["services"]["client"]
    assert client["depends_on"] == {"broker": {"condition": "service_healthy"}}
    assert client["command"][:2] == ["-b", "broker:29092"]
    assert [each.partition(":")[0] for each in file["services"]["broker"]["volumes"]] == list(file["volumes"])


# --- Kubernetes


def test_the_manifest_starts_the_broker_at_the_address_of_its_pod():
    service, stateful = manifest("Service"), manifest("StatefulSet")
    pod = stateful["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    config = settings_of([*ENTRYPOINT, *container["args"]])
    name, headless = stateful["metadata"]["name"], service["metadata"]["name"]
    assert config.socket_server.advertised_listeners == (f"PLAINTEXT://{name}-0.{headless}:9092",)
    assert stateful["spec"]["serviceName"] == headless
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == stateful["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]} == ports
    assert pod["spec"]["terminationGracePeriodSeconds"] > GRACE_SECONDS
    # Variables such as TRIO_BROKER_PORT=tcp://… of a service with this name would be read as settings.
    assert pod["spec"]["enableServiceLinks"] is False


def test_the_probes_ask_paths_that_need_no_token():
    (container,) = manifest("StatefulSet")["spec"]["template"]["spec"]["containers"]
    probes = {kind: container[kind]["httpGet"] for kind in ("livenessProbe", "readinessProbe")}
    assert {kind: probe["path"] for kind, probe in probes.items()} == {
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    paths = {probe["path"] for probe in probes.values()}
    assert paths <= {route.path for route in ROUTES}
    assert paths <= OPEN_PATHS
    assert all(probe["httpHeaders"] == [{"name": "Host", "value": "localhost"}] for probe in probes.values())


def test_the_pod_is_the_user_of_the_image_on_a_volume_of_its_own():
    stateful = manifest("StatefulSet")["spec"]
    pod = stateful["template"]["spec"]
    (container,) = pod["containers"]
    user = int(instruction("USER").partition(":")[0])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert {pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {user}
    (claim,) = stateful["volumeClaimTemplates"]
    assert container["volumeMounts"] == [{"name": claim["metadata"]["name"], "mountPath": STATE}]


# --- systemd


class Unit(configparser.RawConfigParser):
    """A unit file, whose keys are names in capitals."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


@pytest.fixture
def unit() -> Unit:
    parser = Unit()
    parser.read(DEPLOY / "trio-broker.service", encoding="utf-8")
    return parser


def test_the_unit_starts_the_broker_in_its_state_directory(unit):
    service = unit["Service"]
    program, *arguments = service["ExecStart"].split()
    config = settings_of([Path(program).name, *arguments])
    assert service["Type"] == "notify"
    assert [Path(each).parent for each in config.node.log_dirs] == [Path("/var/lib") / service["StateDirectory"]]
    assert float(service["TimeoutStopSec"]) > GRACE_SECONDS
    assert int(service["LimitNOFILE"]) > 4096
    assert float(service["WatchdogSec"]) > 10


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        absent("systemd", "there is no systemd-analyze")
    # The program is looked up, so that of this environment stands for the installed one.
    text = (DEPLOY / "trio-broker.service").read_text(encoding="utf-8")
    copy = tmp_path / "trio-broker.service"
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable} -m trio_broker", text))
    completed = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    assert [line for line in completed.stderr.splitlines() if copy.name in line] == []


# --- the command of the health check


def test_ready_says_so_and_exits_with_0_while_clients_are_served(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        address = broker.admin_url.removeprefix("http://").rstrip("/")
        result = CliRunner().invoke(main, ["ready", "--admin", address])
        assert (result.exit_code, result.output) == (0, "ready\n")
    result = CliRunner().invoke(main, ["ready", "--admin", address])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"trio-broker: nothing answers at http://{address}/readyz: ")
    assert result.stderr.count("\n") == 1


def test_a_data_directory_without_rights_is_one_line_and_exit_code_1(tmp_path):
    """As in a container whose volume belongs to another user."""
    directory = tmp_path / "volume"
    directory.mkdir(mode=0o500)
    command = [sys.executable, "-m", "trio_broker", "start", "--data-dir", str(directory / "data"), "--port", "0"]
    completed = subprocess.run(
        [*command, "--admin-port", "0", "--log-level", "ERROR"],
        preexec_fn=drop_rights,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert completed.returncode == 1
    (line,) = completed.stderr.splitlines()
    assert line.startswith("trio-broker: ")
    assert "Permission denied" in line
    assert str(directory) in line


def drop_rights() -> None:
    """Take from root what makes it write where no one may; another user has nothing of it."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    for capability in (0, 1, 2, 3):  # CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
        library.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
