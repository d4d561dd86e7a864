"""The scripted coordinator is asked as the real one is."""

from __future__ import annotations

import inspect

import pytest

from tests.handlers.scripted_groups import ScriptedGroups
from trio_broker.coordinator.group_coordinator import GroupCoordinator

METHODS = [name for name, _ in inspect.getmembers(ScriptedGroups, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"say"}))
def test_every_method_takes_what_the_real_one_takes(name):
    scripted, real = getattr(ScriptedGroups, name), getattr(GroupCoordinator, name)
    assert list(inspect.signature(scripted).parameters) == list(inspect.signature(real).parameters)
    assert inspect.iscoroutinefunction(scripted) == inspect.iscoroutinefunction(real)
