"""Settings that are tried."""

from __future__ import annotations

import pytest
import trio

from kafka_wire.errors import KafkaError
from tests.fakes.controllers import make_controller
from tests.scheduling import ORDERS, PASSES, deterministic_scheduling
from trio_broker.changes.change import MAX_TRIAL_SECONDS, MIN_TRIAL_SECONDS, ChangeChannel, TrialOutcome
from trio_broker.cluster.config_trials import ConfigTrials, NoSuchTrial
from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ValueChange
from trio_broker.runtime.clock import ManualClock


@pytest.fixture
async def trials(controller, nursery):
    publisher = controller.loader.publisher
    made = ConfigTrials(controller, publisher.dynamic_config, publisher.changes, ManualClock())
    nursery.start_soon(made.run)
    return made


def io_threads(config):
    return config.socket_server.num_io_threads


async def set_for_good(controller, **values):
    alterations = tuple(
        ConfigAlteration(name.replace("_", "."), ConfigOperation.SET, text) for name, text in values.items()
    )
    await controller.change_configs(
        [
            ResourceAlterations(
                controller.loader.publisher.dynamic_config.broker_resource, alterations, any_pool_size=True
            )
        ]
    )


async def test_a_tried_value_is_in_effect_for_its_time_and_then_taken_back(trials, controller, config, autojump_clock):
    change = await trials.begin({"num.io.threads": "64"}, 60)
    assert (io_threads(config), change.trial.ends_at_ms) == (64, trials.clock.now_ms() + 60_000)
    await trio.sleep(59)
    assert io_threads(config) == 64
    await trio.sleep(2)
    assert io_threads(config) == 8
    tried, back = controller.loader.publisher.changes.changes
    assert tried.trial.outcome is TrialOutcome.UNDONE
    assert (back.undoes, back.origin.channel) == (tried.number, ChangeChannel.BROKER)
    assert back.values == (ValueChange("num.io.threads", "64", "8"),)
    assert trials.running is None


async def test_a_restart_at_any_moment_goes_back_since_no_tried_value_is_in_the_metadata_log(
    trials, controller, metadata_log
):
    await trials.begin({"num.io.threads": "64"}, 60)
    config = BrokerConfig({"node.id": "1"})
    make_controller(metadata_log, config, metadata_log.records)
    assert io_threads(config) == 8


async def test_what_is_kept_is_in_the_metadata_log_and_stays(trials, controller, config, metadata_log, autojump_clock):
    change = await trials.begin({"num.io.threads": "64"}, 60)
    kept = await trials.keep(change.number)
    await trio.sleep(120)
    assert (io_threads(config), kept.trial.outcome) == (64, TrialOutcome.KEPT)
    assert controller.loader.publisher.changes.changes == (kept,)
    again = BrokerConfig({"node.id": "1"})
    make_controller(metadata_log, again, metadata_log.records)
    assert io_threads(again) == 64


async def test_it_is_undone_before_its_time_on_request(trials, controller, config, autojump_clock):
    change = await trials.begin({"num.io.threads": "64"}, 60)
    back = await trials.undo(change.number)
    assert (io_threads(config), back.undoes) == (8, change.number)
    await trio.sleep(120)
    assert len(controller.loader.publisher.changes.changes) == 2


async def test_trials_follow_each_other(trials, config, autojump_clock):
    for threads in (16, 32):
        await trials.begin({"num.io.threads": str(threads)}, 30)
        await trio.sleep(29)
        assert io_threads(config) == threads
        await trio.sleep(2)
        assert io_threads(config) == 8


async def test_one_trial_at_a_time(trials, config):
    await trials.begin({"num.io.threads": "64"}, 60)
    with pytest.raises(KafkaError, match="change 1 is being tried: keep it or undo it first"):
        await trials.begin({"queued.max.requests": "5"}, 60)
    assert config.socket_server.queued_max_requests == 500


@pytest.mark.parametrize("seconds", [MIN_TRIAL_SECONDS - 1, MAX_TRIAL_SECONDS + 1, 0, -1])
async def test_the_time_of_a_trial_is_bounded(trials, seconds):
    with pytest.raises(KafkaError, match="a trial takes 10 to 600 seconds"):
        await trials.begin({"num.io.threads": "64"}, seconds)


async def test_what_changes_nothing_is_no_trial(trials, config):
    assert await trials.begin({"num.io.threads": "8"}, 60) is None
    assert (trials.running, config.tried) == (None, {})


async def test_a_value_set_for_good_meanwhile_wins_over_the_trial(trials, controller, config, autojump_clock):
    change = await trials.begin({"num.io.threads": "64"}, 60)
    await set_for_good(controller, num_io_threads="10")
    assert io_threads(config) == 10
    with pytest.raises(NoSuchTrial, match="were changed for good meanwhile"):
        await trials.keep(change.number)
    await trio.sleep(120)
    assert io_threads(config) == 10
    assert controller.loader.publisher.changes.change(1).trial.outcome is TrialOutcome.REPLACED


