"""What a file or an option declares, and how a mistake in it is reported."""

from __future__ import annotations

import sys

import pytest

from trio_broker.cli.declarations import GivenTexts, read_declarations
from trio_broker.config.keys import TOPIC_KEYS
from trio_broker.declaration.declaration import Declaration, DeclarationError, DeclaredTopic, require_once
from trio_broker.declaration.declaration_file import read_declaration
from trio_broker.declaration.rights_text import right_text
from trio_broker.declaration.topic_text import parse_topic


def read(text: str) -> tuple[DeclaredTopic, ...]:
    return read_declaration("topics.toml", text.encode()).topics


def reasons(text: str) -> list[str]:
    with pytest.raises(DeclarationError) as refusal:
        read(text)
    return [reason.removeprefix("topics.toml") for reason in refusal.value.reasons]


def test_a_topic_has_partitions_and_settings_in_the_words_of_toml():
    [topic] = read(
        "[topics.orders]\npartitions = 12\nreplication_factor = 1\n"
        "[topics.orders.config]\nretention.ms = 86_400_000\n'segment.ms' = '60000'\nsegment.bytes = 1048576\n"
        "cleanup.policy = ['compact', 'delete']\npreallocate = true\nmin.cleanable.dirty.ratio = 0.5\n"
    )
    assert topic == DeclaredTopic(
        name="orders",
        partitions=12,
        replication_factor=1,
        settings={
            "retention.ms": "86400000",
            "segment.ms": "60000",
            "segment.bytes": "1048576",
            "cleanup.policy": "compact,delete",
            "preallocate": "true",
            "min.cleanable.dirty.ratio": "0.5",
        },
        origin="topics.toml",
    )


def test_what_is_left_out_is_left_to_the_broker():
    assert read("[topics.a]\n[topics.'b.c']\n") == tuple(
        DeclaredTopic(name=name, origin="topics.toml") for name in ("a", "b.c")
    )
    assert read("") == ()


def test_no_setting_of_topics_is_a_table_of_others():
    """Else its name could not be written without quotes."""
    assert [name for name in TOPIC_KEYS if any(other.startswith(f"{name}.") for other in TOPIC_KEYS)] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[topics.a]\npartitions 3\n", ":2:12: Expected '=' after a key in a key/value pair"),
        ("[topics.a", ": Expected ']' at the end of a table declaration at the end of the file"),
        ("[topic.a]\n", ": unknown table 'topic'; did you mean topics?"),
        ("[groups.a]\n", ": unknown table 'groups'; known: topics, users, default_quotas"),
        ("topics = 3\n", ": topics has to be a table of tables, by their names"),
        ("[topics]\na = 3\n", ": topic 'a': it has to be a table"),
        ("[topics.a]\npartition = 3\n", ": topic 'a': unknown key 'partition'; did you mean partitions?"),
        (
            "[topics.orders.eu]\npartitions = 3\n",
            ": topic 'orders': unknown key 'eu'; a name with a dot is one key: \"orders.eu\"",
        ),
        (
            "[topics.a]\npartitions = 0\n",
            ": topic 'a': partitions has to be a whole number from 1 to 2147483647, not 0",
        ),
        (
            "[topics.a]\npartitions = true\n",
            ": topic 'a': partitions has to be a whole number from 1 to 2147483647, not True",
        ),
        (
            "[topics.a]\nreplication_factor = '3'\n",
            ": topic 'a': replication_factor has to be a whole number from 1 to 32767, not '3'",
        ),
        ("[topics.a]\nconfig = 3\n", ": topic 'a': config has to be a table of settings"),
        (
            "[topics.a.config]\nretention.ms = 2026-01-31\n",
            ": topic 'a': retention.ms has to be a text, a number, a boolean or a list of them",
        ),
        (
            "[topics.a.config]\nretention.ms = 1\n'retention.ms' = 2\n",
            ": topic 'a': retention.ms is set twice",
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text: str, reason: str):
    assert reasons(text) == [reason]


def test_all_mistakes_are_reported_together():
    assert len(reasons("[topic.a]\n[topics.a]\npartition = 3\nconfig = 1\n")) == 3


def test_a_file_that_is_not_in_utf_8_is_refused():
    with pytest.raises(DeclarationError, match=r"topics.toml: it is not in UTF-8, at byte 0"):
        read_declaration("topics.toml", b"\xff")


YAML = """\
topics:
  orders.eu:
  payments:
    partitions: 12
    config:
      retention.ms: 86_400_000
      cleanup.policy: [compact, delete]
      preallocate: true
      leader.replication.throttled.replicas: 1:1
users:
  "*": {may: ["read:public-*"], may_not: ["all:secret-*"]}
  bob:
    quotas: {producer_byte_rate: 5}
default_quotas:
  users: {request_percentage: 50}
  addresses: {connection_creation_rate: 9.0}
"""
TOML = """\
topics."orders.eu" = {}
[topics.payments]
partitions = 12
[topics.payments.config]
retention.ms = 86_400_000
cleanup.policy = ["compact", "delete"]
preallocate = true
leader.replication.throttled.replicas = "1:1"
[users."*"]
may = ["read:public-*"]
may_not = ["all:secret-*"]
[users.bob.quotas]
producer_byte_rate = 5
[default_quotas]
users.request_percentage = 50
addresses.connection_creation_rate = 9.0
"""


