"""Text that is no expression: what is taken for text, what for an expression, and in what it is looked for."""

from __future__ import annotations

import pytest

from broker_admin.filters.errors import FilterSyntaxError
from broker_admin.filters.record_filter import RecordFilter
from broker_admin.views.cluster.messages import NewMessage
from kafka_wire.stored.metadata import ConfigRecord
from tests.admin.live_admin import LiveAdmin
from tests.fakes.metadata_logs import append

RECORDS = "/api/v1/topics/orders/records"

TEXTS = {
    "Ünal": "Ünal",
    " order 17 ": "order 17",
    "a+b": "a+b",
    "key": "key",
    "timestamp": "timestamp",
    "42": "42",
    "-5": "-5",
    "true": "true",
    "2026-11-28": "2026-11-28",
    '"a == b"': "a == b",
    r"'tab\t'": "tab\t",
    '"open': '"open',
    "<key>5</key>": "<key>5</key>",
    "YWJj==": "YWJj==",
    "key: abc": "key: abc",
    "for this value. Then": "for this value. Then",
    "error in value": "error in value",
    '{"id": 1}': '{"id": 1}',
    "http://x/?a=1&b=2": "http://x/?a=1&b=2",
    "foo -> bar": "foo -> bar",
    "orders.created": "orders.created",
    "o'neil": "o'neil",
    "value-key": "value-key",
    "size(3)": "size(3)",
}
"""What is typed, and the text that is looked for."""

EXPRESSIONS = (
    "value.n>2",
    "value.paid",
    "!value.paid",
    "key == 'x'",
    "key=='x'",
    "headers['trace'] == '7'",
    "'a' in headers",
    "offset in [1, 2]",
    "5 < offset",
    "offset>5",
    "offset%10==3",
    "has(value.a)",
    "size(key) == 2",
    "key.startsWith('c')",
    "string(value.n).matches('^1')",
    "1 == 1",
)

ERRORS = {
    "value.": "character 7",
    "value.n >": "needs|end|found|character",
    "key = 'x'": "equality is ==",
    "vaule.amount > 100": "vaule",
    "value.n == 1 &&": "character",
    'key == "open': "no closing",
}
"""Wrong expressions, and what the error says of each."""


@pytest.mark.parametrize("typed", TEXTS)
def test_what_is_no_expression_is_text(typed: str) -> None:
    found = RecordFilter.of(typed)
    assert found.understood.startswith("contains ")
    assert RecordFilter.compile(found.as_expression) is not None
    assert found.evaluate is not None


@pytest.mark.parametrize("typed", EXPRESSIONS)
def test_an_expression_stays_one(typed: str) -> None:
    assert RecordFilter.of(typed).understood == ""


@pytest.mark.parametrize("typed", ERRORS)
def test_a_wrong_expression_is_an_error_that_offers_quotes(typed: str) -> None:
    with pytest.raises(FilterSyntaxError, match=f"(?s)({ERRORS[typed]}).*|in quotes") as caught:
        RecordFilter.of(typed)
    assert "in quotes it is searched for as text" in str(caught.value)


FOUND = {
    "ünal": ["name"],
    "ÜNAL": ["name"],
    "STRASSE": ["street"],
    "order 17": ["spaces"],
    '"id":1': ["compact"],
    '"id": 1': ["compact"],
    "K-NULL": ["k-null"],
    "00ff": ["binary"],
    "51966": ["number"],
    "caf\u00e9": ["escaped"],
    "nowhere": [],
}
"""What is typed, and the keys of the records that contain it."""


async def test_text_is_found_in_key_and_value_in_upper_and_lower_case(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    records = {
        b"name": "Ayşe Ünal".encode(),
        b"street": "Lange Straße".encode(),
        b"spaces": b"the order 17 of today",
        b"compact": b'{"id":1}',
        b"k-null": None,
        b"binary": b"\xff\x00\xff\xfe\xfd",
        b"number": b"\x00\x00\xca\xfe",
        b"escaped": b'{"at": "caf\\u00e9"}',
    }
    await live.view.cluster.messages.append("orders", [NewMessage(key, value) for key, value in records.items()])
    for typed, keys in FOUND.items():
        answer = await live.get(RECORDS, where=typed)
        assert ([each["key"]["data"] for each in answer["records"]], answer["failed_records"]) == (keys, 0), typed
        assert answer["understood"].startswith("contains ")


async def test_passwords_are_not_found_where_they_are_hidden(live: LiveAdmin) -> None:
    """They are in the bytes of the metadata log, of which only what is shown is searched."""
    secret = ConfigRecord(resource_type=4, resource_name="", name="sasl.jaas.config", value="hunter2")
    await append(live.broker.services.metadata_log, [secret])
    address = "/api/v1/topics/__cluster_metadata/records"
    assert (await live.get(address, where="hunter2"))["records"] == []
    assert (await live.get(address, where="sasl.jaas.config"))["records"] != []


async def test_the_page_says_how_text_was_understood(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    page = (await live.http.get("/topics/orders/messages", params={"where": "Ünal"})).text
    assert "contains &#34;Ünal&#34; in key or value, in upper or lower case" in page
    assert "<code>key.contains(&#34;Ünal&#34;)</code>" in page
    assert "data-understood" not in (await live.http.get("/topics/orders/messages?where=value.n%3E1")).text
