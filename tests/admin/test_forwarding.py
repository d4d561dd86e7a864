"""What is passed on to the admin app of another broker: in whose name, and what is no broker's."""

from __future__ import annotations

import json

import attrs
import pytest
import trio
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from broker_admin.forwarded_app import ForwardedApp
from broker_admin.forwarded_requests import AnsweredHead, decoded, question
from broker_admin.forwarding import BAD_REQUEST, answer_forwarded
from broker_admin.request_body import change_origin
from tests.admin.fake_broker import FakeBroker
from trio_broker.changes.audit_context import THE_BROKER
from trio_broker.changes.change import ChangeChannel, ChangeOrigin

HEAD = {"method": "GET", "target": "/api/v1/config", "headers": {}, "client": "", "asked_through": 2}

CLIENT = ChangeOrigin(ChangeChannel.PAGE, "admin page", "10.0.0.77", "POST /api/v1/topics/t:purge", "admin")


@pytest.mark.parametrize(
    "question",
    [
        b"",
        b"\xff\xfe\0",
        b"[1]\n",
        b"{}\n",
        b"[" * 200_000,
        *(json.dumps(HEAD | wrong).encode() + b"\n" for wrong in ({"role": "root"}, {"target": "/\u20ac"})),
    ],
)
async def test_what_no_broker_sends_is_refused(question):
    async def app(*_: object) -> None:
        raise AssertionError("the app is not asked")

    head, body = decoded(AnsweredHead, await answer_forwarded(app, question))
    assert (head.status, body) == (BAD_REQUEST, b"")


async def test_what_a_broker_asks_for_a_client_is_recorded_as_the_client_s():
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(change_origin(Request(scope)))

    for asked_by in (CLIENT, THE_BROKER.change_origin):
        asked = question("/purge", asked_through=1, asked_by=asked_by, method="POST", body=b"{}")
        await answer_forwarded(app, asked)
    assert seen[0] == attrs.evolve(CLIENT, request="POST /purge")
    assert seen[1].client == "broker 1"


async def test_requests_that_come_while_the_app_is_loaded_are_all_answered():
    forwarded, asked = ForwardedApp(FakeBroker().view), question("/api/v1/config", asked_through=2, asked_by=CLIENT)
    answers = []

    async def ask() -> None:
        answers.append(decoded(AnsweredHead, await forwarded.answer(asked)))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    await ask()
    assert [head.status for head, _ in answers] == [200] * 4
    assert len({body for _, body in answers}) == 1
