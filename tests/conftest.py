"""Fixtures that tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the run. Mark what uses it ``@pytest.mark.spark``."""
    from tests.spark.session_fixture import start_session

    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
