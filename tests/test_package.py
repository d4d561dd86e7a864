"""What is published: an sdist and a wheel built from it hold everything, and work where there is no source tree.

The wheel is installed into a new environment that sees the dependencies of this one, so no index is asked.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import attrs
import httpx
import pytest
from kafka import KafkaConsumer, KafkaProducer

from tests.archives import unpack
from trio_broker.testing import BrokerProcess

ROOT = Path(__file__).parents[1]
SECONDS = 120.0
PACKAGES = {"trio_broker": "trio_broker", "protocol/kafka_wire": "kafka_wire", "admin/broker_admin": "broker_admin"}
"""The folders of the repository that are packages, and their names in a wheel."""

WITHOUT_TREE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*command: str | Path, directory: Path) -> str:
    completed = subprocess.run(
        command, cwd=directory, env=WITHOUT_TREE, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@attrs.define
class InstalledBroker(BrokerProcess):
    """A broker of the ``trio-broker`` command of another environment."""

    program: Path = Path("trio-broker")

    def command(self) -> list[str]:
        return [str(self.program), *super().command()[3:]]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, directory=ROOT)
    (found,) = folder.glob("*.tar.gz")
    return found


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the sdist alone gives."""
    folder = tmp_path_factory.mktemp("wheel")
    unpack(sdist, folder)
    (tree,) = folder.iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, directory=tree)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``trio-broker`` in a new environment, which sees what is installed beside this interpreter."""
    folder = tmp_path_factory.mktemp("installed")
    # Without a pip of its own, which would take longer to install than all the rest: that of this environment serves.
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    seen = {
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        *(p for p in sys.path if "site-packages" in p),
    }
    (packages / "dependencies.pth").write_text("\n".join(sorted(seen)) + "\n", encoding="utf-8")
    python = folder / "bin" / "python"
    how = ("--no-index", "--no-deps", "--no-compile", "--ignore-installed", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", *how, wheel, directory=folder)
    return folder / "bin" / "trio-broker"


def test_an_installed_broker_serves_clients_and_its_page(program, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with InstalledBroker(tmp_path / "data", program=program) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            assert producer.send("greetings", b"hello").get(timeout=SECONDS).offset == 0
        place = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
        with KafkaConsumer("greetings", **place) as consumer:
            assert next(consumer).value == b"hello"
        assert httpx.get(f"{broker.admin_url}topics").status_code == 200
        assert httpx.get(f"{broker.admin_url}static/page.css").status_code == 200
        assert broker.stop() == 0


def test_the_installed_modules_are_not_those_of_the_tree(program, tmp_path):
    script = "import broker_admin as a, kafka_wire as k, trio_broker as t; print(a.__file__, k.__file__, t.__file__)"
    files = run(program.parent / "python", "-c", script, directory=tmp_path).split()
    assert [str(program.parent.parent) in file for file in files] == [True] * 3


def test_the_fixtures_of_pytest_come_with_the_package(program, tmp_path):
    script = (
        "from importlib.metadata import distribution as d;"
        "(plugin,) = d('trio-broker').entry_points.select(group='pytest11'); print(plugin.load().__file__)"
    )
    (file,) = run(program.parent / "python", "-c", script, directory=tmp_path).split()
    assert file.startswith(str(program.parent.parent))


def test_the_wheel_has_every_file_of_its_packages_and_the_licence(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [
        (name, path.relative_to(ROOT / folder))
        for folder, name in PACKAGES.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and "discovery" not in path.parts
    ]
    assert {f"{name}/{path.as_posix()}" for name, path in files} - held == set()
    assert {f"{name}/py.typed" for name in PACKAGES.values()} <= held
    (licence,) = (name for name in held if name.endswith(".dist-info/licenses/LICENSE"))
    assert zipfile.ZipFile(wheel).read(licence) == (ROOT / "LICENSE").read_bytes()


def test_the_sdist_has_licence_tests_and_documents(sdist):
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    expected = {
        "LICENSE",
        "CHANGELOG.md",
        "README.md",
        "scripts/index_readme.py",
        "tests/test_package.py",
        "docs/README.md",
    }
    assert expected - held == set()


def test_the_description_has_no_link_that_needs_the_repository(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = archive.read(name).decode()
    assert "License-Expression: Apache-2.0\nLicense-File: LICENSE\n" in metadata
    assert "\n# trio-broker\n" in metadata
    assert "](docs/" not in metadata
