"""Title the chunks of a document by the headings above them, or by the document's title."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from graphmem_torch.atoms import one_line
from graphmem_torch.lazy import lazy_pattern

__all__ = ["chunk_titles", "file_title", "heading_paths"]

MARKDOWN = (".md", ".markdown")
"""File suffixes of documents whose headings are read."""
_BETWEEN = " > "
_FENCE = lazy_pattern(r" {0,3}(`{3,}|~{3,})")
_HEADING = lazy_pattern(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = lazy_pattern(r" {0,3}(=+|-{2,})[ \t]*$")
_NO_TEXT = lazy_pattern(r"\s*(?:[>|+*-]|\d+[.)])(?:\s|$)|\s*$| {4}")  # no heading above a line
_LINK = lazy_pattern(r"!?\[([^\]]*)\]\([^)]*\)")
_SIGNS = lazy_pattern(r"[*`]+|(?<!\w)_+|_+(?!\w)")
_NAMED = lazy_pattern(r"title:[ \t]*(.+)", re.IGNORECASE)


def chunk_titles(
    text: str, slices: Sequence[tuple[int, int]], name: str, title: str | None = None
) -> list[str | None]:
    """Return the title of each chunk of a document.

    In Markdown the title is the headings that apply to the whole chunk, outermost first, including
    one at its beginning. Chunks without headings and other texts get the title of the document.

    Args:
        text: Document.
        slices: Start and end of each chunk, ascending.
        name: Path of the document, whose suffix shows whether it is Markdown.
        title: Title of the document, or None.
    """
    own = one_line(title)
    if PurePosixPath(name).suffix.lower() not in MARKDOWN:
        return [own] * len(slices)
    sections = list(heading_paths(text))
    starts = [start for start, _ in sections]
    ends = [*starts[1:], len(text)]
    titles: list[str | None] = []
    first = 0
    for start, end in slices:
        while first + 1 < len(starts) and ends[first] <= start:
            first += 1
        within: list[tuple[str, ...]] = []
        for section in range(first, len(starts)):
            if starts[section] >= end:
                break
            if text[max(start, starts[section]) : min(end, ends[section])].strip():
                within.append(sections[section][1])
        titles.append(_BETWEEN.join(_common(within)) or own)
    return titles


def file_title(name: str) -> str | None:
    """Return the title in a file's name: the name without folders and suffix."""
    return one_line(PurePosixPath(name).stem.replace("_", " "))


def heading_paths(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the start of each section of a Markdown text, with the headings that apply to it.

    Headings are lines of `#` and underlined ones (CommonMark 4.2 and 4.3), outside fenced code. A
    `title` in the front matter is the outermost heading.

    Yields:
        Position of the first character, and the headings, outermost first; the first section starts
        at 0.
    """
    at, above = _front_matter(text)
    yield 0, above
    path: dict[int, str] = {}
    fence = ""
    before, begun = "", at  # the line before, and where it starts
    for line in text[at:].splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        fenced = _FENCE.match(bare)
        if fence:
            if fenced and fenced[1].startswith(fence) and not bare[fenced.end() :].strip():
                fence = ""
            before = ""
        elif fenced:
            fence, before = fenced[1], ""
        else:
            level, said, start = 0, "", at
            if heading := _HEADING.match(bare):
                level, said = len(heading[1]), heading[2] or ""
            elif before and (under := _UNDERLINE.match(bare)):
                level, said, start = (1 if under[1][0] == "=" else 2), before, begun
            if level:
                path = {depth: each for depth, each in path.items() if depth < level}
                if title := _plain(said):
                    path[level] = title
                yield start, (*above, *(each for each in path.values() if (each,) != above))
            before = "" if level or _NO_TEXT.match(bare) else bare
            begun = at
        at += len(line)


def _front_matter(text: str) -> tuple[int, tuple[str, ...]]:
    """Return the position after a front matter, and the title in it."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != "---":
        return 0, ()
    at, title = len(lines[0]), ""
    for line in lines[1:]:
        at += len(line)
        if line.rstrip() in ("---", "..."):
            return at, (title,) if title else ()
        if named := _NAMED.match(line):
            title = _plain(named[1].strip().strip("\"'"))
    return 0, ()


def _plain(heading: str) -> str:
    """Return a heading without links and emphasis."""
    return one_line(_SIGNS.sub("", _LINK.sub(r"\1", heading))) or ""


def _common(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the headings that all paths begin with."""
    if not paths:
        return ()
    shared = 0
    while all(len(path) > shared and path[shared] == paths[0][shared] for path in paths):
        shared += 1
    return paths[0][:shared]
