"""Tables of a report, printed as text, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from graphmem_torch.evaluation.retrieval import text_table

__all__ = ["Head", "Table", "tables_as_csv", "tables_as_latex"]
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)


@dataclass(frozen=True, slots=True)
class Head:
    """Column of a table.

    Attributes:
        title: Head of the column.
        show: Format of a value in text; CSV has the value itself.
    """

    title: str
    show: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values; `str` gives a text table.

    Attributes:
        columns: C columns.
        rows: C values each: texts, numbers, None, or [mean, low, high].
        notes: Lines below the table.
    """

    columns: Sequence[Head]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()

    @classmethod
    def of_texts(cls, rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> Table:
        """Return a table of text cells; the first row is the head."""
        return cls([Head(title) for title in rows[0]], rows[1:], notes)

    def __str__(self) -> str:
        return "\n".join([*text_table(self._shown()), *self.notes])

    def _shown(self) -> list[list[str]]:
        cells = [
            [column.show(value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]
        return [[column.title for column in self.columns], *cells]

    def values(self) -> list[list[Any]]:
        """Return head and rows for CSV: an interval is three columns, None is empty."""
        wide = [
            any(_is_interval(row[place]) for row in self.rows) for place in range(len(self.columns))
        ]
        titles = _distinct([column.title for column in self.columns])
        head: list[Any] = []
        for title, three in zip(titles, wide, strict=True):
            head += [title, f"{title} low", f"{title} high"] if three else [title]
        lines = [head]
        for row in self.rows:
            line: list[Any] = []
            for value, three in zip(row, wide, strict=True):
                line += (
                    (value if _is_interval(value) else [value, None, None]) if three else [value]
                )
            lines.append(line)
        return lines

    def latex(self) -> str:
        """Return a `tabular` with the rules of the package booktabs."""
        head, *rows = ([cell.translate(_LATEX) for cell in row] for row in self._shown())
        return "\n".join(
            [
                *(f"% {note}" for note in self.notes),
                rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
                r"\toprule",
                " & ".join(head) + r" \\",
                r"\midrule",
                *(" & ".join(row) + r" \\" for row in rows),
                r"\bottomrule",
                r"\end{tabular}",
            ]
        )


def tables_as_csv(tables: Iterable[Table]) -> str:
    """Return some tables as CSV, with a blank line between them."""
    parts = []
    for table in tables:
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows(table.values())
        parts.append(stream.getvalue())
    return "\n".join(parts)


def tables_as_latex(tables: Iterable[Table]) -> str:
    """Return some tables as LaTeX, in their text format, with a blank line between them."""
    return "\n\n".join(table.latex() for table in tables) + "\n"


def _is_interval(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _distinct(titles: Sequence[str]) -> list[str]:
    """Return distinct titles: repeated ones such as `@25` get the preceding title as prefix."""
    found, head = [], ""
    for title in titles:
        if title.startswith("@"):
            title = f"{head} {title}"
        elif " @" in title:
            head = title.rpartition(" @")[0]
        found.append(title)
    return found
