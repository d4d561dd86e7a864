"""Hints for users of other Kafka tools: their commands and options, with the equivalent of this command line.

Kafka's scripts have actions and names as options (``--list``, ``--topic x``), and rpk has other verbs. The error about
such a word has the equivalent in the same line. In a hint, ``{command}`` is the command that was called, ``describe``
where only its group was; ``{list}`` is a command of the group that needs no argument.

Source: the options of Kafka's TopicCommand, ConsumerGroupCommand, TransactionsCommand, ConfigCommand, AclCommand,
ConsoleProducer and ConsoleConsumer; rpk's reference; ``kcat -h``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

FOR_ALL: Final[dict[str, str]] = {
    "--bootstrap-server": "it stands behind the whole command: trio-broker {list} --bootstrap-server HOST:PORT",
    "-b": "it stands behind the whole command: trio-broker {list} -b HOST:PORT",
    "--broker-list": "the addresses go to --bootstrap-server HOST:PORT,HOST:PORT",
    "--zookeeper": "a broker is asked: --bootstrap-server HOST:PORT",
    "--command-config": "it stands behind the whole command: trio-broker {list} --command-config PATH",
    "--verbose": "describe shows all there is, and --json all of it to machines",
}

OF_USERS: Final = "; of users, clients and addresses trio-broker quotas set QUOTA=VALUE"

TOPICS: Final[dict[str, str]] = {
    "--list": "trio-broker topics list",
    "--create": "trio-broker topics create TOPIC",
    "--describe": "trio-broker topics describe [TOPIC]",
    "--alter": "trio-broker topics alter TOPIC --partitions N",
    "--delete": "trio-broker topics delete TOPIC",
    "--topic": "a topic is named without an option: trio-broker {command} TOPIC",
    "--delete-config": "trio-broker configs alter --topic TOPIC --delete KEY",
    "--offset": "trio-broker topics purge TOPIC --to POSITION",
    "--offset-json-file": "trio-broker topics purge TOPIC:0,1 --to POSITION",
    "add-partitions": "trio-broker topics alter TOPIC --partitions N",
    "trim-prefix": "trio-broker topics purge TOPIC --to POSITION",
    "delete-records": "trio-broker topics purge TOPIC --to POSITION",
    "produce": "trio-broker produce TOPIC",
    "consume": "trio-broker consume TOPIC",
    "alter-config": "trio-broker configs alter --topic TOPIC --set KEY=VALUE",
}

GROUPS: Final[dict[str, str]] = {
    "--list": "trio-broker groups list",
    "--describe": "trio-broker groups describe GROUP",
    "--delete": "trio-broker groups delete GROUP",
    "--delete-offsets": "trio-broker groups delete-offsets GROUP --topic TOPIC",
    "--reset-offsets": "trio-broker groups reset-offsets GROUP --topic TOPIC --to-earliest",
    "--group": "a group is named without an option: trio-broker {command} GROUP",
    "--all-groups": "trio-broker groups lag",
    "--members": "trio-broker groups describe GROUP shows the members",
    "--offsets": "trio-broker groups describe GROUP shows the offsets",
    "--state": "trio-broker groups describe GROUP shows the state",
    "--timeout": "--command-timeout, in seconds",
    "seek": "trio-broker groups reset-offsets GROUP",
    "offset-delete": "trio-broker groups delete-offsets GROUP",
}

TRANSACTIONS: Final[dict[str, str]] = {
    "--transactional-id": "an id is named without an option: trio-broker {command} TRANSACTIONAL_ID",
    "--topic": "partitions are named without an option, TOPIC:0,1; for abort, --partition TOPIC:0",
    "--partition": "partitions stand behind their topic: TOPIC:0,1",
    "--broker-id": "--broker ID",
    "force-terminate": "trio-broker transactions abort TRANSACTIONAL_ID",
    "describe-producer": "trio-broker transactions describe-producers TOPIC:0",
}

ACLS: Final[dict[str, str]] = {
    "--list": "trio-broker acls list",
    "--add": "trio-broker acls add --allow User:NAME --operation OPERATION --topic TOPIC",
    "--remove": "trio-broker acls remove --principal User:NAME",
    "--allow-principal": "--allow User:NAME to add, --principal User:NAME for others",
    "--deny-principal": "--deny User:NAME to add, --principal User:NAME for others",
    "--allow-host": "--host ADDRESS",
    "--deny-host": "--host ADDRESS",
    "--resource-pattern-type": "--prefixed, or without it the name itself",
    "--producer": "trio-broker acls add --allow User:NAME --operation write --topic TOPIC",
    "--consumer": "trio-broker acls add --allow User:NAME --operation read --topic TOPIC --group GROUP",
    "--idempotent": "who may write to a topic may do so, too",
    "--user-principal": "--user NAME",
    "--force": "--yes, where the command asks",
    "create": "trio-broker acls add --allow User:NAME --operation OPERATION --topic TOPIC",
    "delete": "trio-broker acls remove --principal User:NAME",
}

USERS: Final[dict[str, str]] = {
    "--entity-type": "a user is named without an option: trio-broker users create USER",
    "--entity-name": "a user is named without an option: trio-broker users create USER",
    "--add-config": "trio-broker quotas set QUOTA=VALUE --user NAME, or trio-broker users password USER",
    "--delete-config": "trio-broker quotas remove QUOTA --user NAME, or trio-broker users delete USER",
    "--password": "--password-file PATH, or - for standard input: others see what a command line has",
}

QUOTAS: Final[dict[str, str]] = {
    "--describe": "trio-broker quotas list",
    "--alter": "trio-broker quotas set QUOTA=VALUE --user NAME",
    "--entity-type": "--user NAME, --client-id ID or --ip ADDRESS",
    "--entity-name": "--user NAME, --client-id ID or --ip ADDRESS",
    "--entity-default": "--default-user, --default-client-id or --default-ip",
    "--client": "--client-id ID",
    "--add-config": "trio-broker quotas set QUOTA=VALUE",
    "--delete-config": "trio-broker quotas remove QUOTA",
}

CONFIGS: Final[dict[str, str]] = {
    "--describe": "trio-broker configs describe --topic TOPIC",
    "--alter": "trio-broker configs alter --topic TOPIC --set KEY=VALUE",
    "--entity-type": f"--topic TOPIC, --broker ID or --all-brokers{OF_USERS}",
    "--entity-name": f"--topic TOPIC, --broker ID or --all-brokers{OF_USERS}",
    "--entity-default": "--all-brokers; for users and clients trio-broker quotas set QUOTA=VALUE --default-user",
    "--broker-defaults": "--all-brokers",
    "--user": "trio-broker quotas set QUOTA=VALUE --user NAME, or trio-broker users password USER",
    "--user-defaults": "trio-broker quotas set QUOTA=VALUE --default-user",
    "--client": "trio-broker quotas set QUOTA=VALUE --client-id ID",
    "--client-defaults": "trio-broker quotas set QUOTA=VALUE --default-client-id",
    "--ip": "trio-broker quotas set QUOTA=VALUE --ip ADDRESS",
    "--ip-defaults": "trio-broker quotas set QUOTA=VALUE --default-ip",
    "--add-config": "--set KEY=VALUE, once for each key",
    "--add-config-file": "--set KEY=VALUE, once for each key",
    "--delete-config": "--delete KEY, once for each key",
    "--brokers": "--broker ID, or --all-brokers",
    "set": "trio-broker configs alter --all-brokers --set KEY=VALUE",
    "get": "trio-broker configs describe --broker ID --all",
}

PRODUCE: Final[dict[str, str]] = {
    "--topic": "the topic is named without an option: trio-broker produce TOPIC",
    "-t": "the topic is named without an option: trio-broker produce TOPIC",
    "-P": "trio-broker produce TOPIC",
    "-l": "files are read by lines, unless --whole is given",
    "--property": "--key-separator stands for parse.key and key.separator",
    "--reader-property": "--key-separator stands for parse.key and key.separator",
    "--request-required-acks": "--acks",
    "--compression-codec": "--compression",
    "--compression.type": "--compression",
    "--timestamp": "a line of --json may have a timestamp",
    "--tombstone": "--null makes an empty value one",
}

CONSUME: Final[dict[str, str]] = {
    "--topic": "the topic is named without an option: trio-broker consume TOPIC",
    "-t": "the topic is named without an option: trio-broker consume TOPIC",
    "-C": "trio-broker consume TOPIC",
    "-e": "it ends at the end of the log, unless --follow is given",
    "-J": "--json",
    "-n": "--count N",
    "-n1": "--count 1",
    "--num": "--count N",
    "--max-messages": "--count N",
    "--offset": "--from OFFSET",
    "--from-beginning": "--from earliest, which is meant unless --follow is given",
    "--read-committed": "--isolation-level read_committed, which is meant unless another is given",
    "--group": "no group is joined and nothing is committed; --from says where to begin",
    "-G": "no group is joined and nothing is committed; --from says where to begin",
    "-g": "no group is joined and nothing is committed; --from says where to begin",
    "--property": "--format says what is printed",
    "--formatter": "--format says what is printed, and --json prints all of it",
    "--formatter-property": "--format says what is printed",
    "--timeout-ms": "it ends at the end of the log, unless --follow is given",
}

CLUSTER: Final[dict[str, str]] = {
    "describe": "trio-broker cluster info",
    "list": "trio-broker cluster info",
    "metadata": "trio-broker cluster info",
    "cluster-id": "trio-broker cluster info",
    "list-endpoints": "trio-broker cluster info",
    "config": "trio-broker configs describe --all-brokers",
}

MAIN: Final[dict[str, str]] = {
    "--list": "trio-broker topics list",
    "--describe": "trio-broker topics describe [TOPIC]",
    "broker": "trio-broker start",
    "records": "trio-broker consume TOPIC",
    "-C": "trio-broker consume TOPIC",
    "-P": "trio-broker produce TOPIC",
    "-L": "trio-broker cluster info, and trio-broker topics describe",
    "brokers": "trio-broker cluster info",
    "api-versions": "trio-broker cluster info --apis",
    "features": "trio-broker cluster info",
    "serve": "trio-broker start",
    "run": "trio-broker start",
}

HINTS: Final[Mapping[str, Mapping[str, str]]] = {
    "": FOR_ALL | MAIN,
    "produce": FOR_ALL | PRODUCE,
    "consume": FOR_ALL | CONSUME,
    "topics": FOR_ALL | TOPICS,
    "groups": FOR_ALL | GROUPS,
    "transactions": FOR_ALL | TRANSACTIONS,
    "configs": FOR_ALL | CONFIGS,
    "acls": FOR_ALL | ACLS,
    "users": FOR_ALL | USERS,
    "quotas": FOR_ALL | QUOTAS,
    "cluster": FOR_ALL | CLUSTER,
}
"""Hints by the first word of the command, and the word that does not exist."""


LISTS: Final[Mapping[str, str]] = {"": "topics list", "cluster": "cluster info"}
"""Commands that need no argument, of those groups that have no ``list``."""


def hint(called: Sequence[str], word: str) -> str:
    """Return ``; here: …`` for a word of another tool, or nothing; ``called`` are the words after ``trio-broker``."""
    first = called[0] if called else ""
    if (found := HINTS.get(first, {}).get(word)) is None:
        return ""
    command = " ".join(called) if len(called) > 1 else f"{first} describe"
    return f"; here: {found.format(command=command, list=LISTS.get(first, f'{first} list'))}"
