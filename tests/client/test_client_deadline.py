"""How long a command may take, and its pauses."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.client.asking_scripted import Pauses
from trio_broker.client.deadline import pauses


def test_pauses_double_up_to_a_second():
    assert list(islice(pauses(), 6)) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_pause_that_fits_is_slept():
    slept = Pauses()
    deadline = slept.deadline(2)
    assert deadline.pause(1.5)
    assert slept.made == [1.5]
    assert deadline.remaining_seconds == 0.5
    assert deadline.remaining_ms == 500


def test_a_pause_that_does_not_fit_is_not_begun():
    slept = Pauses()
    assert not slept.deadline(1).pause(1.0)
    assert slept.made == []


def test_a_broker_is_never_given_no_time_at_all():
    slept = Pauses()
    deadline = slept.deadline(1)
    slept.made.append(5)
    assert deadline.remaining_seconds == 0
    assert deadline.remaining_ms == 1