FORMS = {"yaml": YAML, "toml": TOML}


def test_yaml_declares_what_toml_does():
    in_yaml, in_toml = (read_declaration(f"cluster.{form}", text.encode()) for form, text in FORMS.items())
    assert repr(in_yaml).replace("cluster.yaml", "cluster.toml") == repr(in_toml)
    assert [len(each) for each in (in_yaml.topics, in_yaml.users, in_yaml.default_quotas)] == [2, 2, 2]
    assert [right_text(right) for right in in_yaml.users[0].rights] == ["read:public-*", "not all:secret-*"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("topics:\n  a:\n  b:\n  a:\n", ":4:3: a stands here twice"),
        ("topics:\n  a: {config: {x: 1, x: 2}}\n", ":2:22: x stands here twice"),
        ("topics:\n  1: {}\n", ":2:3: the key 1 needs quotes"),
        ("topics:\n\ta: {}\n", ":2:1: while scanning for the next token, found character '\\t' that cannot"),
        ("topics: &t {a: *t}\n", ":1:9: found unconstructable recursive node"),
        ("topics: !!python/object:os.system {}\n", ":1:9: could not determine a constructor for the tag"),
        ("topics: {}\n---\ntopics: {}\n", ":2:1: expected a single document in the stream"),
        ("- topics\n", ": it has to be a table of topics, users, default_quotas"),
        (
            "topics: {a: {partitions: }}\n",
            ": topic 'a': partitions has to be a whole number from 1 to 2147483647, not {}",
        ),
        ("a: \x01\n", ":unacceptable character #x0001: special characters are not allowed"),
    ],
)
def test_a_mistake_in_yaml_is_one_line_with_its_place(text, reason):
    with pytest.raises(DeclarationError) as refusal:
        read_declaration("cluster.yml", text.encode())
    [line] = refusal.value.reasons
    assert line.startswith(f"cluster.yml{reason}")


def test_without_the_library_yaml_is_one_line_and_toml_is_read(monkeypatch):
    monkeypatch.delitem(sys.modules, "trio_broker.declaration.yaml_document", raising=False)
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(
        DeclarationError, match=r"^cluster.yaml: YAML needs the extra: pip install 'trio-broker\[yaml\]'$"
    ):
        read_declaration("cluster.yaml", YAML.encode())
    assert read_declaration("cluster.toml", TOML.encode())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("user = {}", "'user' is none of users, client_ids, addresses; did you mean users?"),
        (
            "addresses.request_percentage = 1",
            "addresses: unknown quota 'request_percentage'; known: connection_creation_rate",
        ),
        ("users = 3", "users: quotas have to be a table of numbers"),
        ("users.request_percentage = 0", "users: request_percentage has to be a number above 0"),
    ],
)
def test_a_mistake_in_default_quotas_is_one_line(text, reason):
    [line] = reasons(f"[default_quotas]\n{text}")
    assert line.startswith(f": default_quotas: {reason}")


def test_an_option_has_a_name_partitions_and_settings():
    assert parse_topic("orders", "--topic") == DeclaredTopic(name="orders", origin="--topic")
    assert parse_topic("orders:12", "--topic").partitions == 12
    assert parse_topic("orders::retention.ms=5", "--topic") == DeclaredTopic(
        name="orders", settings={"retention.ms": "5"}, origin="--topic"
    )


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("cleanup.policy=compact,delete,retention.ms=5", {"cleanup.policy": "compact,delete", "retention.ms": "5"}),
        ("leader.replication.throttled.replicas=0:1,1:1", {"leader.replication.throttled.replicas": "0:1,1:1"}),
        ("a=", {"a": ""}),
    ],
)
def test_a_comma_without_an_equals_sign_behind_it_belongs_to_a_list(text, settings):
    assert parse_topic(f"t:1:{text}", "--topic").settings == settings


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (":3", "':3' names no topic"),
        ("t:many", "'t:many': 'many' is no number of partitions"),
        ("t:0", "'t:0': '0' is no number of partitions"),
        ("t:1:compact", "'t:1:compact': 'compact' is not of the form KEY=VALUE"),
        ("t:1:=3", "'t:1:=3': '=3' has no key"),
        ("t:1:a=1,a=2", "'t:1:a=1,a=2': a is set twice"),
    ],
)
def test_a_malformed_option_is_one_line(text, reason):
    with pytest.raises(DeclarationError) as refusal:
        read_declarations(None, GivenTexts((text,), "--topic"))
    [line] = refusal.value.reasons
    assert line.startswith(f"--topic: {reason}")


def test_a_topic_is_declared_once():
    topics = [DeclaredTopic(name="t", origin=origin) for origin in ("topics.toml", "--topic")]
    with pytest.raises(DeclarationError, match=r"^topics.toml, --topic: topic 't' is declared twice$"):
        require_once(Declaration(tuple(topics)))


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(DeclarationError, match="nowhere: No such file or directory"):
        read_declarations(tmp_path / "nowhere", GivenTexts((), "--topic"))
