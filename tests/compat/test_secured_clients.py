"""Clients that were not written here over TLS, with a certificate, and by each login over TLS, with rights and without.

``REFUSED`` has what the users of each client read, on writing and on reading, when they are not let in or lack a right;
it is what they know from Kafka. The Python clients and kcat do a few cases in the default run, all clients all of them
in the night, each in one process.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.compat.secured_clients import OK, SECONDS, Case, SecuredBroker, as_json, secured_broker
from tests.compat.secured_python import Outcome, aiokafka_client, confluent_kafka, kafka_python, kcat
from tests.compat.test_transactions_go import programs as programs
from tests.java_programs import Java
from tests.oracles import node_package
from tests.waits import run_program

# As conftest's LEAKED_SOCKET.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")

NODE = Path(__file__).parent / "node"

DRIVERS = {
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka_client,
    "kcat": kcat,
}

TOPIC, GROUP = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"


def both(name: str) -> Outcome:
    return name, name


IN_JAVA: Mapping[str, Outcome] = {
    "wrong password": both("SaslAuthenticationException"),
    "wrong authority": both("SslAuthenticationException"),
    "expired certificate": both("SslAuthenticationException"),
    "closed topic": both("TopicAuthorizationException"),
    "closed group": (OK, "GroupAuthorizationException"),
}
IN_GO: Mapping[str, Outcome] = {
    "wrong password": both("SASL_AUTHENTICATION_FAILED"),
    "wrong authority": both("x509.UnknownAuthorityError"),
    "expired certificate": both("x509.Expired"),
    "closed topic": both(TOPIC),
    "closed group": (OK, GROUP),
}
IN_NODE: Mapping[str, Outcome] = {
    **IN_GO,
    "wrong authority": both("UNABLE_TO_VERIFY_LEAF_SIGNATURE"),
    "expired certificate": both("CERT_HAS_EXPIRED"),
}

REFUSED: Mapping[str, Mapping[str, Outcome]] = {
    "confluent-kafka": {
        "wrong password": both("_AUTHENTICATION"),
        "wrong authority": both("_SSL"),
        "expired certificate": both("_SSL"),
        "closed topic": both(TOPIC),
        "closed group": (OK, GROUP),
    },
    # Both retry what concerns a connection until a time is over, and give the reason in the log.
    "kafka-python": {
        "wrong authority": both("unable to get local issuer certificate"),
        "expired certificate": both("certificate has expired"),
        "closed topic": ("TopicAuthorizationFailedError", "Topic closed is not authorized for this client"),
        "closed group": (OK, "GroupAuthorizationFailedError"),
    },
    "aiokafka": {
        "wrong password": both("SaslAuthenticationFailed"),
        "wrong authority": both("unable to get local issuer certificate"),
        "expired certificate": both("certificate has expired"),
        "closed topic": both("TopicAuthorizationFailedError"),
        "closed group": (OK, "GroupAuthorizationFailedError"),
    },
    "kcat": {
        "wrong password": both("SASL authentication error"),
        "wrong authority": both("certificate verify failed"),
        "expired certificate": both("certificate verify failed"),
        "closed topic": both("Topic authorization failed"),
        "closed group": (OK, "FindCoordinator response error"),
    },
    "java": IN_JAVA,
    "java_older": IN_JAVA,
    "franz": IN_GO,
    "sarama": IN_GO,
    # kafkajs does not say why it found no coordinator.
    "kafkajs": {
        **IN_NODE,
        "wrong password": both("KafkaJSSASLAuthenticationError"),
        "closed group": (OK, "KafkaJSGroupCoordinatorNotFound"),
    },
    "platformatic": IN_NODE,
}

LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    # It has no place for a token.
    "kcat": ("OAUTHBEARER",),
    # It drops an answer that it reads together with the end of the connection, and so forgets mostly why it came.
    "kafka-python": ("wrong password",),
}

IN_EVERY_RUN = ("mtls", "closed topic", "closed group")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("certificates")) as broker:
        yield broker


def expected(client: str, case: Case) -> Outcome:
    """What ``client`` is to say of a case; ``tls, closed topic`` is refused as ``closed topic``."""
    return REFUSED[client].get(case.name.split(", ")[-1], both(OK))


def expected_of(client: str, cases: list[Case]) -> dict[str, Outcome]:
    return {case.name: expected(client, case) for case in cases}


def cases_of(client: str, secured: SecuredBroker) -> list[Case]:
    return secured.cases(client, *LEFT_OUT.get(client, ()))


@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka", "kcat"])
def test_a_client_with_a_certificate_is_let_in_and_one_without_a_right_is_refused(client, secured):
    cases = [case for case in secured.cases(f"quick-{client}") if case.name in IN_EVERY_RUN]
    assert len(cases) == len(IN_EVERY_RUN)
    assert {case.name: DRIVERS[client](case) for case in cases} == expected_of(client, cases)


@pytest.mark.soak
@pytest.mark.parametrize("client", DRIVERS)
def test_a_python_client_or_kcat_is_let_in_by_each_way_and_says_why_it_is_not(client, secured):
    """Soak: kafka-python retries each refusal for two seconds."""
    cases = cases_of(client, secured)
    assert {case.name: DRIVERS[client](case) for case in cases} == expected_of(client, cases)


@pytest.mark.soak
@pytest.mark.parametrize("client", ["java", "java_older"])
def test_the_java_client_is_let_in_by_each_way_and_says_why_it_is_not(client, secured, java: Java):
    """Soak: a JVM each."""
    cases = cases_of(client, secured)
    ours = java.with_older_client() if client == "java_older" else java
    steps = ours.run("SecuredSteps", given=json.loads(as_json(cases)))
    ended = {step["step"]: step.get("error", OK if step.get("result") else "nothing came") for step in steps}
    assert {case.name: (ended[f"{case.name} write"], ended[f"{case.name} read"]) for case in cases} == expected_of(
        client, cases
    )


@pytest.mark.soak
@pytest.mark.parametrize("client", ["franz", "sarama"])
def test_a_go_client_is_let_in_by_each_way_and_says_why_it_is_not(client, secured, programs: Path):
    """Soak: retries for seconds."""
    cases = cases_of(client, secured)
    assert outcomes([str(programs / "secured"), client], cases) == expected_of(client, cases)


@pytest.mark.soak
@pytest.mark.parametrize(("client", "package"), [("kafkajs", "kafkajs"), ("platformatic", "@platformatic/kafka")])
def test_a_node_client_is_let_in_by_each_way_and_says_why_it_is_not(client, package, secured):
    """Soak: retries for seconds."""
    node_package(package)
    cases = cases_of(client, secured)
    command = [str(shutil.which("node")), str(NODE / f"{client}_secured.mjs")]
    assert outcomes(command, cases) == expected_of(client, cases)


def outcomes(command: list[str], cases: list[Case]) -> dict[str, Outcome]:
    """What a program says of ``cases``, which it gets by its standard input."""
    ended = run_program(command, 4 * SECONDS, input=as_json(cases), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return {name: (write, read) for name, (write, read) in json.loads(ended.stdout).items()}
