"""Claims about the page as the server renders it, and about its assets."""

from __future__ import annotations

import re

import pytest

from broker_admin.group_list import GroupsQuery, select_groups
from broker_admin.pages import ASSETS, frame_at
from broker_admin.routes.overview import render_overview, topic_table
from broker_admin.texts import bytes_text, duration_text, number_text
from tests.admin.fake_broker import FakeBroker
from trio_broker.coordinator.reporting.snapshot import GroupLagReport
from trio_broker.metrics.topics import TopicInfo

BASE_URL = "http://127.0.0.1:9644"


@pytest.fixture
def fake() -> FakeBroker:
    fake = FakeBroker()
    fake.tick(90)
    return fake


def render_page(fake: FakeBroker, base_url: str, *, with_internal: bool = False) -> str:
    """The overview over ``fake``, whatever groups it has."""
    groups = tuple(group.lag() for group in fake.group_list.values())
    group_list = select_groups(
        GroupLagReport(collected_at_ms=fake.now_ms, is_complete=True, groups=groups), GroupsQuery()
    )
    table = topic_table(fake.view, with_internal=with_internal)
    return render_overview(fake.view, frame_at(fake.view, base_url), group_list, table)


def test_the_page_says_who_the_broker_is(fake: FakeBroker) -> None:
    page = render_page(fake, BASE_URL)
    for fact in ("node 1", "Vt3kq0ZcQ3y8dW1nQeN5Aw", "PLAINTEXT://127.0.0.1:9092", "fsync", "1 min 30 s"):
        assert fact in page


def test_the_sizes_of_the_pools_are_shown_with_the_way_to_their_knobs(fake: FakeBroker) -> None:
    page = render_page(fake, BASE_URL)
    assert '<a href="/tuning">' in page
    assert "<code>num.io.threads</code></dt><dd>8</dd>" in page
    assert "<noscript>" in page


def test_nothing_is_inline_and_nothing_comes_from_elsewhere(fake: FakeBroker) -> None:
    """The content security policy would stop it; better that there is nothing to stop."""
    page = render_page(fake, BASE_URL)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(source.startswith(("/", "#")) for source in sources)


@pytest.mark.parametrize(
    "name", ["overview.js", "tuning.js", "charts.js", "knobs.js", "live.js", "groups.js", "page.css"]
)
def test_assets_name_no_other_host(name: str) -> None:
    text = ASSETS[name].content.decode().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"\w://", text)
    assert "eval(" not in text


def test_what_the_broker_says_is_shown_as_text(fake: FakeBroker) -> None:
    fake.topic_list = (TopicInfo("<script>alert(1)</script>", "id", (), configs={'"><b>': "1"}),)
    page = render_page(fake, 'http://localhost/"><script>')
    assert "<script>alert" not in page
    assert '"><script>' not in page
    assert "<b>: 1" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


async def test_recent_changes_are_newest_first(fake: FakeBroker) -> None:
    await fake.view.config.change({"num.io.threads": "12"}, changed_by="kafka client rdkafka from 10.0.0.7")
    await fake.view.config.change({"num.io.threads": "16"}, changed_by="http (curl) from 127.0.0.1")
    page = render_page(fake, BASE_URL)
    assert page.index("http (curl)") < page.index("kafka client rdkafka")


def test_an_empty_broker_says_so_in_words(fake: FakeBroker) -> None:
    fake.topic_list = ()
    page = render_page(fake, BASE_URL)
    assert "No topics yet" in page
    assert "Nothing was changed" in page


def test_a_broker_of_ten_thousand_topics_does_not_make_a_page_of_them(fake: FakeBroker) -> None:
    fake.topic_list = tuple(TopicInfo(f"t{number}", "id", ()) for number in range(10_000))
    page = render_page(fake, BASE_URL)
    assert "The first 200 of 10000" in page
    assert len(page) < 200_000


def test_internal_topics_are_hidden_until_they_are_asked_for(fake: FakeBroker) -> None:
    assert "internal topic" not in render_page(fake, BASE_URL)
    fake.topic_list = (TopicInfo("__consumer_offsets", "id", (), internal=True), *fake.topic_list)
    page = render_page(fake, BASE_URL)
    assert "__consumer_offsets" not in page
    assert '<a href="/?internal=true#topics-title">show 1 internal topic</a>' in page
    page = render_page(fake, BASE_URL, with_internal=True)
    assert "__consumer_offsets" in page
    assert '<a href="/#topics-title">hide 1 internal topic</a>' in page


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5 << 50, "5120.0 TiB")]
)
def test_sizes_are_shown_in_binary_units(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (61, "1 min 1 s"), (7260, "2 h 1 min"), (90_000.7, "1 d 1 h")]
)
def test_durations_are_shown_by_their_two_largest_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_thousands_are_set_apart() -> None:
    assert number_text(1234567) == "1\u202f234\u202f567"