async def test_of_two_tried_settings_the_one_not_set_for_good_is_taken_back(trials, controller, config, autojump_clock):
    await trials.begin({"num.io.threads": "64", "queued.max.requests": "5"}, 60)
    await set_for_good(controller, num_io_threads="10")
    await trio.sleep(61)
    assert (io_threads(config), config.socket_server.queued_max_requests) == (10, 500)
    assert controller.loader.publisher.changes.changes[-1].values == (ValueChange("queued.max.requests", "5", "500"),)


async def test_what_is_not_on_trial_can_neither_be_kept_nor_undone(trials):
    change = await trials.begin({"num.io.threads": "64"}, 60)
    for number in (change.number + 1, 0):
        with pytest.raises(NoSuchTrial, match="is not being tried"):
            await trials.keep(number)
    await trials.undo(change.number)
    with pytest.raises(NoSuchTrial, match="change 1 is not being tried"):
        await trials.undo(change.number)


async def test_a_metadata_log_that_fails_leaves_the_trial_running(trials, config, metadata_log, autojump_clock):
    change = await trials.begin({"num.io.threads": "64"}, 60)
    metadata_log.failure = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        await trials.keep(change.number)
    await trio.sleep(61)
    assert io_threads(config) == 8


@pytest.mark.parametrize("ended", ["by its time", "by hand"])
async def test_a_trial_that_begins_at_any_moment_after_the_last_one_is_undone_at_its_time(
    trials, config, autojump_clock, ended
):
    for order in range(ORDERS):
        for passes in range(PASSES):
            with deterministic_scheduling(order):
                first = await trials.begin({"num.io.threads": "64"}, 60)
                if ended == "by hand":
                    await trials.undo(first.number)
                else:
                    await trio.sleep(60)
                for _ in range(passes):
                    await trio.lowlevel.checkpoint()
                while trials.running is not None:
                    await trio.lowlevel.checkpoint()
                await trials.begin({"num.io.threads": "32"}, 30)
                await trio.sleep(29)
                assert io_threads(config) == 32
                await trio.sleep(2)
                assert io_threads(config) == 8


# --- comparisons ---


async def test_a_comparison_has_the_old_and_the_new_value_in_turn_and_then_the_old_one(trials, config, autojump_clock):
    change = await trials.compare({"num.io.threads": "64"}, 30)
    seen = []
    for _ in range(7):
        await trio.sleep(15)
        seen.append(io_threads(config))
        await trio.sleep(15)
    assert seen == [8, 64, 8, 64, 8, 64, 8]
    [ended] = trials.changes.changes
    assert (ended.number, ended.trial.outcome) == (change.number, TrialOutcome.UNDONE)
    assert len(ended.trial.switches_at_ms) == 5
    assert trials.running is None


@pytest.mark.parametrize("passed_seconds", [10, 45, 75])
async def test_any_other_change_of_settings_cancels_a_comparison(
    trials, controller, config, autojump_clock, passed_seconds
):
    await trials.compare({"num.io.threads": "64"}, 30)
    await trio.sleep(passed_seconds)
    await set_for_good(controller, queued_max_requests="5")
    await trio.sleep(1)
    assert (io_threads(config), config.socket_server.queued_max_requests) == (8, 5)
    assert trials.changes.change(1).trial.outcome is TrialOutcome.CANCELLED
    await trio.sleep(300)
    assert io_threads(config) == 8


@pytest.mark.parametrize("passed_seconds", [10, 45, 75])
async def test_a_comparison_is_kept_or_undone_at_any_time(trials, config, autojump_clock, passed_seconds):
    change = await trials.compare({"num.io.threads": "64"}, 30)
    await trio.sleep(passed_seconds)
    assert (await trials.undo(change.number)).trial.outcome is TrialOutcome.UNDONE
    assert io_threads(config) == 8
    change = await trials.compare({"num.io.threads": "64"}, 30)
    await trio.sleep(passed_seconds)
    assert (await trials.keep(change.number)).trial.outcome is TrialOutcome.KEPT
    await trio.sleep(300)
    assert io_threads(config) == 64
    assert len(trials.changes.changes) == 2


async def test_one_comparison_at_a_time_and_its_time_is_bounded(trials, autojump_clock):
    with pytest.raises(KafkaError, match="10 to 300 seconds"):
        await trials.compare({"num.io.threads": "64"}, 301)
    assert await trials.compare({"num.io.threads": "8"}, 30) is None
    await trials.compare({"num.io.threads": "64"}, 30)
    for again in (trials.compare, trials.begin):
        with pytest.raises(KafkaError, match="is being tried"):
            await again({"queued.max.requests": "5"}, 30)
