"""The drivers of the Python clients and of kcat for the cases of ``secured_clients``."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import ssl
import time
from collections.abc import Callable
from typing import Any

import aiokafka.abc
import aiokafka.errors
import kafka.errors
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.compat.secured_clients import OK, SECONDS, Case
from tests.oracles import absent
from tests.waits import TimeLeft, run_program, scaled

SILENT = logging.getLogger("silent")
SILENT.disabled = True
OAUTHBEARER = "OAUTHBEARER"
FOR_GOOD = {KafkaError._AUTHENTICATION, KafkaError._SSL}
"""What librdkafka says of a connection, and tries again for ever."""

REASON = re.compile(
    r"SaslAuthenticationFailed|unable to get local issuer certificate|certificate has expired"
    r"|Topic closed is not authorized for this client"
)
"""What the logs of kafka-python and aiokafka give as reasons."""

Outcome = tuple[str, str]
"""How writing ended, and reading."""


def confluent_kafka(case: Case) -> Outcome:
    return confluent_written(case), confluent_read(case)


def confluent_settings(case: Case, errors: list[KafkaError]) -> dict[str, Any]:
    oauth = {"oauth_cb": lambda _: (case.token, time.time() + 3600)} if case.mechanism == OAUTHBEARER else {}
    return {**case.librdkafka, "error_cb": errors.append, "logger": SILENT, **oauth}


def first_for_good(errors: list[KafkaError]) -> str | None:
    return next((error.name() for error in errors if error.code() in FOR_GOOD), None)


def confluent_written(case: Case) -> str:
    errors: list[KafkaError] = []
    ended: list[str] = []
    producer = Producer(confluent_settings(case, errors))
    producer.produce(case.topic, b"x", on_delivery=lambda error, _: ended.append(error.name() if error else OK))
    time_left = TimeLeft(SECONDS)
    while not ended:
        assert not time_left.is_over, errors
        producer.poll(0.05)
        if name := first_for_good(errors):
            producer.purge()
            return name
    return ended[0]


def confluent_read(case: Case) -> str:
    errors: list[KafkaError] = []
    consumer = Consumer({**confluent_settings(case, errors), "group.id": case.group, "auto.offset.reset": "earliest"})
    consumer.subscribe([case.topic])
    time_left = TimeLeft(SECONDS)
    try:
        while True:
            assert not time_left.is_over, errors
            message = consumer.poll(0.05)
            if message is not None:
                error = message.error()
                return error.name() if error is not None else OK
            if name := first_for_good(errors):
                return name
    finally:
        consumer.close()


class KafkaPythonToken(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, text: str) -> None:
        self.text = text

    def token(self) -> str:
        return self.text


def kafka_python_settings(case: Case) -> dict[str, Any]:
    return {
        "bootstrap_servers": case.servers,
        "security_protocol": case.protocol,
        "ssl_cafile": case.ca,
        "ssl_certfile": case.certificate or None,
        "ssl_keyfile": case.certificate or None,
        **(
            {
                "sasl_mechanism": case.mechanism,
                "sasl_plain_username": case.user,
                "sasl_plain_password": case.password,
            }
            if case.mechanism
            else {}
        ),
        **({"sasl_oauth_token_provider": KafkaPythonToken(case.token)} if case.mechanism == OAUTHBEARER else {}),
    }


def error_of(package: str, action: Callable[[list[str]], object]) -> str:
    """The name of the error of ``action``, or, of one that is about a time or an address alone, why it came to that.

    ``action`` gets the list to which the reasons come that the log of ``package`` gives.
    """
    reasons: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: reasons.extend(REASON.findall(record.getMessage()))  # type: ignore[method-assign]
    logger = logging.getLogger(package)
    logger.addHandler(handler)
    try:
        action(reasons)
    except (kafka.errors.KafkaTimeoutError, aiokafka.errors.KafkaConnectionError):
        return reasons[0] if reasons else "no reason"
    except Exception as error:
        return type(error).__name__
    finally:
        logger.removeHandler(handler)
    return OK


def kafka_python(case: Case) -> Outcome:
    return (
        error_of("kafka", lambda _: kafka_python_write(case)),
        error_of("kafka", lambda reasons: kafka_python_read(case, reasons)),
    )


def kafka_python_write(case: Case) -> None:
    settings = kafka_python_settings(case)
    with KafkaProducer(**settings, bootstrap_timeout_ms=2000, max_block_ms=2000) as producer:
        producer.send(case.topic, b"x").get(SECONDS)


def kafka_python_read(case: Case, reasons: list[str]) -> None:
    settings = kafka_python_settings(case)
    time_left = TimeLeft(SECONDS)
    consumer = KafkaConsumer(
        case.topic, **settings, bootstrap_timeout_ms=2000, group_id=case.group, auto_offset_reset="earliest"
    )
    try:
        # In few polls: kafka-python 3.0.12 forgets what came of a join that a poll did not wait for.
        while not consumer.poll(timeout_ms=3000, max_records=1):
            if reasons:
                raise kafka.errors.KafkaTimeoutError
            assert not time_left.is_over
    finally:
        consumer.close()


class AiokafkaToken(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, text: str) -> None:
        self.text = text

    async def token(self) -> str:
        return self.text


def aiokafka_settings(case: Case) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=case.ca)
    if case.certificate:
        context.load_cert_chain(case.certificate)
    sasl: dict[str, Any] = {
        "sasl_mechanism": case.mechanism,
        "sasl_plain_username": case.user,
        "sasl_plain_password": case.password,
        "sasl_oauth_token_provider": AiokafkaToken(case.token),
    }
    return {
        "bootstrap_servers": case.servers,
        "security_protocol": case.protocol,
        "ssl_context": context,
        **(sasl if case.mechanism else {}),
    }


def aiokafka_client(case: Case) -> Outcome:
    return (
        error_of("aiokafka", lambda _: asyncio.run(aiokafka_write(case))),
        error_of("aiokafka", lambda _: asyncio.run(aiokafka_read(case))),
    )


async def aiokafka_write(case: Case) -> None:
    producer = AIOKafkaProducer(**aiokafka_settings(case))
    try:
        await producer.start()
        await producer.send_and_wait(case.topic, b"x")
    finally:
        await producer.stop()


async def aiokafka_read(case: Case) -> None:
    settings = {**aiokafka_settings(case), "group_id": case.group, "auto_offset_reset": "earliest"}
    consumer = AIOKafkaConsumer(case.topic, **settings)
    try:
        await consumer.start()
        await asyncio.wait_for(consumer.getone(), scaled(SECONDS))
    finally:
        await consumer.stop()


KCAT_ERROR = re.compile(
    r"SASL authentication error|certificate verify failed|(?:Topic|Group) authorization failed"
    r"|FindCoordinator response error"
)


def kcat(case: Case) -> Outcome:
    write = ["-P", "-t", case.topic, "-X", "message.timeout.ms=3000"]
    read = ["-c", "1", "-G", case.group, case.topic]
    return kcat_outcome(case, write, "x\n"), kcat_outcome(case, read, "")


def kcat_outcome(case: Case, arguments: list[str], text: str) -> str:
    program = shutil.which("kcat") or absent("kcat", "kcat is not installed")
    settings = {**case.librdkafka, "auto.offset.reset": "earliest"}
    del settings["bootstrap.servers"]
    keys = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    ended = run_program(
        [program, "-b", case.servers, *keys, *arguments], SECONDS, input=text, capture_output=True, text=True
    )
    if ended.returncode == 0:
        return OK
    found = KCAT_ERROR.search(ended.stderr)
    return found[0] if found else ended.stderr
