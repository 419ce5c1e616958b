"""The names of concepts, found by themselves, by their concepts and by their words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, KeysView

import torch
from torch import Tensor

from graphmem_torch.ops.growing import GrowingRows

__all__ = ["Forms", "Lexicon", "NameVectors"]

Forms = Callable[[str], Collection[str]]
"""Of a word what a text may have in its place, `spelled`; see `names_within`."""

_LEAST = 64  # rows of names that are gone which are always passed over


class Lexicon:
    """Names, each of a concept that is told by a number: one of them is its own."""

    def __init__(self) -> None:
        """Without a name."""
        self._concept: dict[str, int] = {}
        self._names: dict[int, dict[str, None]] = {}
        self._others: dict[str, None] = {}
        self._forms: Forms | None = None
        self._starting: defaultdict[str, dict[str, None]] = defaultdict(dict)

    def __contains__(self, name: object) -> bool:
        """Whether a name has a concept."""
        return name in self._concept

    def __getitem__(self, name: str) -> int:
        """The concept of a name."""
        return self._concept[name]

    def put(self, name: str, concept: int, *, own: bool) -> None:
        """Gives a name, which has none, to a concept, as its own one or as another."""
        self._concept[name] = concept
        self._names.setdefault(concept, {})[name] = None
        if not own:
            self._others[name] = None
            for run in self._runs(name):
                self._starting[run][name] = None

    def drop(self, name: str) -> None:
        """Takes a name away, if it is there."""
        concept = self._concept.pop(name, None)
        if concept is None:
            return
        names = self._names[concept]
        del names[name]
        if not names:
            del self._names[concept]
        if name in self._others:
            del self._others[name]
            for run in self._runs(name):
                del self._starting[run][name]

    def of(self, concept: int) -> list[str]:
        """The names of a concept, in the order in which they came."""
        return list(self._names.get(concept, ()))

    @property
    def others(self) -> KeysView[str]:
        """All names that are not their concepts' own."""
        return self._others.keys()

    def near(self, words: Iterable[str], forms: Forms) -> list[str]:
        """Names of `others` that texts of these words may say; all that they do are among them.

        Args:
            words: As in texts that are `spelled`.
            forms: Always the same.
        """
        if self._forms is None:
            self._forms = forms
            for name in self._others:
                for run in self._runs(name):
                    self._starting[run][name] = None
        return list({name: None for word in {*words, ""} for name in self._starting.get(word, ())})

    def _runs(self, name: str) -> Iterator[str]:
        """Where one of these begins the longest word of a name, or may: as no run of letters."""
        if self._forms is not None:
            word = max(name.split(), key=len, default="")
            yield from {next(iter(form.split()), "") for form in self._forms(word)}


class NameVectors:
    """Vectors of names, which are read once.

    Attributes:
        row: Of each name.
        names: By row; those of rows that are no name's any more too.
    """

    def __init__(self, dim: int) -> None:
        """Of no name yet, of width `dim`."""
        self.row: dict[str, int] = {}
        self.names: list[str] = []
        self._rows = GrowingRows(torch.empty(0, dim))

    @property
    def rows(self) -> Tensor:  # [n, d]
        """By row; zeros, which are near to no name, where a name is gone."""
        return self._rows.view

    def follow(self, names: KeysView[str], read: Callable[[list[str]], Tensor]) -> None:
        """Has the vectors of these names alone; `read` gives those [n, d] of names that came."""
        for name in self.row.keys() - names:
            self._rows.view[self.row.pop(name)] = 0.0
        if len(self.names) > max(_LEAST, 2 * len(self.row)):
            place = torch.tensor([*self.row.values()], dtype=torch.int64)
            self._rows, self.names = GrowingRows(self._rows.view[place]), [*self.row]
            self.row = {name: row for row, name in enumerate(self.names)}
        if came := sorted(names - self.row.keys()):
            self._rows.append(read(came))
            self.row |= {name: row for row, name in enumerate(came, len(self.names))}
            self.names += came
