"""Values that callers send, made into instances of attrs classes, or refused with a pointer to each wrong one.

Strict where cattrs is lenient: the number 5 is no text, the text "5" in a JSON body is no number, a name that the class
does not have is refused. Parameters of a query are text, so numbers and booleans are read from it. The class says
everything (``schemas.py``), and ``openapi.json`` says the same of it.
"""

from __future__ import annotations

import enum
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import attrs
from starlette.datastructures import QueryParams

from broker_admin.encoding import converter
from broker_admin.problems import FieldError, Problem, body_pointer, query_pointer
from broker_admin.schemas import hints_of, is_required, json_name, words_of

T = TypeVar("T")

MAX_SHOWN_CHARACTERS = 60
"""As much of a refused value as the answer repeats."""

MAX_DIGITS = 19
"""Of a whole number in a query, as an int64 has. Python takes seconds for the digits of a megabyte."""

MAX_INT32_DIGITS = 10
"""Of the number of a partition, or the id of a broker, in a path."""

Path = tuple[str | int, ...]
"""The names and indexes that lead to a value of the body."""


def structure_body(value: Any, wanted: type[T]) -> T:
    """The JSON ``value`` as an instance of the attrs class ``wanted``.

    Raises:
        Problem: 422, with a pointer to each value that is wrong.
    """
    structurer = Structurer(lambda path: body_pointer(*path))
    structured: T = structurer.structure(value, wanted, (), {})
    if structurer.errors:
        raise Problem.of_errors(422, structurer.errors)
    return structured


def structure_query(parameters: QueryParams, wanted: type[T]) -> T:
    """The parameters of a query as an instance of the attrs class ``wanted``; an empty one counts as not given.

    Parameters that the class does not have are left alone.

    Raises:
        Problem: 400, with a pointer to each parameter that is wrong.
    """
    structurer = Structurer(lambda path: query_pointer(str(path[0])))
    given: dict[str, Any] = {}
    hints: Mapping[str, Any] = hints_of(wanted)  # type: ignore[arg-type]
    for field in attrs.fields(wanted):  # type: ignore[arg-type]
        name, annotation = json_name(field), hints[field.name]
        is_list = typing.get_origin(annotation) is tuple
        of = typing.get_args(annotation)[0] if is_list else annotation
        # A form sends its empty fields. In a list of numbers an empty one is a mistake, and must not come to mean all.
        values = [read_text(text, of) for text in parameters.getlist(name) if text or (is_list and of is not str)]
        if len(values) > 1 and not is_list:
            structurer.refuse((name,), f"{name} is given {len(values)} times")
        elif values:
            value = values if is_list else values[0]
            given[field.alias] = structurer.structure(value, annotation, (name,), words_of(field))
        elif is_required(field):
            structurer.refuse((name,), f"{name} is missing")
    if structurer.errors:
        raise Problem.of_errors(400, structurer.errors, "the query cannot be answered")
    return wanted(**given)


def number_in_path(text: str) -> int | None:
    """The number of a partition or the id of a broker; None if ``text`` is none."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_INT32_DIGITS
    return int(text) if is_number else None


def read_text(text: str, wanted: Any) -> Any:
    """What a parameter's text means where ``wanted`` is asked for; the text itself where it means nothing else."""
    plain = typing.get_args(wanted) or (wanted,)  # of a union, or of what is annotated with bounds
    if int in plain and re.fullmatch(rf"-?[0-9]{{1,{MAX_DIGITS}}}", text):
        return int(text)
    if float in plain and re.fullmatch(rf"-?[0-9]{{1,{MAX_DIGITS}}}(\.[0-9]{{1,{MAX_DIGITS}}})?", text):
        return float(text)
    if bool in plain and text in ("true", "false"):
        return text == "true"
    return text


