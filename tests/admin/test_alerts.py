"""Alerts: from findings to what a receiver is delivered."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import trio

from broker_admin.alert_messages import NAMED, AlertSender, json_form, slack_form
from broker_admin.alerts import AlertBoard, DeliveredAlerts, News
from broker_admin.health import attention, failing
from broker_admin.health_rules import (
    FULL_DISK,
    GROUP_FALLS_BEHIND,
    RESOLVE_SECONDS,
    RULES,
    SETTING_WOULD_HELP,
    SOME_MINUTES,
    UNREADABLE_PARTITIONS,
)
from tests.admin.live_admin import open_live_admin
from tests.running_broker import make_broker
from trio_broker.broker_view.node import alerts as live_alerts
from trio_broker.config.errors import ConfigError

NOW_MS = 1_780_000_000_000
PAGE = "http://broker:9644/"
BEHIND = attention(GROUP_FALLS_BEHIND, "group billing falls behind", about="billing", page="/groups/billing")
UNREADABLE = failing(UNREADABLE_PARTITIONS, "1 partition cannot be read")
SENDER = AlertSender(node_id=1, cluster_id="c", page=PAGE, repeat_interval_ms=60_000)


def ids(news: News) -> dict[str, list[str]]:
    return {status: [each.id for each in alerts] for status, alerts in news.sections()}


def board_with(*findings: Any) -> AlertBoard:
    """Found for as long as the slowest rule asks."""
    board = AlertBoard()
    for second in range(0, 310, 10):
        board.update(findings, second, NOW_MS + 1000 * second)
    return board


def test_names_of_rules_are_distinct():
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_finding_is_an_alert_once_it_has_held_and_resolved_once_it_is_gone_for_a_while():
    board = AlertBoard()
    board.update([BEHIND], 0.0, NOW_MS)
    board.update([], 30.0, NOW_MS + 30_000)
    board.update([BEHIND], SOME_MINUTES - 1, NOW_MS)
    assert board.alerts(PAGE, 1) == {}
    board = AlertBoard()
    for second in (0, 50, 100, 120):
        board.update([BEHIND], second, NOW_MS + 1000 * second)
    [alert] = board.alerts(PAGE, 1).values()
    assert (alert.id, alert.since_ms, alert.page) == (
        "group-falls-behind:billing",
        NOW_MS,
        "http://broker:9644/groups/billing",
    )
    assert alert.summary == "Group billing falls behind"
    board.update([], SOME_MINUTES + RESOLVE_SECONDS - 1, NOW_MS)
    assert board.alerts(PAGE, 1)
    board.update([], SOME_MINUTES + RESOLVE_SECONDS, NOW_MS)
    assert not board.alerts(PAGE, 1)


def test_what_failed_is_an_alert_at_once_and_first_and_a_tuning_advice_never():
    advice = attention(SETTING_WOULD_HELP, "syncs wait, and more threads would help")
    assert [each.rule for each in board_with(BEHIND, advice, UNREADABLE).alerts(PAGE, 1).values()] == [
        "partitions-unreadable",
        "group-falls-behind",
    ]


def test_a_receiver_is_delivered_of_an_alert_once_then_when_it_is_due_and_when_it_ends():
    delivered, alerts = DeliveredAlerts(), board_with(BEHIND).alerts(PAGE, 1)
    news = delivered.news(alerts, 0.0, 60.0)
    assert ids(news) == {"raised": ["group-falls-behind:billing"]}
    delivered.take(news, 0.0)
    assert not delivered.news(alerts, 59.0, 60.0)
    news = delivered.news(alerts, 60.0, 60.0)
    assert ids(news) == {"repeated": ["group-falls-behind:billing"]}
    delivered.take(news, 60.0)
    news = delivered.news({}, 61.0, 60.0)
    assert ids(news) == {"resolved": ["group-falls-behind:billing"]}
    delivered.take(news, 61.0)
    assert not delivered.news({}, 1000.0, 60.0)


def test_an_alert_that_gets_worse_is_raised_again():
    delivered = DeliveredAlerts()
    delivered.take(
        delivered.news(board_with(attention(FULL_DISK, "disk at 91", about="/d")).alerts(PAGE, 1), 0.0, 60.0), 0.0
    )
    worse = board_with(failing(FULL_DISK, "disk at 99", about="/d")).alerts(PAGE, 1)
    assert ids(delivered.news(worse, 1.0, 60.0)) == {"raised": ["disk-full:/d"]}


def test_many_groups_make_one_message_that_names_some():
    many = [attention(GROUP_FALLS_BEHIND, f"group g{n} falls behind", about=f"g{n}") for n in range(25)]
    news = DeliveredAlerts().news(board_with(*many).alerts(PAGE, 1), 0.0, 60.0)
    form = json_form(news, SENDER, NOW_MS, 25)
    assert (len(form["alerts"]), form["not_named"], form["summary"]) == (NAMED, {"raised": 15}, "25 alerts raised")
    assert form["alerts"][0]["status"] == "raised"
    assert "and 15 more" in slack_form(news, SENDER, NOW_MS, 25)["blocks"][0]["text"]["text"]


def test_slack_gets_a_text_and_blocks_in_which_a_name_is_no_markup():
    hostile = attention(GROUP_FALLS_BEHIND, "group <!channel> & co falls behind", about="x")
    form = slack_form(DeliveredAlerts().news(board_with(hostile).alerts(PAGE, 1), 0.0, 60.0), SENDER, NOW_MS, 1)
    assert [block["type"] for block in form["blocks"]] == ["section", "context"]
    assert form["text"] == "trio-broker node 1: Group &lt;!channel&gt; &amp; co falls behind"
    assert "<!channel>" not in json.dumps(form)


async def test_a_broker_tells_its_receiver_through_failures_and_shows_no_secret(tmp_path, caplog):
    """Raised after a failure, resolved, over a real socket; one line in the log for each turn."""
    statuses = iter([b"500 s3cret", b"302 Found", b"200 OK"])
    bodies: list[Any] = []
    heads: list[bytes] = []

    async def receive(stream: trio.SocketStream) -> None:
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data or not data.endswith(b"}"):
                data += await stream.receive_some()
            head, _, body = data.partition(b"\r\n\r\n")
            heads.append(head)
            bodies.append(json.loads(body))
            status = next(statuses, b"200 OK")
            await stream.send_all(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, receive, [listener])
        with caplog.at_level(logging.INFO):
            async with open_live_admin(
                tmp_path,
                admin_listener="127.0.0.1:0",
                alerts_webhook_url=f"http://127.0.0.1:{port}/services/s3cret",
                alerts_webhook_authorization="Bearer s3cret",
            ) as live:
                receiver = live_alerts.Receiver(live.broker.services)
                alerts = board_with(UNREADABLE).alerts(PAGE, 1)
                for _ in range(3):
                    receiver._next_try_at = 0.0
                    await receiver.tell(alerts, SENDER)
                report = receiver.report(alerts)
                assert (report.host, report.error, report.undelivered) == (f"127.0.0.1:{port}", None, 0)
                assert receiver.report({}).undelivered == 1
                await receiver.tell(alerts, SENDER)
                await receiver.tell({}, SENDER)
                assert [[each["status"] for each in body["alerts"]] for body in bodies] == [
                    ["raised"], ["raised"], ["raised"], ["resolved"],
                ]  # fmt: skip
                assert b"Authorization: Bearer s3cret" in heads[0]
                shown = [await live.http.get(f"/api/v1/{name}") for name in ("brokers/1/alerts", "config", "changes")]
                assert all(answer.status_code == 200 and "s3cret" not in answer.text for answer in shown)
        nursery.cancel_scope.cancel()
    lines = [each.getMessage() for each in caplog.records if each.name == live_alerts.__name__]
    assert lines == [
        f"alerts cannot be delivered to 127.0.0.1:{port}: answered with status 500; it is tried again",
        f"alerts are delivered to 127.0.0.1:{port} again",
    ]
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        {"alerts_webhook_url": "gopher://s3cret"},
        {"alerts_webhook_url": "http://a/s3cret", "admin_listener": ""},
        {"alerts_webhook_authorization": "s3cret\u00e4"},
    ],
)
def test_a_bad_receiver_is_refused_at_a_start_in_one_line_without_the_secret(tmp_path, settings):
    with pytest.raises(ConfigError, match=r"alerts\.webhook") as caught:
        make_broker(tmp_path, **settings)
    assert "s3cret" not in f"{caught.value}"
    assert "\n" not in f"{caught.value}"
