"""Lexicon: names of concepts, looked up by concept, by parts and by words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, KeysView

from graphmem_torch.text.naming import name_parts

__all__ = ["Forms", "Lexicon"]

Forms = Callable[[str], Collection[str]]
"""Function from a word to the forms that a text may have instead; see `names_within`."""


class Lexicon:
    """Names of numbered concepts; one name of each concept is its own."""

    def __init__(self) -> None:
        """Create an empty lexicon."""
        self._concept: dict[str, int] = {}
        self._names: dict[int, dict[str, None]] = {}
        self._others: dict[str, None] = {}
        self._spelled: dict[tuple[str, ...], dict[str, None]] = {}
        self._forms: Forms | None = None
        self._starting: defaultdict[str, dict[str, None]] = defaultdict(dict)

    def __contains__(self, name: object) -> bool:
        """Return whether a name has a concept."""
        return name in self._concept

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names."""
        return iter(self._concept)

    def __getitem__(self, name: str) -> int:
        """Return the concept of a name."""
        return self._concept[name]

    def put(self, name: str, concept: int, *, own: bool) -> None:
        """Give a new name to a concept, as its own or as another."""
        self._concept[name] = concept
        self._names.setdefault(concept, {})[name] = None
        self._spelled.setdefault(name_parts(name), {})[name] = None
        if not own:
            self._others[name] = None
            for run in self._runs(name):
                self._starting[run][name] = None

    def drop(self, name: str) -> None:
        """Remove a name, if it is there."""
        concept = self._concept.pop(name, None)
        if concept is None:
            return
        names = self._names[concept]
        del names[name]
        if not names:
            del self._names[concept]
        alike = self._spelled[name_parts(name)]
        del alike[name]
        if not alike:
            del self._spelled[name_parts(name)]
        if name in self._others:
            del self._others[name]
            for run in self._runs(name):
                del self._starting[run][name]

    def of(self, concept: int) -> list[str]:
        """Return the names of a concept, in the order in which they came."""
        return list(self._names.get(concept, ()))

    def alike(self, name: str) -> list[str]:
        """Return the other names of the same parts (`name_parts`), in the order they came in."""
        return [each for each in self._spelled.get(name_parts(name), ()) if each != name]

    def owners(self) -> Iterator[tuple[str, int]]:
        """Return the own names of all concepts, with the concepts."""
        return ((name, at) for name, at in self._concept.items() if name not in self._others)

    @property
    def others(self) -> KeysView[str]:
        """All names that are not their concepts' own."""
        return self._others.keys()

    def near(self, words: Iterable[str], forms: Forms) -> list[str]:
        """Return a superset of the names of `others` that texts of these words may say.

        Args:
            words: Words of the texts, as `spelled`.
            forms: Forms of a word; the same function in every call.
        """
        if self._forms is None:
            self._forms = forms
            for name in self._others:
                for run in self._runs(name):
                    self._starting[run][name] = None
        return list({name: None for word in {*words, ""} for name in self._starting.get(word, ())})

    def _runs(self, name: str) -> Iterator[str]:
        """Yield the first words of the forms of the longest word of a name; "" for no letters."""
        if self._forms is not None:
            word = max(name.split(), key=len, default="")
            yield from {next(iter(form.split()), "") for form in self._forms(word)}
