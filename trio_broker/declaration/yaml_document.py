"""Reads the document of a declaration from YAML, which may say what TOML may and nothing else.

Texts, whole numbers, fractions, ``true`` and ``false`` are those of YAML 1.2; in YAML 1.1, which PyYAML reads by
itself, ``no`` is false, ``1:1`` is 61 and ``012`` is 10. A key is a text and stands once in its mapping. A value that
is left out is an empty mapping, so that ``orders:`` is a topic of which nothing else is declared.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import yaml
from yaml.constructor import ConstructorError


class DocumentLoader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
    """Makes texts, numbers, lists and dicts, and no other objects."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        """Return the dict of ``node``.

        Raises:
            ConstructorError: a key is no text, or stands there twice.
        """
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise ConstructorError(None, None, f"the key {key!r} needs quotes", key_node.start_mark)
            if key in made:
                raise ConstructorError(None, None, f"{key} stands here twice", key_node.start_mark)
            made[key] = self.construct_object(value_node, deep=True)
        return made

    def nothing(self, node: yaml.ScalarNode) -> dict[str, Any]:
        return {}


for tag, pattern, first in (
    ("bool", r"true|false", "tf"),
    ("int", r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)", "-+0123456789"),
    ("float", r"[-+]?(0|[1-9][0-9]*)\.[0-9]+([eE][-+]?[0-9]+)?", "-+0123456789"),
    ("null", r"~|null|", ["~", "n", ""]),
):
    DocumentLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), list(first))
DocumentLoader.add_constructor("tag:yaml.org,2002:map", DocumentLoader.mapping)
DocumentLoader.add_constructor("tag:yaml.org,2002:null", DocumentLoader.nothing)


def parse_yaml(text: str) -> Any:
    """Return what ``text`` says.

    Raises:
        ValueError: it is no YAML, or has what is not taken here. The message begins with line and column, if there is
            one.
    """
    try:
        # A document without anything is None, whatever the loader makes of what is left out.
        return yaml.load(text, DocumentLoader) or {}
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"{mark.line + 1}:{mark.column + 1}: "
        raise ValueError(where + ", ".join(filter(None, (error.context, error.problem)))) from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