@attrs.define
class Structurer:
    """Makes values of what was sent, and notes in ``errors`` what cannot be made; the result then means nothing."""

    pointer_to: Callable[[Path], str]
    errors: list[FieldError] = attrs.field(factory=list)

    def refuse(self, path: Path, detail: str) -> None:
        self.errors.append(FieldError(self.pointer_to(path), detail))

    def structure(self, value: Any, wanted: Any, path: Path, words: Mapping[str, Any]) -> Any:
        """``value``, as ``json`` reads one, as a value of the type ``wanted``; ``words`` bound it (``schemas.py``)."""
        if typing.get_origin(wanted) is Annotated:
            wanted, annotated = typing.get_args(wanted)
            words = annotated.words
        if not is_of_kind(value, wanted) or out_of_bounds(value, words):
            name = next((name for name in reversed(path) if isinstance(name, str)), "the body")
            self.refuse(path, f"{name} is {described(wanted, words)}, not {shown(value)}")
            return None
        origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
        if origin in (typing.Union, types.UnionType):
            [fitting, *_] = [each for each in arguments if is_of_kind(value, each)]
            return self.structure(value, fitting, path, words)
        if origin is tuple:
            return tuple(self.structure(item, arguments[0], (*path, index), {}) for index, item in enumerate(value))
        if origin in (dict, Mapping):
            return {name: self.structure(item, arguments[1], (*path, name), {}) for name, item in value.items()}
        if isinstance(wanted, type) and attrs.has(wanted):
            return self.structure_class(value, wanted, path)
        if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
            return next(member for member in wanted if converter.unstructure(member) == value)
        return float(value) if wanted is float else value

    def structure_class(self, value: dict[str, Any], wanted: type, path: Path) -> Any:
        """The members of a JSON object as an instance of an attrs class."""
        noted = len(self.errors)
        fields = {json_name(field): field for field in attrs.fields(wanted)}
        for name in value.keys() - fields.keys():
            self.refuse((*path, name), f"there is no {shown(name)} here, only {', '.join(fields)}")
        given = {}
        for name, field in fields.items():
            if name in value:
                annotation = hints_of(wanted)[field.name]
                given[field.alias] = self.structure(value[name], annotation, (*path, name), words_of(field))
            elif is_required(field):
                self.refuse((*path, name), f"{name} is missing")
        return wanted(**given) if len(self.errors) == noted else None


def is_of_kind(value: Any, wanted: Any) -> bool:
    """Whether ``value`` is of the kind of JSON value that ``wanted`` is made of; not whether all in it is right."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any:
        return True
    if origin is Annotated:
        return is_of_kind(value, arguments[0])
    if origin in (typing.Union, types.UnionType):
        return any(is_of_kind(value, each) for each in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, list)
    if origin in (dict, Mapping) or attrs.has(wanted):
        return isinstance(value, dict)
    if issubclass(wanted, enum.Enum):
        return isinstance(value, str) and any(converter.unstructure(member) == value for member in wanted)
    if isinstance(value, bool):  # which is an int to Python
        return wanted is bool
    return isinstance(value, int | float if wanted is float else wanted)


def out_of_bounds(value: Any, words: Mapping[str, Any]) -> bool:
    """Whether a value of the right kind breaks one of the ``words`` that it was declared with."""
    if value is None:
        return False
    if isinstance(value, str | list | dict):
        most = words.get("maxLength", words.get("maxItems", words.get("maxProperties")))
        least = words.get("minLength", words.get("minItems", words.get("minProperties", 0)))
        if len(value) < least or (most is not None and len(value) > most):
            return True
    elif not words.get("minimum", value) <= value <= words.get("maximum", value):
        return True
    if "enum" in words and value not in words["enum"]:
        return True
    return "pattern" in words and re.fullmatch(words["pattern"], value) is None


KINDS: Mapping[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    types.NoneType: "null",
}


def described(wanted: Any, words: Mapping[str, Any]) -> str:
    """What may stand in a place, as the end of a sentence that begins with its name."""
    arguments = typing.get_args(wanted)
    if "enum" in words:
        return f"one of {', '.join(map(str, words['enum']))}"
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        return ", or ".join(described(each, words if each is not types.NoneType else {}) for each in arguments)
    if typing.get_origin(wanted) is typing.Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return f"one of {', '.join(str(converter.unstructure(member)) for member in wanted)}"
    if wanted in KINDS:
        return KINDS[wanted] + bounds_text(words)
    return ("a list" if typing.get_origin(wanted) is tuple else "an object of names and values") + bounds_text(words)


def bounds_text(words: Mapping[str, Any]) -> str:
    """Bounds as they follow the kind: `` from 1 to 1000``."""
    texts = []
    if "minimum" in words and "maximum" in words:
        texts.append(f"from {words['minimum']} to {words['maximum']}")
    elif "minimum" in words:
        texts.append(f"of at least {words['minimum']}")
    elif "maximum" in words:
        texts.append(f"of at most {words['maximum']}")
    if least := words.get("minLength", words.get("minItems", words.get("minProperties", 0))):
        texts.append(f"at least {least} long")
    if most := words.get("maxLength", words.get("maxItems", words.get("maxProperties"))):
        texts.append(f"at most {most} long")
    if "pattern" in words:
        texts.append(f"that matches {words['pattern']}")
    return "".join(" " + text for text in texts)


def shown(value: Any) -> str:
    """A refused value, cut to what fits into a sentence; of several only what holds them, since one may be a secret."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "…"
