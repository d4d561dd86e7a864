"""A build hook of hatch: the README as a package index shows it, where links between files lead nowhere.

With the two addresses of ``[tool.hatch.metadata.hooks.custom]`` such links and pictures become absolute ones, to the
files of the version that is built. Without, links become their text and pictures are left out, so that the page of a
package whose repository has no address yet has no dead link.

Source: hatch's reference of metadata hooks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK: Final = re.compile(r"(?P<is_picture>!?)\[(?P<text>[^\]]*)\]\((?!\w+:)(?P<target>[^)]+)\)")
"""A link, or a picture, to a file of the repository or to a heading of the README itself."""


class IndexReadme(MetadataHookInterface):
    """Gives the package its description."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        pages, pictures = self.config.get("pages", ""), self.config.get("pictures", "")
        text = readme_of_index(text, metadata["version"], pages=pages, pictures=pictures)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def readme_of_index(text: str, version: str, *, pages: str, pictures: str) -> str:
    """``text`` without links that need the repository around them.

    ``pages`` and ``pictures`` are addresses with ``{version}`` and ``{path}`` in them, or empty.
    """

    def replaced(link: re.Match[str]) -> str:
        path, number_sign, heading = link["target"].partition("#")
        address = pictures if link["is_picture"] else pages
        if not address:
            return "" if link["is_picture"] else link["text"]
        address = address.format(version=version, path=path.rstrip("/") or "README.md")
        return f"{link['is_picture']}[{link['text']}]({address}{number_sign}{heading})"

    return LINK.sub(replaced, text)
