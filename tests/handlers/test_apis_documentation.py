"""The page about the APIs says what the registry says."""

from __future__ import annotations

from pathlib import Path

from trio_broker.handlers.support.documentation import render_apis
from trio_broker.handlers.support.registry import served_apis

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "apis.md"


def test_the_page_of_apis_is_up_to_date():
    written = PAGE.read_text(encoding="utf-8")
    assert written == render_apis(), "write it again: python -m trio_broker.handlers.support.documentation"


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
