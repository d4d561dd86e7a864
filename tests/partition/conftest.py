import pytest

from tests.partition.real_logs import make_replicas


@pytest.fixture
def replicas(tmp_path):
    made = make_replicas(tmp_path / "data", log_durability="page-cache")
    yield made
    made.log_manager.close(clean=False)
