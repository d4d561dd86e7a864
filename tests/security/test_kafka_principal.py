"""Principals as text."""

from __future__ import annotations

import pytest

from trio_broker.security.kafka_principal import ANONYMOUS, KafkaPrincipal


def test_a_principal_is_a_type_and_a_name_that_may_have_colons():
    assert KafkaPrincipal.parse("User:CN=a:b") == KafkaPrincipal("User", "CN=a:b")
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["", "alice", ":alice"])
def test_what_has_no_type_is_refused(text):
    with pytest.raises(ValueError, match="is not Type:name"):
        KafkaPrincipal.parse(text)
