"""Having a broker leave, over HTTP. What becomes of it is ``tests/cluster/test_decommission.py``."""

from __future__ import annotations

from tests.admin.live_admin import LiveAdmin
from trio_broker.cluster.decommission_progress import DecommissionState

ADDRESS = "/api/v1/brokers/1/decommission"


async def test_a_broker_that_is_the_whole_cluster_may_not_leave(live: LiveAdmin) -> None:
    await live.kafka.create_topic("t", 2)
    assert await live.get(ADDRESS) == {
        "broker_id": 1,
        "state": DecommissionState.NONE.value,
        "replicas": 2,
        "leaders": 2,
        "moves": [],
        "further_moves": 0,
        "blocked": "",
    }
    for query in ({}, {"dry_run": "true"}):
        answer = await live.http.post(ADDRESS, params=query)
        assert answer.status_code == 409
        assert answer.json()["detail"] == "broker 1 cannot be decommissioned: no other broker would be left"
    assert (await live.http.delete(ADDRESS)).json()["state"] == "none"


async def test_an_unknown_broker_is_not_found(live: LiveAdmin) -> None:
    for broker in ("7", "x", "99999999999"):
        assert (await live.http.get(f"/api/v1/brokers/{broker}/decommission")).status_code == 404
