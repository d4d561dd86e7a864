"""Spark's Python processes take PySpark from the installed package, compiled, and not from its archive of sources."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trio_broker.spark.workarounds import spark_home
from trio_broker.spark.workarounds.spark_home import linked_home, use_compiled_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PySpark as pip installs it."""
    package = tmp_path / "site-packages" / "pyspark"
    for name in ("__init__.py", "bin/spark-submit", "python/lib/py4j-1-src.zip", "python/lib/pyspark.zip"):
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    py4j = tmp_path / "site-packages" / "py4j"
    py4j.mkdir()
    installed = {"pyspark": package, "py4j": py4j}
    monkeypatch.setattr(spark_home, "installed_package", installed.get)
    monkeypatch.setattr(importlib.metadata, "version", {"py4j": "1"}.get)
    return package


def test_the_home_has_all_that_the_package_has_and_its_modules_in_place_of_their_archive(
    package: Path, tmp_path: Path
) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    use_compiled_pyspark(environment)
    home = Path(environment["SPARK_HOME"])

    assert home.is_relative_to(tmp_path / "cache")
    assert (home / "bin" / "spark-submit").samefile(package / "bin" / "spark-submit")
    for archive, linked in (("pyspark.zip", package), ("py4j-1-src.zip", package.parent / "py4j")):
        [module] = (home / "python" / "lib" / archive).iterdir()
        assert module.name == linked.name
        assert module.samefile(linked)


@pytest.mark.parametrize("installed", ["2", None])
def test_an_archive_of_py4j_that_is_not_the_installed_one_stays(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str | None
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: installed)
    if installed is None:
        monkeypatch.setattr(spark_home, "installed_package", {"pyspark": package}.get)

    archive = linked_home(package, tmp_path) / "python" / "lib" / "py4j-1-src.zip"
    assert archive.samefile(package / "python" / "lib" / "py4j-1-src.zip")


def test_a_home_is_made_once_and_completed_where_a_link_is_missing(package: Path, tmp_path: Path) -> None:
    home = linked_home(package, tmp_path)
    (home / "bin").unlink()
    kept = (home / "__init__.py").lstat().st_ino

    assert linked_home(package, tmp_path) == home
    assert (home / "bin").samefile(package / "bin")
    assert (home / "__init__.py").lstat().st_ino == kept


def test_what_comes_into_the_package_later_is_in_its_home(package: Path, tmp_path: Path) -> None:
    before = linked_home(package, tmp_path)
    (package / "conf").mkdir()
    (package / "conf" / "spark-defaults.conf").write_text("spark.driver.memory 2g")

    assert (linked_home(package, tmp_path) / "conf" / "spark-defaults.conf").exists()
    assert not (before / "conf").exists()


def test_a_home_that_is_named_is_left_as_it_is(package: Path) -> None:
    environment = {"SPARK_HOME": "/opt/spark", "PYSPARK_PYTHON": "/opt/python"}
    use_compiled_pyspark(environment)

    assert environment == {"SPARK_HOME": "/opt/spark", "PYSPARK_PYTHON": "/opt/python"}


def test_tasks_run_in_the_python_of_the_program(package: Path, tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    use_compiled_pyspark(environment)

    assert environment["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize("missing", ["the package", "its archive", "a cache that can be written to"])
def test_without_what_it_takes_spark_finds_its_home_by_itself(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    cache = tmp_path / "cache"
    match missing:
        case "the package":
            monkeypatch.setattr(spark_home, "installed_package", lambda _: None)
        case "its archive":
            (package / "python" / "lib" / "pyspark.zip").unlink()
        case _:
            cache.touch()
    environment = {"XDG_CACHE_HOME": str(cache)}
    use_compiled_pyspark(environment)

    assert "SPARK_HOME" not in environment


@pytest.mark.spark
def test_a_worker_imports_the_installed_packages(spark: SparkSession) -> None:
    def origins(_: int) -> tuple[str, str]:
        import py4j.version
        import pyspark.worker

        return str(pyspark.worker.__file__), str(py4j.version.__file__)

    [origin] = spark.sparkContext.parallelize([0], 1).map(origins).collect()
    for path, name, module in zip(origin, ("pyspark", "py4j"), ("worker.py", "version.py"), strict=True):
        installed = spark_home.installed_package(name)
        assert installed is not None
        assert Path(path).samefile(installed / module)
