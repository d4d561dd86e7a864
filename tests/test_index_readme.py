"""The README as a package index shows it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RELATIVE = re.compile(r"\]\((?!https?:)")


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """The build hook, loaded as hatch loads it: by its path."""
    specification = importlib.util.spec_from_file_location("index_readme", ROOT / "scripts" / "index_readme.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_without_addresses_links_within_the_repository_are_text(hook):
    shown = hook.readme_of_index(
        "![seen](a.png) see [the `b`](docs/b.md) and [c](https://c.example/)", "1", pages="", pictures=""
    )
    assert shown == " see the `b` and [c](https://c.example/)"


def test_with_addresses_links_and_pictures_lead_to_the_version_that_is_built(hook):
    addresses = {
        "pages": "https://h.example/blob/v{version}/{path}",
        "pictures": "https://h.example/raw/v{version}/{path}",
    }
    shown = hook.readme_of_index("![seen](a.png) [b](docs/b.md#part) [c](examples/) [d](#here)", "0.2", **addresses)
    assert shown.split() == [
        "![seen](https://h.example/raw/v0.2/a.png)",
        "[b](https://h.example/blob/v0.2/docs/b.md#part)",
        "[c](https://h.example/blob/v0.2/examples)",
        "[d](https://h.example/blob/v0.2/README.md#here)",
    ]


@pytest.mark.parametrize("address", ["", "https://h.example/{version}/{path}"])
def test_the_readme_has_no_link_on_an_index_that_needs_the_repository(hook, address):
    assert RELATIVE.search(README)
    assert not RELATIVE.search(hook.readme_of_index(README, "0.1.0", pages=address, pictures=address))
