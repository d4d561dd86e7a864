"""What ``trio-broker import-kafka`` refuses is there in a real Kafka, and Kafka's own tools take it away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from tests.compat.kafka_process import KafkaProcess
from tests.java_programs import compiled_java
from tests.waits import run_program, within

SECONDS = 30.0
TOPIC, USER, GROUP, QUOTA = "orders", "bob", "sharers", "producer_byte_rate"
ENTRY = (
    ResourceType.TOPIC,
    TOPIC,
    ResourcePatternType.LITERAL,
    f"User:{USER}",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
"""Of an access control list."""

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}

DELETIONS = 60
"""Each takes about a second; a member's session of 45 s may have to run out."""

CONFIGS = "org.apache.kafka.tools.ConfigCommand"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


def run_tool(tool: str, servers: str, *arguments: str) -> str:
    call = {"tool": tool, "arguments": ["--bootstrap-server", servers, *arguments], "input": ""}
    (done,) = compiled_java().run("RunTools", given=[call])
    assert done["code"] == 0, done
    return str(done["out"])


def delete_share_group(servers: str) -> None:
    """As often as it takes: a coordinator that has just started may still hold the group's member."""
    for _ in range(DELETIONS):
        if "was successful" in (output := run_tool(SHARE_GROUPS, servers, "--delete", "--group", GROUP)):
            return
    pytest.fail(output)


def change_quota(servers: str, *change: str) -> None:
    run_tool(CONFIGS, servers, "--alter", "--entity-type", "users", "--entity-name", USER, *change)


def change_password(admin: AdminClient, alteration: UserScramCredentialAlteration) -> None:
    for future in admin.alter_user_scram_credentials([alteration]).values():
        within(future.result, SECONDS)


def give_what_goes_along_and_a_share_group(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    within(admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result, SECONDS)
    password = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change_password(admin, UserScramCredentialUpsertion(USER, password, b"password", b"salt"))
    entry = AclBinding(*ENTRY)
    within(admin.create_acls([entry])[entry].result, SECONDS)
    change_quota(servers, "--add-config", f"{QUOTA}=1000")
    run_tool(SHARE_CONSUMER, servers, "--topic", TOPIC, "--group", GROUP, "--timeout-ms", "2000")


def import_kafka(directory: Path) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = [sys.executable, "-m", "trio_broker", "import-kafka", str(directory)]
    return run_program(command, 60, capture_output=True, text=True)


@pytest.mark.soak
def test_kafka_s_own_tools_remove_what_keeps_it_from_being_taken_over(tmp_path: Path) -> None:
    """Soak: two lives of a Kafka and three of its tools; the refusals one by one are in ``tests/cluster``."""
    kafka = KafkaProcess(tmp_path, SETTINGS, standalone=True)
    with kafka:
        give_what_goes_along_and_a_share_group(kafka.bootstrap_servers)
        kafka.stop(clean=True)
    refused = import_kafka(kafka.data_directory)
    assert f"'{GROUP}' is a share group" in refused.stderr
    with kafka:
        delete_share_group(kafka.bootstrap_servers)
        kafka.stop(clean=True)
    assert import_kafka(kafka.data_directory).returncode == 0
