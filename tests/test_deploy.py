"""The files of ``deploy/`` fit the broker: options, settings, ports, paths, probes, users and times.

What needs a tool (systemd's own check of a unit) is an oracle; the rest is read here, without any. The rules for
Prometheus have their tests in ``admin/test_prometheus_alerts.py``.
"""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import click
import pytest
import yaml
from click.testing import CliRunner

from broker_admin.authentication import OPEN_PATHS
from broker_admin.routes.health import ROUTES
from tests.oracles import absent
from trio_broker.cli import main
from trio_broker.cli.declarations import GivenTexts, read_declarations
from trio_broker.cli.log_output import LogFormat
from trio_broker.cli.ready import admin_address
from trio_broker.cli.start import configured, given_options
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.declaration.declaration import Declaration
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
IMAGE_ENVIRONMENT = dict(word.split("=", maxsplit=1) for word in instruction("ENV").split())


@attrs.frozen
class Start:
    """What a start with some arguments and variables does, all of which it has to know."""

    config: BrokerConfig
    declaration: Declaration


def started(
    arguments: list[str], environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, file: Path | None = None
) -> Start:
    """What is started; ``file`` stands for the one that ``TRIO_BROKER_DECLARE`` names."""
    for name, value in environment.items():
        if name.startswith("TRIO_BROKER_"):
            monkeypatch.setenv(name, value)
    program, command, *rest = arguments
    assert (program, command) == ("trio-broker", "start")
    start = main.get_command(click.Context(main), "start")
    assert start is not None
    context = start.make_context("start", rest)
    values = context.params
    config = configured(values["config_file"], values["overrides"], given_options(context), LogFormat.TEXT)
    assert (file is None) == (values["declaration_file"] is None)
    return Start(config, read_declarations(file, GivenTexts(values["declared_topics"], "--topic")))


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def compose() -> dict[str, Any]:
    (document,) = documents("compose.yaml")
    return document


def manifest(kind: str) -> dict[str, Any]:
    (found,) = (each for each in documents("statefulset.yaml") if each["kind"] == kind)
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


def test_the_image_serves_on_the_ports_it_exposes_as_a_user_without_rights(monkeypatch):
    config = started(ENTRYPOINT, IMAGE_ENVIRONMENT, monkeypatch).config
    exposed = instruction("EXPOSE").split()
    assert exposed == [
        config.socket_server.listeners[0].rpartition(":")[2],
        config.node.admin_listener.rpartition(":")[2],
    ]
    assert instruction("USER") == "10001:10001"
    assert instruction("VOLUME") == STATE
    assert [Path(each).parent for each in config.node.log_dirs] == [Path(STATE)]


def test_the_image_takes_further_options(monkeypatch):
    """As in ``podman run trio-broker --topic orders:12``."""
    found = started([*ENTRYPOINT, "--topic", "orders:12"], IMAGE_ENVIRONMENT, monkeypatch)
    assert [topic.name for topic in found.declaration.topics] == ["orders"]


def test_the_health_check_is_a_command_of_ours():
    words = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    assert words[0] == "trio-broker"
    assert main.get_command(click.Context(main), words[1]) is not None
    assert words[2:] == []


# --- the fields of compose and Kubernetes


MANY = {"*": str}
PROBE = {
    "httpGet": {"path": str, "port": str, "httpHeaders": [{"name": str, "value": str}]},
    **dict.fromkeys(("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold"), int),
}
METADATA = {"name": str, "labels": MANY, "namespace": str}
CONTAINER = {
    "name": str,
    "image": str,
    "args": [str],
    "env": [{"name": str, "value": str}],
    "ports": [{"name": str, "containerPort": int}],
    "livenessProbe": PROBE,
    "readinessProbe": PROBE,
    "resources": {"requests": MANY, "limits": MANY},
    "securityContext": {
        "allowPrivilegeEscalation": bool,
        "readOnlyRootFilesystem": bool,
        "capabilities": {"drop": [str]},
    },
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool}],
}
POD = {
    "terminationGracePeriodSeconds": int,
    "automountServiceAccountToken": bool,
    "enableServiceLinks": bool,
    "securityContext": {
        "runAsNonRoot": bool,
        **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), int),
        "fsGroupChangePolicy": str,
        "seccompProfile": {"type": str},
    },
    "containers": [CONTAINER],
    "volumes": [{"name": str, "configMap": {"name": str}}],
}
FIELDS: Final[dict[str, Any]] = {
    "Service": {
        "clusterIP": str,
        "publishNotReadyAddresses": bool,
        "selector": MANY,
        "ports": [{"name": str, "port": int, "targetPort": str}],
    },
    "StatefulSet": {
        "serviceName": str,
        "replicas": int,
        "selector": {"matchLabels": MANY},
        "template": {"metadata": METADATA, "spec": POD},
        "volumeClaimTemplates": [
            {"metadata": METADATA, "spec": {"accessModes": [str], "resources": {"requests": MANY}}},
        ],
    },
}
COMPOSE: Final = {
    "services": {
        "*": {
            "build": {"context": str, "dockerfile": str},
            "image": str,
            "command": [str],
            "environment": MANY,
            "ports": [str],
            "volumes": [str],
            "restart": str,
            "stop_grace_period": str,
            "ulimits": {"nofile": int},
            "depends_on": {"*": {"condition": str}},
        }
    },
    "volumes": {"*": type(None)},
}
"""The fields that are used, with their types as the references of Kubernetes and of compose give them. Another one is
refused until somebody has looked it up there, and so is a number where YAML was to read a text."""


