"""The pages under ``docs/`` say what the code says, and their links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.cases import each
from trio_broker.config.documentation import default_text
from trio_broker.config.keys import BROKER_KEYS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
FOR_DEVELOPERS = [ROOT / "CONTRIBUTING.md", ROOT / "tests" / "compat" / "README.md"]
GENERATED = {"apis.md", "config.md", "spark-options.md"}
INDEXES = {"client-compatibility.md", "limits.md"}
MAX_WORDS = 2_500
"""A page that takes longer than a quarter of an hour to read is cut; generated pages and indexes are looked up in."""

LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
LIMIT = re.compile(r"^\| `(?P<module>[\w.]+)\.(?P<name>[A-Z_]+)` \| (?P<value>[\d.]+) \|", re.MULTILINE)
CONSTANT = re.compile(r"\| (?P<value>[\d.]+) \| `(?P<module>[\w.]+)\.(?P<name>[A-Z_]+)` \|$", re.MULTILINE)
SETTING = re.compile(r"^\|[^|]+\| `(?P<key>[a-z.]+)` \| (?P<default>[^|]+) \|[^|]+\|[^|]+\|$", re.MULTILINE)
BESIDE = re.compile(r"`(test_\w+\.py)`")
TESTS_OF_ONE_MODULE = re.compile(r"\]\(\.\./(?P<path>tests/[\w/]+\.py)\):(?P<names>(?:[\s,]*`\w+`)+)")
TEST_NAME = re.compile(r"`(\w+)`")
PYTHON_FILE = re.compile(r"`([\w/]+\.py)`")
CODE_NAME = re.compile(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`")
NAME_IN_DIAGRAM = re.compile(r"\b[A-Z]\w+\.[a-z_]\w*")
PRODUCT = [ROOT, ROOT / "trio_broker", ROOT / "protocol", ROOT / "admin"]

PACKAGES = sorted(
    path.parent for path in (ROOT / "trio_broker").rglob("__init__.py") if not path.parent.name.startswith("pyspark")
)
LIMITS_PAGE = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
LIMITS = [
    *((module, name, value) for value, module, name in CONSTANT.findall(LIMITS_PAGE)),
    *LIMIT.findall((ROOT / "docs" / "spark.md").read_text(encoding="utf-8")),
]


@pytest.mark.parametrize("page", [*PAGES, *FOR_DEVELOPERS], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_and_to_code_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize(
    "page",
    [page for page in (*PAGES, *sorted((ROOT / "bench").glob("*.md"))) if page.name not in GENERATED | INDEXES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_is_read_in_a_quarter_of_an_hour(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= MAX_WORDS


@pytest.mark.parametrize("folder", [ROOT / "docs", ROOT / "docs" / "decisions", ROOT / "docs" / "formats"])
def test_the_index_of_a_folder_names_all_its_pages(folder: Path) -> None:
    index = LINK.findall((folder / "README.md").read_text(encoding="utf-8"))
    assert {page.name for page in folder.glob("*.md")} - {"README.md"} - set(index) == set()


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "decisions").glob("0*.md")), ids=lambda page: page.stem)
def test_a_decision_has_the_parts_of_one(page: Path) -> None:
    headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [part for part in headings if part != "Reasons"] == ["Context", "Decision", "Consequences"]


@each("module,name,value", LIMITS)
def test_a_limit_has_the_value_that_the_page_tells(module: str, name: str, value: str) -> None:
    assert getattr(importlib.import_module(module), name) == float(value)


@pytest.mark.parametrize("page", FOR_DEVELOPERS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_tests_that_a_page_for_developers_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"\btests/[\w/]+\.py\b", text)) | {f"tests/compat/{name}" for name in BESIDE.findall(text)}
    assert named
    assert {path for path in named if not (ROOT / path).is_file()} == set()


def test_the_table_of_limits_is_found() -> None:
    assert len(LIMITS) > 30


def test_a_limit_that_is_a_setting_has_the_default_of_its_key() -> None:
    stated = dict(SETTING.findall(LIMITS_PAGE))
    assert len(stated) > 20
    assert stated == {name: default_text(BROKER_KEYS[name]) for name in stated}


@pytest.mark.parametrize(("page", "least"), [("client-compatibility.md", 250), ("threat-model.md", 40)])
def test_every_test_that_a_page_of_promises_names_exists(page: str, least: int) -> None:
    index = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = [(path, name) for path, names in TESTS_OF_ONE_MODULE.findall(index) for name in TEST_NAME.findall(names)]
    assert len(named) > least
    assert [
        f"{path}::test_{name}"
        for path, name in named
        if f"def test_{name}(" not in (ROOT / path).read_text(encoding="utf-8")
    ] == []


@pytest.fixture(scope="module")
def architecture() -> str:
    """The pages about the inside of the broker, one after the other."""
    pages = sorted((ROOT / "docs").glob("architecture*.md"))
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def test_the_architecture_pages_name_files_that_exist(architecture: str) -> None:
    named = set(PYTHON_FILE.findall(architecture))
    assert len(named) > 20
    assert {path for path in named if not any((folder / path).is_file() for folder in PRODUCT)} == set()


def test_the_architecture_pages_use_names_of_the_code(architecture: str) -> None:
    code = "".join(path.read_text(encoding="utf-8") for folder in PRODUCT[1:] for path in folder.rglob("*.py"))
    words = set(re.findall(r"\w+", code))
    names = CODE_NAME.findall(architecture) + NAME_IN_DIAGRAM.findall(architecture)
    named = {word for name in names for word in name.split(".")} - {""}
    assert len(named) > 50
    assert named - words - {"asyncio"} == set()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_a_package_says_what_belongs_there(package: Path) -> None:
    """And names only modules and settings that there are."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
    assert text
    beside = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.name != "__init__.py")
    there = {*re.findall(r"\w+", beside), *(path.stem for path in [*package.rglob("*"), *package.parent.iterdir()])}
    assert {name for name in re.findall(r"``([a-z_]+)``", text) if name not in there} == set()
