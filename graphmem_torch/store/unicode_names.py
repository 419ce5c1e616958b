"""Lookup of ids and sessions in any Unicode form.

Ids and sessions are stored in the form first given, so results show the callers' own names. Names
with the same NFC are equal: `StoredForms` finds the stored form. Older releases may have stored two
forms of one name as two names. They stay distinct, because the exact form is looked up first.
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
    """Subset of `StoreReader` that `StoredForms` uses."""

    @property
    def next_node(self) -> int: ...
    def reading(self) -> AbstractContextManager[None]: ...
    def known(self, ids: Sequence[str]) -> dict[str, tuple[int, str]]: ...
    def atoms(self, nodes: Sequence[int]) -> list[Atom]: ...
    def beyond_ascii(self, name: _Name, start: int = 0) -> list[str]: ...


class StoredForms:
    """Stored forms of non-ASCII names; safe to share between threads.

    They are read when such a name is first not found in its exact form, and later only for new
    nodes. Ids in NFC are not kept, because the NFC of a name is looked up directly.
    """

    def __init__(self, store: _Store) -> None:
        """Use the names of `store`; nothing is read until it is needed."""
        self._store = store
        self._read: dict[_Name, dict[str, list[str]]] = {"id": {}, "session": {}}
        self._stop: dict[_Name, int] = {"id": 0, "session": 0}

    def ids(self, names: Sequence[str]) -> list[str]:
        """Return the stored ids of some names; a name without a match is returned unchanged."""
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
        """Return the stored sessions of names; a name without a match is returned unchanged."""
        if all(map(str.isascii, names)):
            return list(names)
        forms = self._forms("session")
        return [
            name if not (each := forms.get(composed(name))) or name in each else each[0]
            for name in names
        ]

    def adopt(self, atoms: Sequence[Atom]) -> list[Atom]:
        """Return new atoms with the stored forms of their ids and sessions.

        An atom that differs from a stored one only in the form of its names is replaced by it.
        """
        odd = [place for place, atom in enumerate(atoms) if not _is_ascii(atom)]
        if not odd:
            return list(atoms)
        done, first = list(atoms), dict[tuple[_Name, str], str]()

        def forms(name: _Name, given: Sequence[str]) -> dict[str, str]:
            stored = self.ids(given) if name == "id" else self.sessions(given)
            # A new name in two forms gets the first of them.
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
        """Return the stored non-ASCII names by their NFC, each list in node order."""
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
    """Return whether all names of an atom are ASCII, which has only one form."""
    names = (atom.id, atom.kind, atom.speaker, atom.session, *(e.target for e in atom.edges))
    return all(not isinstance(name, str) or name.isascii() for name in names)


def _composed(atom: Atom) -> Atom:
    """Return an atom with its names in NFC and an empty id."""
    return replace(
        atom,
        id="",
        kind=composed(atom.kind),
        speaker=None if atom.speaker is None else composed(atom.speaker),
        session=None if atom.session is None else composed(atom.session),
        edges=tuple(replace(edge, target=composed(edge.target)) for edge in atom.edges),
    )
