"""Functions that numba compiles once: found by what they are, wherever they lie."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
import pytest
from numba import njit
from numba.core import config

from tests.waits import communicate
from trio_broker.spark.code_cache import CodeCache
from trio_broker.spark.machine_code import compiled, digest_of

SIGNATURE = "int64(int64)"

MODULE = """
import json
from pathlib import Path
from numba import njit
from trio_broker.spark.code_cache import CodeCache
from trio_broker.spark.machine_code import compiled

FACTOR = {factor}

@njit
def times(number):
    return FACTOR * number

@compiled("int64(int64)", cache=CodeCache((Path({cache!r}),)))
def product(number):
    return times(number)

print(json.dumps([product(14), "loaded" if product.stats.cache_hits else "compiled"]))
"""


def started(directory: Path, cache: Path, *, factor: int = 3) -> subprocess.Popen[str]:
    """Import a module out of an archive in ``directory``."""
    directory.mkdir()
    with zipfile.ZipFile(directory / "job.zip", "w") as archive:
        archive.writestr("product.py", MODULE.format(factor=factor, cache=str(cache)))
    program = f"import sys; sys.path[:] = {[str(directory / 'job.zip'), *sys.path]}; import product"
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> Any:
    output, _ = communicate(process, 120)
    assert process.returncode == 0
    return json.loads(output)


def test_of_processes_that_start_at_once_one_compiles_though_each_has_an_archive_of_its_own(tmp_path: Path) -> None:
    processes = [started(tmp_path / f"container-{number}", tmp_path / "cache") for number in range(2)]

    assert sorted(answer(each) for each in processes) == [[42, "compiled"], [42, "loaded"]]


def test_a_change_of_what_a_function_refers_to_is_compiled_beside_the_other(tmp_path: Path) -> None:
    runs = [
        answer(started(tmp_path / f"{number}", tmp_path / "cache", factor=factor))
        for number, factor in enumerate((3, 4, 3))
    ]

    assert runs == [[42, "compiled"], [56, "compiled"], [42, "loaded"]]


def doubled(number: int) -> int:
    return 2 * number


def function(cache: CodeCache) -> Any:
    return compiled(SIGNATURE, cache=cache)(doubled)


def hits(function: Any) -> int:
    return sum(function.stats.cache_hits.values())


def test_a_file_that_numba_cannot_read_is_compiled_anew(tmp_path: Path) -> None:
    cache = CodeCache((tmp_path,))
    function(cache)
    [path] = tmp_path.glob("*.machine-code")
    cache.write(path.name, b"no pickle")

    assert function(cache)(21) == 42
    assert hits(function(cache)) == 1


def test_where_nothing_can_be_written_functions_are_compiled_each_time(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = CodeCache((tmp_path / "file" / "below",))

    assert [function(cache)(21), hits(function(cache))] == [42, 0]


# What decides the machine code ---------------------------------------------------------------------------------------

TABLE = np.arange(3)
LIMIT = 7
STEP = njit(doubled)


def named(value: Any) -> Callable[[int], int]:
    def closed(number: int) -> int:
        return int(number + value)

    return closed


def limited(number: int) -> int:
    return number + LIMIT


def looked_up(number: int) -> int:
    return int(TABLE[number])


def stepped(number: int) -> int:
    stepped: int = STEP(number)
    return stepped


def digest(function: Callable[[int], int], signature: str = SIGNATURE, **options: Any) -> str:
    return digest_of(njit(**options)(function), signature)


def test_equal_functions_have_one_digest() -> None:
    assert digest(named(3)) == digest(named(3))


@pytest.mark.parametrize(
    ("name", "value", "function"),
    [
        ("LIMIT", 8, limited),
        ("TABLE", np.array([0, 1, 3]), looked_up),
        ("TABLE", np.arange(3, dtype=np.int32), looked_up),
        ("STEP", njit(limited), stepped),
        ("STEP", njit(forceinline=True)(doubled), stepped),
    ],
    ids=["a number", "a table", "its type", "a function", "how it is compiled"],
)
def test_a_change_behind_a_name_changes_the_digest(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object, function: Callable[[int], int]
) -> None:
    before = digest(function)
    monkeypatch.setitem(globals(), name, value)

    assert digest(function) != before


def test_a_change_behind_two_names_changes_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "STEP", njit(limited))
    before = digest(stepped)
    monkeypatch.setitem(globals(), "LIMIT", 8)

    assert digest(stepped) != before


def test_signature_options_and_what_is_closed_over_change_the_digest() -> None:
    digests = [
        digest(named(3)),
        digest(named(4)),
        digest(named(3), "int32(int32)"),
        digest(named(3), error_model="numpy"),
    ]

    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(numba, "__version__"), (llvmlite, "__version__"), (config, "CPU_NAME")],
)
def test_another_version_or_processor_changes_the_digest(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    before = digest(doubled)
    monkeypatch.setattr(owner, name, "another")

    assert digest(doubled) != before
