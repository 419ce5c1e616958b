"""Names of a store, whatever the form of Unicode in which they are given.

Ids and sessions are stored as they were given first, so that callers find their own in what comes
back. They are the same as others of the same NFC: `StoredForms` gives the form that is stored. Two
that differ in form only, which older releases stored as two, each stay what they are: the form that
is given is looked for first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Literal, Protocol

from graphmem_torch.atoms import Atom
from graphmem_torch.text.unicode_forms import composed

__all__ = ["StoredForms"]

_Name = Literal["id", "session"]


class _Store(Protocol):
    """What is asked of a store; see `StoreReader`."""

    @property
    def next_node(self) -> int: ...
    def reading(self) -> AbstractContextManager[None]: ...
    def known(self, ids: Sequence[str]) -> dict[str, tuple[int, str]]: ...
    def atoms(self, nodes: Sequence[int]) -> list[Atom]: ...
    def beyond_ascii(self, name: _Name, start: int = 0) -> list[str]: ...


class StoredForms:
    """The stored forms of names that are not ASCII; safe to share between threads.

    They are read when the first such name is not found as it is, and after that only those of new
    nodes. Of ids only those are kept that are not in NFC, which is looked for by itself.
    """

    def __init__(self, store: _Store) -> None:
        """Nothing is read before it is asked for."""
        self._store = store
        self._read: dict[_Name, dict[str, list[str]]] = {"id": {}, "session": {}}
        self._stop: dict[_Name, int] = {"id": 0, "session": 0}

    def ids(self, names: Sequence[str]) -> list[str]:
        """The ids that are stored for some names; a name that no id is like stays as it is."""
        odd = [name for name in names if not name.isascii()]
        known = self._store.known(odd) if odd else {}
        missing = [name for name in dict.fromkeys(odd) if name not in known]
        if not missing:
            return list(names)
        forms = self._forms("id")
        plain = {name: composed(name) for name in missing}
        like = {name: [key, *forms.get(key, ())] for name, key in plain.items()}
        there = self._store.known([form for each in like.values() for form in each])
        found = {
            name: next((form for form in each if form in there), name)
            for name, each in like.items()
        }
        return [found.get(name, name) for name in names]

    def sessions(self, names: Sequence[str]) -> list[str]:
        """The sessions that are stored for some names, likewise."""
        if all(map(str.isascii, names)):
            return list(names)
        forms = self._forms("session")
        return [
            name if not (each := forms.get(composed(name))) or name in each else each[0]
            for name in names
        ]

    def adopt(self, atoms: Sequence[Atom]) -> list[Atom]:
        """Atoms that are to be added, under the ids and sessions that are stored for theirs.

        One whose names alone differ in form from those of a stored atom is that atom.
        """
        odd = [place for place, atom in enumerate(atoms) if not _is_ascii(atom)]
        if not odd:
            return list(atoms)
        done, first = list(atoms), dict[tuple[_Name, str], str]()

        def forms(name: _Name, given: Sequence[str]) -> dict[str, str]:
            stored = self.ids(given) if name == "id" else self.sessions(given)
            # What is new and comes in two forms has that which comes first.
            return {
                each: first.setdefault((name, composed(each)), form) if form == each else form
                for each, form in zip(given, stored, strict=True)
            }

        own = [done[place] for place in odd]
        id_of = forms("id", [n for a in own for n in (a.id, *(e.target for e in a.edges))])
        session_of = forms("session", [a.session for a in own if a.session is not None])
        for place, atom in zip(odd, own, strict=True):
            edges = tuple(replace(edge, target=id_of[edge.target]) for edge in atom.edges)
            session = None if atom.session is None else session_of[atom.session]
            done[place] = replace(atom, id=id_of[atom.id], session=session, edges=edges)
        known = self._store.known([done[place].id for place in odd])
        stored = self._store.atoms([node for node, _ in known.values()])
        by_id = {atom.id: atom for atom in stored}
        for place in odd:
            old = by_id.get(done[place].id)
            if old is not None and _composed(old) == _composed(done[place]):
                done[place] = old
        return done

    def _forms(self, name: _Name) -> dict[str, list[str]]:
        """The stored names that are not ASCII by their NFC, in the order of their nodes."""
        forms = self._read[name]
        with self._store.reading():
            start, stop = self._stop[name], self._store.next_node
            for form in self._store.beyond_ascii(name, start) if start < stop else ():
                if (key := composed(form)) != form or name == "session":
                    each = forms.setdefault(key, [])
                    if form not in each:  # two threads may read the same
                        each.append(form)
            self._stop[name] = stop
        return forms


def _is_ascii(atom: Atom) -> bool:
    """Whether no name of an atom has another form."""
    names = (atom.id, atom.kind, atom.speaker, atom.session, *(e.target for e in atom.edges))
    return all(not isinstance(name, str) or name.isascii() for name in names)


def _composed(atom: Atom) -> Atom:
    """An atom with its names in NFC, apart from its id."""
    return replace(
        atom,
        id="",
        kind=composed(atom.kind),
        speaker=None if atom.speaker is None else composed(atom.speaker),
        session=None if atom.session is None else composed(atom.session),
        edges=tuple(replace(edge, target=composed(edge.target)) for edge in atom.edges),
    )
