"""Wrong words are answered with the right ones, in one line; further names; what stands in for an option."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from tests.cli.test_topic_commands import topic_server
from trio_broker import __version__
from trio_broker.cli import ALIASES, COMMANDS, main
from trio_broker.cli.hints import HINTS, hint


def usage_error(*arguments: str) -> str:
    """The last line of what a wrong use prints, without its prefix."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, result.output
    return result.stderr.splitlines()[-1].removeprefix("Error: ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("topics --list --bootstrap-server kafka:9092", "No such option --list; here: trio-broker topics list"),
        ("topics --create --topic x", "No such option --create; here: trio-broker topics create TOPIC"),
        (
            "topics create --topic x",
            "No such option --topic; here: a topic is named without an option: trio-broker topics create TOPIC",
        ),
        (
            "topics --topic x",
            "No such option --topic; here: a topic is named without an option: trio-broker topics describe TOPIC",
        ),
        (
            "groups delete --group g",
            "No such option --group; here: a group is named without an option: trio-broker groups delete GROUP",
        ),
        (
            "transactions abort --transactional-id x",
            "No such option --transactional-id; here: an id is named without an option: trio-broker transactions abort"
            " TRANSACTIONAL_ID",
        ),
        (
            "groups -b kafka:9092 list",
            "No such option -b; here: it stands behind the whole command: trio-broker groups list -b HOST:PORT",
        ),
        (
            "cluster -b kafka:9092 info",
            "No such option -b; here: it stands behind the whole command: trio-broker cluster info -b HOST:PORT",
        ),
        (
            "topics -b kafka:9092 list",
            "No such option -b; here: it stands behind the whole command: trio-broker topics list -b HOST:PORT",
        ),
        (
            "--bootstrap-server kafka:9092 topics list",
            "No such option --bootstrap-server; here: it stands behind the whole command: trio-broker topics list"
            " --bootstrap-server HOST:PORT",
        ),
        (
            "groups describe --group g",
            "No such option --group; here: a group is named without an option: trio-broker groups describe GROUP",
        ),
        (
            "configs alter --topic t --add-config a=1",
            "No such option --add-config; here: --set KEY=VALUE, once for each key",
        ),
        (
            "configs --alter --entity-type users --entity-name bob",
            "No such option --alter; here: trio-broker configs alter --topic TOPIC --set KEY=VALUE",
        ),
        (
            "configs alter --entity-type users --entity-name bob --add-config consumer_byte_rate=9",
            "No such option --entity-type; here: --topic TOPIC, --broker ID or --all-brokers; of users, clients and"
            " addresses trio-broker quotas set QUOTA=VALUE",
        ),
        (
            "acls --add --allow-principal User:bob --producer --topic t",
            "No such option --add; here: trio-broker acls add --allow User:NAME --operation OPERATION --topic TOPIC",
        ),
        (
            "acls add --allow-principal User:bob --operation read",
            "No such option --allow-principal; here: --allow User:NAME to add, --principal User:NAME for others",
        ),
        (
            "acls add --consumer --group g",
            "No such option --consumer; here: trio-broker acls add --allow User:NAME --operation read --topic TOPIC"
            " --group GROUP",
        ),
        (
            "quotas set --entity-default a=1",
            "No such option --entity-default; here: --default-user, --default-client-id or --default-ip",
        ),
        (
            "users create --entity-name bob",
            "No such option --entity-name; here: a user is named without an option: trio-broker users create USER",
        ),
        ("group seek g --to start", "No such command 'seek'; here: trio-broker groups reset-offsets GROUP"),
        (
            "topic add-partitions t",
            "No such command 'add-partitions'; here: trio-broker topics alter TOPIC --partitions N",
        ),
        (
            "consume -t orders -C",
            "No such option -t; here: the topic is named without an option: trio-broker consume TOPIC",
        ),
        ("consume orders -e", "No such option -e; here: it ends at the end of the log, unless --follow is given"),
        ("consume orders --max-messages 5", "No such option --max-messages; here: --count N"),
        (
            "produce orders --property parse.key=true",
            "No such option --property; here: --key-separator stands for parse.key and key.separator",
        ),
        ("topic produce orders", "No such command 'produce'; here: trio-broker produce TOPIC"),
        ("-L", "No such option -L; here: trio-broker cluster info, and trio-broker topics describe"),
        ("consume orders --folow", "No such option --folow; did you mean --follow?"),
        ("topics create t --partition 3", "No such option --partition; did you mean --partitions?"),
        ("topics crate t", "No such command 'crate'; did you mean create?"),
        ("tpoics list", "No such command 'tpoics'; did you mean topics?"),
        ("pipeline exprot", "No such command 'exprot'; did you mean export?"),
        ("start --ovveride a=1", "No such option --ovveride; did you mean --override?"),
        ("xyzzy", "No such command 'xyzzy'"),
        ("start --xyzzy", "No such option --xyzzy"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one(arguments: str, expected: str):
    assert usage_error(*arguments.split()) == expected


def command_at(*names: str) -> click.Command:
    """The command with this path."""
    command: click.Command = main
    for name in names:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None, names
        command = found
    return command


def hints() -> set[str]:
    """All hints, as they are where no command of a group was called."""
    return {hint([first] if first else [], word) for first, table in HINTS.items() for word in table}


@pytest.mark.parametrize("text", sorted(hints()))
def test_what_a_hint_names_exists(text: str):
    for example in re.findall(r"trio-broker ((?:[\w-]+ ?)*[\w-]+)", text):
        names = [word for word in example.split() if word.islower()]
        path = names[:2] if isinstance(command_at(names[0]), click.Group) else names[:1]
        command = command_at(*path)
        options = {name for each in command.params for name in each.opts}
        assert {word for word in text.partition(example)[2].split() if re.fullmatch(r"--?[a-z-]+", word)} <= options


@pytest.mark.parametrize("name", ["produce", "consume"])
def test_a_hint_of_a_command_is_about_none_of_its_options(name: str):
    options = {option for each in command_at(name).params for option in each.opts}
    assert options & HINTS[name].keys() == {"-b", "--bootstrap-server", "--command-config"}


def test_a_hint_stands_in_no_way_of_what_exists():
    for first, table in HINTS.items():
        group = command_at(first) if first else main
        for word in table:
            if isinstance(group, click.Group) and not word.startswith("-"):
                assert group.get_command(click.Context(group), word) is None, f"{first} {word}"


@pytest.mark.parametrize(("singular", "plural"), ALIASES.items())
def test_the_singular_does_as_well_and_is_not_listed(singular: str, plural: str):
    assert plural in COMMANDS
    assert CliRunner().invoke(main, [singular, "--help"]).exit_code == 0
    assert not re.search(rf"^  {singular} ", CliRunner().invoke(main, ["--help"]).output, re.MULTILINE)


def test_an_environment_variable_names_the_cluster():
    with topic_server() as server:
        result = CliRunner(env={"TRIO_BROKER_BOOTSTRAP_SERVER": server.address}).invoke(main, ["topic", "list"])
        assert result.exit_code == 0, result.output
        assert "a " in result.stdout


def test_the_option_wins_over_the_variable():
    with topic_server() as server:
        runner = CliRunner(env={"TRIO_BROKER_BOOTSTRAP_SERVER": "127.0.0.1:1"})
        assert runner.invoke(main, ["topics", "list", "-b", server.address]).exit_code == 0


def test_the_version_is_an_option_too():
    assert CliRunner().invoke(main, ["--version"]).output == f"trio-broker {__version__}\n"
