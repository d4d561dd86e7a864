"""A committed batch: into the image, into effect, into the journal, and to the parts of the broker in their order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
import pytest
import trio
import trio.testing

from tests.fakes.metadata_subscriber import RecordingSubscriber
from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
from trio_broker.cluster.dynamic_config_publisher import DynamicConfigPublisher
from trio_broker.cluster.metadata_image import ConfigResource
from trio_broker.cluster.replication_control import NewTopic


@attrs.define(eq=False)
class FailingSubscriber:
    async def apply_metadata(self, delta, image):
        raise RuntimeError("a mistake in this part")


@attrs.define(eq=False)
class ActingSubscriber:
    """Does ``act`` when it is notified."""

    act: Callable[[], None]

    async def apply_metadata(self, delta, image):
        self.act()
        await trio.lowlevel.checkpoint()


@pytest.fixture
def publisher(controller):
    return controller.loader.publisher


@pytest.fixture
def cache(publisher):
    return publisher.cache


async def set_threads(controller, threads):
    alteration = ConfigAlteration("num.io.threads", ConfigOperation.SET, str(threads))
    return await controller.change_configs([ResourceAlterations(ConfigResource.of_broker(1), (alteration,))])


async def test_subscribers_follow_in_the_order_in_which_they_are_declared(controller, publisher):
    order: list[str] = []
    publisher.subscribers = tuple(ActingSubscriber(partial(order.append, each)) for each in "abc")
    await controller.create_topics([NewTopic(name="t")])
    assert order == ["a", "b", "c"]


async def test_one_that_fails_is_named_and_all_after_it_and_the_journal_still_follow(controller, publisher, caplog):
    last = RecordingSubscriber()
    publisher.subscribers = (FailingSubscriber(), last)
    [created] = await controller.create_topics([NewTopic(name="t")])
    assert created.name == "t"
    assert [delta.changed_topics for delta in last.deltas] == [("t",)]
    assert [change.resource for change in publisher.changes.changes] == ["t"]
    assert "FailingSubscriber failed; it did not follow a change" in caplog.text
    assert "a mistake in this part" in caplog.text


async def test_settings_that_cannot_take_effect_stop_nobody(controller, publisher, monkeypatch, caplog):
    def fail(self, image, resources):
        raise RuntimeError("no")

    monkeypatch.setattr(DynamicConfigPublisher, "apply", fail)
    last = RecordingSubscriber()
    publisher.subscribers = (last,)
    await controller.create_topics([NewTopic(name="t")])
    assert (len(last.deltas), len(publisher.changes.changes)) == (1, 1)
    assert "DynamicConfigPublisher failed" in caplog.text


async def test_image_settings_and_journal_come_before_the_subscribers(controller, publisher, cache, config):
    seen = []

    def look():
        seen.append((config.socket_server.num_io_threads, len(publisher.changes.changes), cache.image.offset))

    publisher.subscribers = (ActingSubscriber(look),)
    before = cache.image.offset
    outcome = await set_threads(controller, 9)
    assert seen == [(9, 1, before + 1)]
    assert tuple(outcome.changes) == publisher.changes.changes


async def test_a_request_that_is_cancelled_after_the_append_is_still_published_to_all(controller, publisher):
    last = RecordingSubscriber()
    publisher.subscribers = (ActingSubscriber(lambda: scope.cancel()), ActingSubscriber(lambda: None), last)
    with trio.CancelScope() as scope:
        await controller.create_topics([NewTopic(name="t")])
    await trio.testing.wait_all_tasks_blocked()
    assert [delta.changed_topics for delta in last.deltas] == [("t",)]
    assert "t" in controller.image.topics


async def test_subscribers_get_the_image_and_what_led_to_it(controller, publisher, cache):
    subscriber = RecordingSubscriber()
    publisher.subscribers = (subscriber,)
    before = cache.image
    await controller.create_topics([NewTopic(name="t")])
    [delta], [image] = subscriber.deltas, subscriber.images
    assert delta.image is before
    assert image is cache.image


async def test_an_image_has_the_offset_and_the_epoch_of_its_last_record(controller, cache, metadata_log):
    for name in "ab":
        await controller.create_topics([NewTopic(name=name, num_partitions=2)])
        assert cache.image.offset == metadata_log.log_end_offset - 1
    assert cache.image.epoch == metadata_log.leader_epoch


async def test_an_image_may_be_kept_while_topics_come_and_go(controller, cache):
    await controller.create_topics([NewTopic(name="a")])
    image = cache.image
    for _ in image.topics:
        await controller.create_topics([NewTopic(name="b")])
    assert list(image.topics) == ["a"]
    assert list(cache.image.topics) == ["a", "b"]


async def test_waiting_for_an_offset_ends_when_the_image_contains_it(controller, cache):
    wanted = cache.image.offset + 3
    seen = []

    async def wait():
        await cache.wait_for(wanted)
        seen.append(cache.image.offset)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await controller.create_topics([NewTopic(name="t")])
        await trio.testing.wait_all_tasks_blocked()
        assert seen == []
        await controller.create_topics([NewTopic(name="u")])
    assert seen == [wanted + 1]
    await cache.wait_for(wanted)
