"""Levels of loggers as settings."""

from __future__ import annotations

import logging

import pytest

from trio_broker.config.entries import ConfigSource, LoggerLevel
from trio_broker.config.errors import ConfigError
from trio_broker.config.loggers import check_level, logger_entries, logger_levels, set_level

NAME = "trio_broker.test_of_levels"


@pytest.fixture(autouse=True)
def logger():
    made = logging.getLogger(NAME)
    yield made
    made.setLevel(logging.NOTSET)


def described(name):
    return next(entry for entry in logger_entries() if entry.name == name)


def test_a_level_has_log4js_name_and_is_in_effect_at_once(logger):
    set_level(NAME, "warn")
    assert logger.level == logging.WARNING
    assert (described(NAME).value, described(NAME).source) == ("WARN", ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG)


def test_a_logger_without_a_level_shows_and_follows_its_parents(logger):
    set_level(NAME, "FATAL")
    set_level(NAME, None)
    assert logger.level == logging.NOTSET
    assert described(NAME).value == described("root").value


def test_changes_are_shown_as_they_would_be_without_being_made(logger):
    child = logging.getLogger(f"{NAME}.child")
    levels = {each.name: each for each in logger_levels({NAME: "error"})}
    assert levels[NAME] == LoggerLevel(NAME, "ERROR", "ERROR", None)
    assert levels[child.name] == LoggerLevel(child.name, "ERROR", None, NAME)
    assert logger.level == logging.NOTSET


def test_a_change_is_logged(logger, caplog):
    set_level(NAME, "error")
    set_level(NAME, None)
    assert caplog.messages == [
        f"the level of the logger {NAME} is now ERROR",
        f"the level of the logger {NAME} is now that of its parent",
    ]


def test_a_level_between_two_counts_as_the_coarser(logger):
    logger.setLevel(logging.INFO + 1)
    assert described(NAME).value == "WARN"
    logger.setLevel(logging.CRITICAL + 1)
    assert described(NAME).value == "FATAL"


@pytest.mark.parametrize(
    ("name", "level", "reason"),
    [
        ("no.such", "INFO", "there is no logger"),
        (NAME, "LOUD", "must be one of TRACE"),
        ("root", None, "always has a level"),
    ],
)
def test_what_cannot_be_is_refused(name, level, reason):
    with pytest.raises(ConfigError, match=reason):
        check_level(name, level)


def test_foreign_loggers_are_not_listed():
    logging.getLogger("somebody_else")
    assert "somebody_else" not in {entry.name for entry in logger_entries()}


def test_a_package_that_only_has_loggers_below_it_can_be_given_a_level():
    logging.getLogger("trio_broker.test_of_packages.below")
    assert described("trio_broker.test_of_packages").value == described("root").value
    check_level("trio_broker.test_of_packages", "ERROR")
    set_level("trio_broker.test_of_packages", "ERROR")
    try:
        assert described("trio_broker.test_of_packages.below").value == "ERROR"
    finally:
        set_level("trio_broker.test_of_packages", None)
