"""``scripts/check --changed`` runs the tests near a change, and no more than a developer waits for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts import changed
from scripts.changed import TESTS_OF, all_tests, changed_paths, needed_tests, starting_with

ROOT = Path(__file__).parent.parent

PACKAGES = sorted(
    f"{path.parent.relative_to(ROOT).as_posix()}/"
    for top in ("trio_broker", "protocol/kafka_wire", "admin/broker_admin")
    for path in (ROOT / top).glob("*/__init__.py")
)


def needed(*paths: str) -> set[str]:
    return {path.as_posix() for path in needed_tests(paths)}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_change_in_a_package_needs_some_tests_and_not_all(package: str) -> None:
    assert 0 < len(needed(f"{package}module.py")) < len(list(all_tests())) / 3


@pytest.mark.parametrize("package", ["handlers", "network", "storage"])
def test_a_change_in_the_broker_needs_its_own_tests_and_neither_spark_nor_node_nor_kafkas_jars(package: str) -> None:
    tests = needed(f"trio_broker/{package}/module.py")
    assert starting_with((f"{package}/",)) <= set(map(Path, tests))
    assert {path for path in tests if path.startswith(("spark/", "compat/"))} <= {
        *(f"compat/test_{name}.py" for name in ("confluent_kafka", "kafka_python", "group_admin_python"))
    }


@pytest.mark.parametrize("prefix", sorted({prefix for prefixes in TESTS_OF.values() for prefix in prefixes}))
def test_every_beginning_of_a_path_in_the_table_is_that_of_a_test(prefix: str) -> None:
    assert starting_with((prefix,))


@pytest.mark.parametrize("path", [path for path in TESTS_OF if path])
def test_every_changed_path_in_the_table_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_a_change_needs_the_tests_of_modules_that_import_what_has_changed() -> None:
    assert "broker_view/test_segment_view.py" in needed("trio_broker/partition/local_topics.py"), "by its view"
    assert "network/test_processor.py" not in needed("trio_broker/partition/local_topics.py")


def test_a_changed_test_is_run_itself() -> None:
    assert needed("tests/storage/test_log.py") == {"storage/test_log.py"}


def test_a_test_that_was_deleted_is_not_run() -> None:
    assert needed("tests/storage/test_that_is_gone.py") == set()


def test_a_helper_of_the_tests_needs_those_that_import_it_also_by_way_of_others() -> None:
    tests = needed("tests/handlers/handler_client.py")
    assert "handlers/test_fetch.py" in tests, "by tests/handlers/conftest.py"
    assert "test_broker.py" in tests, "by tests/running_broker.py"
    assert "protocol/test_codec.py" not in tests


def test_what_is_shared_by_all_needs_all() -> None:
    everything = {path.as_posix() for path in all_tests()}
    assert needed("pyproject.toml") == needed("tests/conftest.py") == everything


def test_recorded_answers_need_the_tests_of_their_folder() -> None:
    assert needed("tests/protocol/golden_frames.json") == {
        path.as_posix() for path in all_tests() if path.parts[0] == "protocol"
    }


def test_what_was_committed_on_the_branch_what_was_not_and_what_is_new_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed, "ROOT", tmp_path)

    def git(*arguments: str) -> None:
        names = ("-c", "user.name=n", "-c", "user.email=e@example.org")
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(name: str) -> None:
        (tmp_path / name).write_text(name)
        git("add", name)
        git("commit", "-m", name)

    git("init", "--initial-branch", "main")
    for name in ("old", "edited"):
        commit(name)
    git("branch", "work")
    commit("by others")
    git("checkout", "work")
    commit("committed")
    (tmp_path / "edited").write_text("other")
    (tmp_path / "new").write_text("new")
    assert sorted(changed_paths()) == ["committed", "edited", "new"]
    assert sorted(changed_paths("HEAD")) == ["edited", "new"]
