"""``/api/v1/config`` over a real broker: what each key shows, and changing some."""

from __future__ import annotations

from tests.admin.live_admin import LiveAdmin


async def test_a_key_shows_everything_about_itself(live: LiveAdmin) -> None:
    await live.http.patch("/api/v1/config", json={"num.io.threads": 12})
    configs = (await live.get("/api/v1/config"))["configs"]
    documentation = configs["num.io.threads"].pop("documentation")
    assert documentation.startswith("How many requests are handled at a time")
    assert configs["num.io.threads"] == {
        "name": "num.io.threads",
        "group": "Listeners and connections",
        "value": "12",
        "effective_value": "12",
        "source": "DYNAMIC_BROKER_CONFIG",
        "read_only": False,
        "update_mode": "cluster-wide",
        "default": "8",
        "type": "int",
        "unit": None,
        "valid_values": "at least 1",
        "bounds": {"minimum": 1, "maximum": None, "special": None, "choices": []},
        "synonyms": [
            {"name": "num.io.threads", "value": "12", "source": "DYNAMIC_BROKER_CONFIG"},
            {"name": "num.io.threads", "value": "8", "source": "DEFAULT_CONFIG"},
        ],
        "levels": [
            {"level": "broker", "name": "num.io.threads", "value": "12", "origin": "", "wins": True},
            {"level": "built-in", "name": "num.io.threads", "value": "8", "origin": "", "wins": False},
        ],
        "sensitive": False,
        "allowed_range": {"minimum": 1, "maximum": 256},
    }


async def test_a_key_whose_fallback_is_in_effect_shows_that_value_and_its_name(live: LiveAdmin) -> None:
    retention = (await live.get("/api/v1/config"))["configs"]["log.retention.ms"]
    assert (retention["value"], retention["effective_value"], retention["unit"]) == (None, "604800000", "ms")
    [level] = retention["levels"]
    assert (level["level"], level["name"], level["value"], level["wins"]) == (
        "built-in",
        "log.retention.hours",
        "168",
        True,
    )
