"""Shared by the tests of the report: a page, and the elements a browser would find in it."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from graphmem_torch.memory import Memory


class Page(HTMLParser):
    """Tags with their attributes, the visible text, and the content of each script and style."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.source = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self.words: list[str] = []
        self._inside: tuple[str, dict[str, str | None]] | None = None
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = (tag, dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        if self._inside is not None and tag == self._inside[0]:
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside is None:
            self.words.append(data)
        else:
            self.raw.append((*self._inside, data))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def data(self) -> dict[str, Any]:
        (found,) = [text for _, attrs, text in self.raw if attrs.get("id") == "data"]
        return json.loads(found)


def page_of(memory: Memory, folder: Path, **options: Any) -> Page:
    """The page of a memory, whose nodes are placed in few steps."""
    path = folder / "report.html"
    memory.report(path, iterations=10, **options)
    return Page(path)


def unpacked(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)
