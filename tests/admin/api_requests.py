"""Requests made from the API's own description, right ones and wrong ones, and a check of answers against it.

A small part of what JSON Schema has: the words that ``broker_admin/schemas.py`` writes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import attrs

Schema = Mapping[str, Any]

ODD_TEXTS = ("", "0", "-1", "null", "orders", "<b>", "a/b", "..", "\x00", "\u202e", "x" * 300, "日本", "true", "9" * 30)
"""Texts that programs stumble over."""


@attrs.frozen
class ApiRequest:
    """One request. ``wrong`` names what is not as described, or is empty."""

    method: str
    address: str
    headers: Mapping[str, str]
    json: Any = None
    wrong: str = ""


@attrs.frozen
class ApiDescription:
    """The description of the API, read by a client."""

    document: Mapping[str, Any]

    def resolved(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            words = {name: value for name, value in schema.items() if name != "$ref"}
            schema = {**self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], **words}
        return schema

    # ---- requests ----

    def requests(self, path: str, method: str, names: Mapping[str, str], count: int) -> Iterator[ApiRequest]:
        """Requests of one operation, the same in each run; ``names`` are what is there, by path parameter."""
        chance = random.Random(f"{method} {path}")
        operation = self.document["paths"][path][method]
        for number in range(count):
            yield self.request(path, method, operation, names, chance, is_wrong=number % 2 == 1)

    def request(
        self,
        path: str,
        method: str,
        operation: Mapping[str, Any],
        names: Mapping[str, str],
        chance: random.Random,
        *,
        is_wrong: bool,
    ) -> ApiRequest:
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        parameters = operation["parameters"]
        query_schemas = {each["name"]: each["schema"] for each in parameters if each["in"] == "query"}
        sure = [name for name, schema in query_schemas.items() if self.can_be_wrong(schema)]
        choices = [f"?{name}" for name in sure] + (["body"] if body is not None else [])
        choices += ["X-Requested-With"] if any(each["in"] == "header" for each in parameters) else []
        wrong = chance.choice(choices) if is_wrong and choices else ""
        query = []
        for each in parameters:
            if each["in"] != "query" or not (each["required"] or chance.random() < 0.5 or wrong == f"?{each['name']}"):
                continue
            if wrong == f"?{each['name']}":
                query.append((each["name"], "no such value"))
            else:
                value = self.right(each["schema"], chance, each["name"], names)
                query += [(each["name"], item) for item in (value if isinstance(value, list) else [value])]
        # Clients take the empty text and dots for another address.
        in_path = {
            each["name"]: names.get(each["name"], "0")
            if chance.random() < 0.7
            else chance.choice([text for text in ODD_TEXTS if text not in ("", "..")])
            for each in parameters
            if each["in"] == "path"
        }
        address = re.sub(r"\{(\w+)\}", lambda found: quote(in_path[found[1]], safe=""), path)
        address += "?" + "&".join(f"{name}={quote(query_text(value), safe='')}" for name, value in query)
        headers = {"x-requested-with": "" if wrong == "X-Requested-With" else "a test"}
        if body is None:
            return ApiRequest(method.upper(), address, headers, wrong=wrong)
        json = self.wrong(body, chance) if wrong == "body" else self.right(body, chance, "", names)
        return ApiRequest(method.upper(), address, headers, json, wrong)

    def can_be_wrong(self, schema: Schema) -> bool:
        """Whether the text ``no such value`` is none that such a parameter takes."""
        schema = self.resolved(schema)
        if "anyOf" in schema:
            return all(self.can_be_wrong(each) for each in schema["anyOf"] if each.get("type") != "null")
        if schema.get("type") == "array":
            return self.can_be_wrong(schema["items"])
        return "enum" in schema or schema.get("type") in ("integer", "number", "boolean")

    def right(self, schema: Schema, chance: random.Random, name: str, names: Mapping[str, str]) -> Any:
        """A value that ``schema`` describes."""
        schema = self.resolved(schema)
        if name in names and schema.get("type") == "string" and chance.random() < 0.7:
            return names[name]
        if "enum" in schema:
            return chance.choice(schema["enum"])
        if "anyOf" in schema:
            return self.right(chance.choice(schema["anyOf"]), chance, name, names)
        kind = schema.get("type")
        if kind == "object" and "properties" in schema:
            return {
                key: self.right(each, chance, key, names)
                for key, each in schema["properties"].items()
                if key in schema["required"] or chance.random() < 0.5
            }
        if kind == "object":
            of = schema.get("additionalProperties", {})
            return {chance.choice(ODD_TEXTS): self.right(of, chance, "", names) for _ in range(chance.randrange(3))}
        if kind == "array":
            most = min(schema.get("maxItems", 3), 3)
            return [self.right(schema["items"], chance, name, names) for _ in range(chance.randint(1, max(most, 1)))]
        if kind == "integer":
            low, high = schema.get("minimum", -(2**31)), schema.get("maximum", 2**31)
            return chance.choice([low, high, chance.randint(low, high), max(low, min(high, chance.randrange(5)))])
        if kind == "number":
            return chance.choice([schema.get("minimum", 0), schema.get("maximum", 1)])
        if kind == "string":
            texts = [text for text in ODD_TEXTS if self.complaint(text, schema) is None]
            return chance.choice(texts or ["orders"])
        return {"boolean": chance.random() < 0.5, "null": None}.get(kind or "", "anything")

    def wrong(self, schema: Schema, chance: random.Random) -> Any:
        """A value that ``schema`` does not describe."""
        schema = self.resolved(schema)
        others = [5, "text", [], None, True, {"no such name": {"deep": [1]}}, {}]
        candidates = [each for each in others if self.complaint(each, schema) is not None]
        return chance.choice(candidates)

    # ---- answers ----

    def complaint(self, value: Any, schema: Schema, place: str = "") -> str | None:
        """Where ``value`` is not what ``schema`` describes, or None."""
        schema = self.resolved(schema)
        if "anyOf" in schema:
            complaints = [self.complaint(value, each, place) for each in schema["anyOf"]]
            return None if None in complaints else str(complaints[0])
        if "enum" in schema and value not in schema["enum"]:
            return f"{place}: {value!r:.40} is none of {schema['enum']}"
        kind = schema.get("type")
        if kind is not None and not is_of_type(value, kind):
            return f"{place}: {value!r:.40} is no {kind}"
        if isinstance(value, str | list) and not (
            schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", schema.get("maxItems", len(value)))
        ):
            return f"{place}: {value!r:.40} is of the wrong length"
        if isinstance(value, str) and re.fullmatch(schema.get("pattern", r"[\s\S]*"), value) is None:
            return f"{place}: {value!r:.40} does not match"
        if isinstance(value, list):
            found = (self.complaint(each, schema["items"], f"{place}/{at}") for at, each in enumerate(value))
            return next((each for each in found if each is not None), None)
        if isinstance(value, dict):
            return self.complaint_of_object(value, schema, place)
        return None

    def complaint_of_object(self, value: dict[str, Any], schema: Schema, place: str) -> str | None:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        if missing := set(schema.get("required", ())) - value.keys():
            return f"{place}: {min(missing)} is missing"
        for name, each in value.items():
            if name not in properties and (others is False or "properties" in schema):
                return f"{place}: {name} is not described"
            if complaint := self.complaint(each, properties.get(name, others), f"{place}/{name}"):
                return complaint
        return None


def query_text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_of_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool) or value is None:
        return kind == ("boolean" if value is not None else "null")
    kinds: Mapping[str, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "array": list,
        "object": dict,
    }
    return kind in kinds and isinstance(value, kinds[kind])
