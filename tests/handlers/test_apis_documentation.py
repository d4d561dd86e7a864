"""The pages about the APIs and their rights say what the registry says."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_broker.handlers.support.documentation import render_apis, render_rights
from trio_broker.handlers.support.registry import served_apis

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("page", "render"), [("apis.md", render_apis), ("rights.md", render_rights)])
def test_the_pages_are_up_to_date(page, render):
    written = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert written == render(), "write it again: python -m trio_broker.handlers.support.documentation"


def test_every_served_api_has_its_line_with_the_advertised_versions():
    lines = render_apis().splitlines()
    for api in served_apis().values():
        (line,) = [line for line in lines if line.startswith(f"| {api.api_key.value} |")]
        low, high = api.advertised.low, api.advertised.high
        assert f"| {low}–{high} |" in line if low != high else f"| {low} |" in line


def test_every_handler_says_in_one_line_what_it_does():
    for api in served_apis().values():
        summary = (api.handler.__doc__ or "").partition("\n")[0]
        assert summary.endswith("."), f"{api.handler}: {summary!r}"


def test_links_lead_to_files_that_are_there():
    for api in served_apis().values():
        path = api.handler.__module__.replace(".", "/") + ".py"
        assert f"](../{path})" in render_apis()
        assert (ROOT / path).is_file()
