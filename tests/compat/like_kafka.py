"""What the tests share that hold one conversation with a Kafka and with our broker, and compare the answers.

What Kafka answered is kept in ``kafka_answers``, one file for each conversation, so that our broker is compared with it
where there is no Java, too. With the environment variable ``REWRITE_CONVERSATIONS=1`` the answers of a live Kafka are
written down anew, for a person to judge the difference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs

from tests.compat.scenario_client import ScenarioClient
from tests.coordinator.conversations import REWRITE_VARIABLE

ANSWERS = Path(__file__).parent / "kafka_answers"

EVERY_SCENARIO = ""

Scenario: TypeAlias = Callable[[ScenarioClient], None]


@attrs.frozen
class Difference:
    """Where Kafka's text in the scenario ``scenario``, or in any, matches ``kafka``, ours is ``ours``, written as for
    re.sub.
    """

    scenario: str
    kafka: str
    ours: str
    reason: str


def transcript(port: int, scenario: Scenario) -> str:
    client = ScenarioClient(port, scenario.__name__.replace("_", "-"))
    try:
        scenario(client)
    finally:
        client.close()
    return client.transcript


@attrs.frozen
class KafkaAnswers:
    """The answers in ``folder``, and where ours differ from them on purpose."""

    folder: Path
    differences: Sequence[Difference]

    def file(self, scenario: Scenario) -> Path:
        return self.folder / f"{scenario.__name__}.txt"

    def kept(self) -> set[str]:
        """The names of the conversations whose answers are kept."""
        return {path.stem for path in self.folder.glob("*.txt")}

    def check_kafka(self, port: int, scenario: Scenario) -> None:
        """Check that the Kafka at ``port`` answers as it was written down, or write down what it answers."""
        said = transcript(port, scenario)
        if os.environ.get(REWRITE_VARIABLE):
            self.folder.mkdir(exist_ok=True)
            self.file(scenario).write_text(said)
        assert said == self.file(scenario).read_text()

    def ours(self, scenario: Scenario) -> str:
        """Kafka's answers with the known differences in them."""
        text = self.file(scenario).read_text()
        for difference in self.differences:
            if difference.scenario in (scenario.__name__, EVERY_SCENARIO):
                text, times = re.subn(difference.kafka, difference.ours, text)
                assert times or not difference.scenario, f"Kafka no longer says {difference.kafka!r}"
        return text
