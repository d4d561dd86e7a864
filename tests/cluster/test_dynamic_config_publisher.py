"""Settings of a broker, and the parts that act on a change of one."""

from __future__ import annotations

import attrs
import pytest

from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType
from trio_broker.cluster.replication_control import NewTopic

BROKER = ConfigResource.of_broker(1)


@attrs.define(eq=False)
class Pool:
    """A part with as many threads as ``num.io.threads`` says. ``sizes`` has one for each time that it is notified."""

    sizes: list[int] = attrs.field(factory=list)

    def reconfigure(self, config):
        self.sizes.append(config.socket_server.num_io_threads)


class BrokenPool:
    def reconfigure(self, config):
        raise RuntimeError("no thread can be started")


@pytest.fixture
def dynamic_config(controller):
    return controller.loader.publisher.dynamic_config


@pytest.fixture
def pool(dynamic_config):
    made = Pool()
    dynamic_config.reconfigurables = (made,)
    return made


async def set_to(controller, resource, name, value):
    alteration = ConfigAlteration(name, ConfigOperation.SET, value)
    return await controller.change_configs([ResourceAlterations(resource, (alteration,))])


async def test_parts_follow_what_has_an_effect_and_nothing_else(controller, pool):
    await set_to(controller, BROKER, "num.io.threads", "8")
    await controller.create_topics([NewTopic(name="t")])
    await set_to(controller, ConfigResource(ConfigResourceType.TOPIC, "t"), "retention.ms", "5")
    assert pool.sizes == []
    await set_to(controller, BROKER, "num.io.threads", "9")
    await set_to(controller, CLUSTER_DEFAULT, "num.io.threads", "10")
    assert pool.sizes == [9]


async def test_a_part_that_fails_is_named_and_those_after_it_follow(controller, dynamic_config, caplog):
    last = Pool()
    dynamic_config.reconfigurables = (BrokenPool(), last)
    outcome = await set_to(controller, BROKER, "num.io.threads", "9")
    assert (outcome.results, [change.resource for change in outcome.changes]) == ([BROKER], ["1"])
    assert last.sizes == [9]
    assert "BrokenPool failed; it did not follow" in caplog.text
    assert "no thread can be started" in caplog.text


async def test_parts_follow_a_trial_and_its_end(dynamic_config, pool):
    dynamic_config.try_values({"num.io.threads": "64"})
    dynamic_config.end_trial()
    assert pool.sizes == [64, 8]


async def test_settings_of_other_brokers_are_not_for_this_one(controller, dynamic_config, pool):
    await set_to(controller, BROKER, "num.io.threads", "9")
    image = attrs.evolve(
        controller.image,
        configs_by_resource={BROKER: {"num.io.threads": "9"}, ConfigResource.of_broker(2): {"num.io.threads": "12"}},
    )
    assert dynamic_config.apply(image, image.configs_by_resource) == []
    assert pool.sizes == [9]
