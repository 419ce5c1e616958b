"""Checks of the atoms of a batch before they are encoded and stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphmem_torch.atoms import CONCEPT, KINDS, Atom
from graphmem_torch.errors import InputError, located
from graphmem_torch.memory.intake import digest_of
from graphmem_torch.memory.mentions import concept_id

__all__ = ["check_kind", "fresh_atoms", "other_content", "with_edges_of"]

_LONGEST_KIND = 64


def fresh_atoms(
    atoms: Sequence[Atom], known: Mapping[str, tuple[int, str]], origins: Mapping[str, str]
) -> list[Atom]:
    """Return the atoms that are not known, each id once.

    Args:
        atoms: Atoms of a batch.
        known: Node numbers and digests by id.
        origins: File and line that atoms came from by id, for messages.

    Raises:
        InputError: Empty text, a kind or id of concepts, or an id that is known, or comes twice,
            with other content.
    """
    digests = {name: digest for name, (_, digest) in known.items()}
    seen = {*known}
    fresh = []
    for atom in atoms:
        where = origins.get(atom.id)
        if atom.kind == CONCEPT or atom.id.startswith(concept_id("")):
            raise InputError(
                f"atom {atom.id!r}: the kind {CONCEPT!r} and ids that begin with "
                f"{concept_id('')!r} belong to the concepts that linking makes; choose others",
                where=where,
            )
        check_kind(atom, where)
        if not atom.text.strip():
            raise InputError(
                f"atom {atom.id!r}: expected text, got none; leave it out", where=where
            )
        with located(where):
            digest = digest_of(atom)
        kept = digests.setdefault(atom.id, digest)
        if kept != digest and not atom.is_of(kept):
            met = "is stored already" if atom.id in known else "is given twice,"
            raise other_content(atom, met, origins)
        if atom.id not in seen:
            seen.add(atom.id)
            fresh.append(atom)
    return fresh


def other_content(atom: Atom, met: str, origins: Mapping[str, str]) -> InputError:
    """Return the error of an id with other content; `met` says where it was met."""
    return InputError(
        f"atom {atom.id!r} {met} with other content; give the new one an id of its own",
        where=origins.get(atom.id),
    )


def with_edges_of(stored: Atom | None, atom: Atom, origins: Mapping[str, str]) -> Atom:
    """Return an atom with the stated edges of the stored one of its id."""
    if stored is None or atom.edges == stored.edges:
        return atom
    if atom.edges:
        raise InputError(
            f"atom {atom.id!r}: edges: expected none for an atom that is stored, got "
            f"{len(atom.edges)}; `graph.connect` and `graph.disconnect` change them",
            where=origins.get(atom.id),
        )
    return replace(atom, edges=stored.edges)


def check_kind(atom: Atom, where: str | None) -> None:
    """Raise `InputError` unless the kind of an atom is a word; `where` is its file and line."""
    kind = atom.kind
    named = isinstance(kind, str) and kind.isprintable() and bool(kind.strip())
    if not named or len(kind) > _LONGEST_KIND:
        raise InputError(
            f"atom {atom.id!r}: kind: expected a word such as {', '.join(list(KINDS)[:5])} or one "
            f"of your own, of at most {_LONGEST_KIND} characters in one line, got {kind!r:.80}",
            where=where,
        )
