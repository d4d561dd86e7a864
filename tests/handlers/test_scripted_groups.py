"""The scripted coordinator is asked as the real one is."""

from __future__ import annotations

import inspect

import pytest

from tests.handlers.scripted_groups import ScriptedGroups, ScriptedRuntime
from trio_broker.coordinator.group_coordinator import GroupCoordinator
from trio_broker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime

METHODS = [
    pytest.param(scripted, real, name, id=name)
    for scripted, real in ((ScriptedGroups, GroupCoordinator), (ScriptedRuntime, CoordinatorRuntime))
    for name, _ in inspect.getmembers(scripted, inspect.isfunction)
    if not name.startswith("_") and name != "say"
]


@pytest.mark.parametrize(("scripted_type", "real_type", "name"), METHODS)
def test_every_method_takes_what_the_real_one_takes(scripted_type, real_type, name):
    scripted, real = getattr(scripted_type, name), getattr(real_type, name)
    assert list(inspect.signature(scripted).parameters) == list(inspect.signature(real).parameters)
    assert inspect.iscoroutinefunction(scripted) == inspect.iscoroutinefunction(real)
