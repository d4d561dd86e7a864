"""From distinguished names to users, as Kafka's SslPrincipalMapperTest has it."""

from __future__ import annotations

import pytest

from trio_broker.security.ssl_principal_mapper import NoMatchingRule, SslPrincipalMapper

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("distinguished_name", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems", "OU=JavaSoft,O=Sun Microsystems"),
    ],
)
def test_the_first_rule_that_takes_a_name_decides(distinguished_name, name):
    assert SslPrincipalMapper.parse(RULES).name(distinguished_name) == name


def test_a_reference_to_no_group_is_itself_and_digits_beyond_are_text():
    assert SslPrincipalMapper.parse("RULE:^CN=(.*?),OU=(.*)$/$1-$25-$4/").name("CN=a,OU=b") == "a-b5-$4"


def test_an_escaped_slash_is_part_of_the_pattern():
    assert SslPrincipalMapper.parse(r"RULE:^CN=kafka\/(.*)$/$1/").name("CN=kafka/host") == "host"


def test_a_name_that_no_rule_takes_is_nobody():
    with pytest.raises(NoMatchingRule):
        SslPrincipalMapper.parse("RULE:^CN=admin$/root/").name("CN=other")


@pytest.mark.parametrize("text", ["DEFLT", "RULE:", "RULE:^CN=(.*)$/$1", "RULE:(/x/"])
def test_a_malformed_rule_is_refused(text):
    with pytest.raises(ValueError, match=r"RULE|DEF|\("):
        SslPrincipalMapper.parse(text)
