"""As ``test_largest_requests``, where rights are asked for: all are there, or none is."""

from __future__ import annotations

import pytest

from bench.largest_requests import array_paths
from tests.handlers.missing_rights import AllBut, client_of
from tests.handlers.test_largest_requests import require_small_steps
from trio_broker.handlers.support.registry import ServedApi, served_apis
from trio_broker.runtime.real_workers import RealWorkers

BY_DEFAULT = {"CREATE_ACLS", "DELETE_ACLS", "METADATA", "PRODUCE"}

CASES = [
    pytest.param(
        *(api, path),
        id=f"{api.api_key.name}-{path[0]}",
        marks=[] if api.api_key.name in BY_DEFAULT else [pytest.mark.soak],
    )
    for api in served_apis().values()
    if not api.between_brokers
    for path in array_paths(api.request, api.versions.high)
    if len(path) == 1
]


@pytest.fixture
def workers():
    """Refusals of many elements are made in threads."""
    return RealWorkers()


@pytest.mark.parametrize("denied", ["nothing", "everything"])
@pytest.mark.parametrize(("api", "path"), CASES)
async def test_no_step_grows_with_a_request_that_takes_rights(wire, monkeypatch, api: ServedApi, path, denied):
    await wire.create_topic("wide", 5)
    client = client_of(wire, AllBut(api.rights if denied == "everything" else frozenset()))
    await require_small_steps(client, monkeypatch, api, api.versions.high, path)
