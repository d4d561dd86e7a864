"""What is passed on to the admin app by who is no broker."""

from __future__ import annotations

import json

import pytest

from broker_admin.forwarding import BAD_REQUEST, AnsweredHead, answer_forwarded, decoded

HEAD = {"method": "GET", "target": "/api/v1/config", "headers": {}, "client": "", "asked_through": 2}


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
