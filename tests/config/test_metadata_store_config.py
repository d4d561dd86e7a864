"""Where the metadata is: what the setting says, what it refuses, and what contradicts it."""

from __future__ import annotations

import pytest

from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.config.metadata_store_config import LOCAL, EtcdLocation, etcd_location


def test_the_default_is_local():
    assert BrokerConfig().metadata_store.metadata_store == LOCAL


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("etcd://one:2379", EtcdLocation([("one", 2379)], "/trio-broker/", False)),
        ("etcd://one:2379/", EtcdLocation([("one", 2379)], "/trio-broker/", False)),
        ("etcds://one:2379,[::1]:2380/a/b", EtcdLocation([("one", 2379), ("::1", 2380)], "/a/b/", True)),
    ],
)
def test_members_prefix_and_tls_are_read(text, location):
    assert etcd_location(text) == location


@pytest.mark.parametrize(
    "text", ["", "etcd", "etcd://", "etcd://one", "etcd://one:2379,", "http://one:2379", "etcd://:2379", "etcd://one:0"]
)
def test_other_values_are_refused(text):
    with pytest.raises(ConfigError, match=r"metadata\.store"):
        BrokerConfig({"metadata.store": text})


@pytest.mark.parametrize(
    "settings",
    [
        {"metadata.store.user": "u"},
        {"metadata.store": "etcd://one:2379", "metadata.store.password": "p"},
        {"metadata.store": "etcd://one:2379", "metadata.store.ca.file": "/ca.pem"},
        {"metadata.store": "etcd://one:2379", "metadata.store.certificate.file": "/c.pem"},
    ],
)
def test_a_setting_that_would_have_no_effect_is_refused(settings):
    with pytest.raises(ConfigError, match=r"is for "):
        BrokerConfig(settings)