def misfits(value: Any, fields: Any, path: str) -> list[str]:
    if isinstance(fields, dict):
        if not isinstance(value, dict):
            return [f"{path} is no mapping"]
        return [
            found
            for key, each in value.items()
            for found in (
                misfits(each, fields.get(key, fields.get("*")), f"{path}.{key}")
                if key in fields or "*" in fields
                else [f"{path}.{key} is unknown"]
            )
        ]
    if isinstance(fields, list):
        if not isinstance(value, list):
            return [f"{path} is no list"]
        return [found for each in value for found in misfits(each, fields[0], f"{path}[]")]
    return [] if type(value) is fields else [f"{path} is {value!r}, no {fields.__name__}"]


def test_compose_has_fields_of_compose_alone():
    assert misfits(compose(), COMPOSE, "compose") == []


def test_the_manifest_has_fields_of_kubernetes_alone():
    versions = {"Service": "v1", "ConfigMap": "v1", "StatefulSet": "apps/v1"}
    found = {document["kind"]: document["apiVersion"] for document in documents("statefulset.yaml")}
    assert found == versions
    for document in documents("statefulset.yaml"):
        kind = document["kind"]
        body = {"data": MANY} if kind == "ConfigMap" else {"spec": FIELDS[kind]}
        assert misfits(document, {"apiVersion": str, "kind": str, "metadata": METADATA, **body}, kind) == []


def test_a_misspelt_field_and_a_number_for_a_text_are_found():
    assert misfits({"spec": {"replica": 1}}, {"spec": {"replicas": int}}, "StatefulSet") == [
        "StatefulSet.spec.replica is unknown"
    ]
    assert misfits({"value": 9092}, {"value": str}, "env") == ["env.value is 9092, no str"]


# --- compose


def test_compose_starts_the_broker_with_topics_and_an_address_for_each_side(monkeypatch):
    service = compose()["services"]["broker"]
    found = started(ENTRYPOINT, {**IMAGE_ENVIRONMENT, **service["environment"]}, monkeypatch)
    config = found.config
    assert config.socket_server.advertised_listeners == ("INSIDE://broker:29092", "OUTSIDE://localhost:9092")
    assert config.node.admin_token_file.startswith(STATE)
    assert {topic.name for topic in found.declaration.topics} == {"orders", "payments"}
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


def test_the_manifest_starts_the_broker_at_the_address_of_its_pod(monkeypatch, tmp_path):
    service, stateful = manifest("Service"), manifest("StatefulSet")
    pod = stateful["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    declared = manifest("ConfigMap")["data"]
    (volume,) = pod["spec"]["volumes"]
    assert volume["configMap"]["name"] == manifest("ConfigMap")["metadata"]["name"]
    assert Path(variables["TRIO_BROKER_DECLARE"]).name in declared
    (tmp_path / "topics.toml").write_text(declared["topics.toml"])
    found = started(ENTRYPOINT, {**IMAGE_ENVIRONMENT, **variables}, monkeypatch, tmp_path / "topics.toml")
    config = found.config
    assert [topic.name for topic in found.declaration.topics] == ["orders"]
    name, headless = stateful["metadata"]["name"], service["metadata"]["name"]
    assert config.socket_server.advertised_listeners == (f"PLAINTEXT://{name}-0.{headless}:9092",)
    assert stateful["spec"]["serviceName"] == headless
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == stateful["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]} == ports
    assert pod["spec"]["terminationGracePeriodSeconds"] > GRACE_SECONDS
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
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounted[claim["metadata"]["name"]] == STATE
    assert mounted.keys() == {claim["metadata"]["name"], *(each["name"] for each in pod["volumes"])}


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


def test_the_unit_starts_the_broker_in_its_state_directory(unit, monkeypatch):
    service = unit["Service"]
    program, *arguments = service["ExecStart"].split()
    config = started([Path(program).name, *arguments], {}, monkeypatch).config
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


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({}, "127.0.0.1:9644"),
        ({"TRIO_BROKER_ADMIN_PORT": "25001"}, "127.0.0.1:25001"),
        ({"TRIO_BROKER_ADMIN_PORT": "tcp://10.0.0.1:9644"}, "127.0.0.1:9644"),
        ({"TRIO_BROKER_ADMIN_HOST": "10.0.0.7"}, "10.0.0.7:9644"),
        ({"TRIO_BROKER_ADMIN_HOST": "::"}, "[::1]:9644"),
        ({"TRIO_BROKER_ADMIN_LISTENER": "0.0.0.0:25001"}, "127.0.0.1:25001"),
        ({"TRIO_BROKER_ADMIN_LISTENER": "[::]:25001"}, "[::1]:25001"),
    ],
)
def test_ready_asks_where_the_environment_has_the_broker_listen(environment, address):
    assert admin_address(environment) == address


def test_ready_says_which_port_it_does_not_understand():
    result = CliRunner(env={"TRIO_BROKER_ADMIN_PORT": "many"}).invoke(main, ["ready"])
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, "Error: '127.0.0.1:many' is not host:port")


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
