"""What each Fetch of a follower says of its session, as positions change and answers come or do not."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.fetch import FetchResponse
from trio_broker.partition.fetch_answers import FollowerPosition
from trio_broker.partition.fetch_session_handler import FetchKey, FetchSessionHandler, SessionRequest
from trio_broker.partition.fetch_sessions import MAX_EPOCH

A, B, C = (FetchKey(bytes(16), index) for index in range(3))
SESSION_ID = 7


def at(offset: int) -> FollowerPosition:
    return FollowerPosition(leader_epoch=1, fetch_offset=offset, last_fetched_epoch=1, log_start_offset=0)


def says(request: SessionRequest) -> tuple[int, int, list[FetchKey], list[FetchKey]]:
    return request.session_id, request.epoch, list(request.to_send), list(request.to_forget)


@pytest.fixture
def handler() -> FetchSessionHandler:
    """The leader keeps a session of A and B, each at offset 5."""
    made = FetchSessionHandler()
    assert says(made.build({A: at(5), B: at(5)})) == (0, 0, [A, B], [])
    made.answered(FetchResponse(session_id=SESSION_ID, responses=[]))
    return made


def test_only_what_has_changed_is_said_in_the_order_asked_for(handler):
    assert says(handler.build({B: at(5), C: at(0), A: at(6)})) == (SESSION_ID, 1, [C, A], [])
    handler.answered(FetchResponse(session_id=SESSION_ID, responses=[]))
    assert says(handler.build({C: at(0), A: at(6)})) == (SESSION_ID, 2, [], [B])
    handler.answered(FetchResponse(session_id=SESSION_ID, responses=[]))
    assert says(handler.build({B: at(5), C: at(0), A: at(6)})) == (SESSION_ID, 3, [B], [])


def test_without_an_answer_a_new_session_takes_the_place_of_the_one_before(handler):
    handler.build({A: at(6), B: at(5)})
    assert says(handler.build({A: at(6)})) == (SESSION_ID, 0, [A], [])


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_after_an_error_a_new_session_begins(handler, code):
    handler.build({A: at(5), B: at(5)})
    handler.answered(FetchResponse(error_code=code, responses=[]))
    assert says(handler.build({A: at(5), B: at(5)})) == (SESSION_ID, 0, [A, B], [])
    handler.answered(FetchResponse(session_id=SESSION_ID + 1, responses=[]))
    assert says(handler.build({A: at(5), B: at(5)})) == (SESSION_ID + 1, 1, [], [])


def test_a_leader_without_room_for_a_session_hears_all_each_time(handler):
    handler.begin_anew()
    for session_id in (SESSION_ID, 0, 0):
        assert says(handler.build({A: at(5)})) == (session_id, 0, [A], [])
        handler.answered(FetchResponse(session_id=0, responses=[]))


def test_the_epoch_of_a_session_goes_round(handler):
    handler._next_epoch = MAX_EPOCH
    assert handler.build({A: at(5), B: at(5)}).epoch == MAX_EPOCH
    handler.answered(FetchResponse(session_id=SESSION_ID, responses=[]))
    assert handler.build({A: at(5), B: at(5)}).epoch == 1
