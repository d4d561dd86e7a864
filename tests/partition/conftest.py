import pytest

from tests.partition.real_logs import make_replicas
from tests.partition.replicating_brokers import ReplicatingBrokers
from trio_broker.runtime.simulated_clock import SimulatedClock


@pytest.fixture
def replicas(tmp_path):
    made = make_replicas(tmp_path / "data", log_durability="page-cache")
    yield made
    made.log_manager.close(clean=False)


@pytest.fixture
async def start_brokers(nursery, autojump_clock):
    """Starts brokers that follow each other; they run until the test ends."""

    async def start(**settings: str) -> ReplicatingBrokers:
        made = ReplicatingBrokers(SimulatedClock(autojump_clock), settings)
        await nursery.start(made.run)
        return made

    yield start
    nursery.cancel_scope.cancel()
