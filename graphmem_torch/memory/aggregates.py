"""Insight aggregates: what many memories say, found as clusters and said in few sentences.

Cognitive Weave, algorithm 1 (`docs/mathematics.md` 5.6). An aggregate is an atom of its own,
`derived_from` its members: it is embedded and linked as any other, erased with any of them,
and made of its members' own sentences unless an oracle writes it.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, BUILT, Atom, EdgeType, Link, text_hash
from graphmem_torch.memory.clusters import Clusters
from graphmem_torch.memory.digest import (
    Digest,
    SpeakerNames,
    Telling,
    claims_nothing_new,
    digest,
    retold,
    tellings,
    together,
)
from graphmem_torch.memory.edge_writes import dated
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.memory.mentions import own_mentions
from graphmem_torch.oracle.prompts import clean
from graphmem_torch.oracle.protocol import ask_checked
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.absolute import absolute_sentences
from graphmem_torch.text.times import told_days
from graphmem_torch.text.words import count_words

__all__ = [
    "LEVELS",
    "Made",
    "Member",
    "aggregate_atoms",
    "built_of_depth",
    "mentions_of",
    "sources_of_depth",
    "unchanged",
    "written",
]

Summarise = Callable[[Sequence[str], str | None, int], Any]

LEVELS = 2
"""Levels of aggregates: of memories, and of such aggregates. Deeper ones would say ever less in as
many words."""

_WORDS = 60  # most words of an aggregate: two or three sentences
_PRICE = 0.25  # cost of so many words, as a share of what the members are about
_MAKING = "3"  # how aggregates are made: those that were made in another way are made anew
_DAY = 86_400.0
_DEPTH = "depth"  # field of `meta`: 1 of memories, 2 of such aggregates, ...


class Member(NamedTuple):
    """Members of a possible aggregate.

    Attributes:
        atom: A memory, or an aggregate of one depth less.
        said: Sentences of it that say something by themselves, or of the memories that it is of.
    """

    atom: Atom
    said: Sequence[Telling]


class Made(NamedTuple):
    """An aggregate that is not stored yet.

    Attributes:
        atom: The aggregate.
        digest: Its text and the value of that.
    """

    atom: Atom
    digest: Digest


def aggregate_atoms(
    found: Clusters,
    sources: Mapping[int, Member],
    built: Collection[str],
    depth: int,
) -> tuple[set[str], list[Made]]:
    """Return the ids of the aggregates of clusters, and those that are not built yet.

    An id tells the members and what they say; the time is still to be told (`edge_writes.dated`). A
    cluster of which no sentence is worth its words has none.

    Args:
        found: The clusters.
        sources: By row.
        built: Ids of aggregates that there are.
        depth: Depth of the aggregates.
    """
    groups = [
        sorted(
            (sources[row] for row in part.tolist()),
            key=lambda own: (own.atom.time or 0.0, own.atom.id),
        )
        for part in found.members.tensor_split(found.offsets[1:-1])
        if len(part)
    ]
    ids = [_name(own) for own in groups]
    fresh = [place for place, name in enumerate(ids) if name not in built]
    said = [together([one.said for one in own]) for own in groups] if fresh else []
    units = ({unit for one in own for each in one for unit in each.units} for own in said)
    frequency = Counter(itertools.chain.from_iterable(units))
    made = []
    for place in fresh:
        own = groups[place]
        best = digest(said[place], frequency, len(groups), words=_WORDS, price=_PRICE)
        if best is None:
            continue
        start, end = _span([one.atom for one in own])
        atom = Atom(
            id=ids[place],
            text=best.text,
            kind=AGGREGATE,
            event_time=start,
            event_end=end,
            meta={_DEPTH: depth, "coherence": round(float(found.coherence[place]), 4)},
            edges=tuple(Link(one.atom.id, EdgeType.DERIVED_FROM) for one in own),
        )
        made.append(_valued(Made(atom, best), best))
    return {*ids}, made


def _name(own: Sequence[Member]) -> str:
    content = [_MAKING, *(f"{one.atom.id} {one.atom.digest}" for one in own)]
    return BUILT + text_hash("\n".join(content))[:24]


def _valued(made: Made, own: Digest) -> Made:
    """The aggregate with a text and its worth."""
    worth = {name: round(getattr(own, name), 4) for name in ("value", "relevance", "complexity")}
    if own.bound > own.value:
        worth["bound"] = round(own.bound, 4)
    return Made(replace(made.atom, text=own.text, meta={**made.atom.meta, **worth}), own)


def _span(members: Sequence[Atom]) -> tuple[float | None, float | None]:
    """From when to when the days last that atoms tell of, or stand in where they tell of none."""
    spans = [_days(atom) for atom in members]
    known = [span for span in spans if span is not None]
    if len(known) < len(spans):
        return None, None
    return min(start for start, _ in known), max(end for _, end in known)


def _days(atom: Atom) -> tuple[float, float] | None:
    if atom.event_time is not None:
        return atom.event_time, atom.event_time if atom.event_end is None else atom.event_end
    parts = absolute_sentences(atom.text, atom.time)
    stated = "".join(sentence for sentence, dated in parts if dated is not None)
    first, behind = told_days(stated, atom.time)
    if first < behind:
        return first * _DAY, behind * _DAY
    return None if atom.time is None else (atom.time, atom.time)


def unchanged(store: MemoryStore, made: Sequence[Made], digests: Mapping[str, str]) -> list[Atom]:
    """Return the aggregates whose members are all stored still, as they were; in the turn to add.

    What a member said before it was changed or forgotten is not told on. They get their times.
    """
    atoms = [one.atom for one in made]
    known = store.known([link.target for atom in atoms for link in atom.edges])
    now = {name: digest for name, (_, digest) in known.items()}
    kept = [
        atom
        for atom in atoms
        if all(now.get(link.target) == digests[link.target] for link in atom.edges)
    ]
    return dated(store, kept)


def written(made: Sequence[Made], atoms: Mapping[str, Atom], summarise: Summarise) -> list[Made]:
    """Return aggregates in the words of an oracle, where it claims nothing that no member says.

    A summary with a number, a name or a day that none of them has, a relative time, or none at all
    leaves the members' own sentences.

    Args:
        made: The aggregates.
        atoms: Their members, by id, among others.
        summarise: An oracle's `summarise(texts, question, max_tokens)`.
    """
    most = 2 * _WORDS
    whole = ["\n".join(retold(atoms[link.target]) for link in one.atom.edges) for one in made]
    said = ask_checked(
        lambda: summarise(whole, None, most),
        len(whole),
        lambda answer: answer if _is_summary(answer, most) else None,
        what=("summaries", "clusters"),
        wanted="no text",
        lost="sentences of their members stand in",
    )
    return [
        _valued(one, one.digest.said(" ".join(text.split()), _WORDS, _PRICE))
        if text and claims_nothing_new(text, members)
        else one
        for one, text, members in zip(made, said, whole, strict=True)
    ]


def _is_summary(answer: object, words: int) -> TypeGuard[str]:
    """Whether an oracle gave text that can be stored, and no more of it than was asked for."""
    return (
        isinstance(answer, str)
        and bool(answer.strip())
        and answer == clean(answer)
        and count_words(answer) <= words
    )


def built_of_depth(store: MemoryStore, depth: int, *, and_more: bool) -> set[str]:
    """Ids of the aggregates of a depth, or of more, that were built here and are no user's own."""
    names = [name for name in store.ids_of_kind(AGGREGATE) if name.startswith(BUILT)]
    atoms = store.atoms([node for node, _ in store.known(names).values()])
    return {
        atom.id
        for atom in atoms
        if (own := atom.meta.get(_DEPTH)) == depth or (and_more and own is not None and own > depth)
    }


def sources_of_depth(
    store: MemoryStore, snapshot: Snapshot, depth: int, *, stop: int
) -> dict[int, Member]:
    """Return what aggregates of a depth are made of, by row: memories, or those of one less.

    Args:
        store: Store of the memories.
        snapshot: Index of all of them.
        depth: Depth of the aggregates.
        stop: First node of the memories that are left out.
    """
    atoms = dict(enumerate(store.atoms(snapshot.node.tolist())))
    names = SpeakerNames(snapshot.speakers)
    if depth == 1:
        early = (snapshot.node < stop).tolist()
        atoms = {row: atom for row, atom in atoms.items() if early[row] and atom.kind != AGGREGATE}
        concepts = _concepts(store, snapshot, atoms)
        return {
            row: Member(atom, tellings(atom, concepts[row], names)) for row, atom in atoms.items()
        }
    below = built_of_depth(store, depth - 1, and_more=False)
    row_of = {atom.id: row for row, atom in atoms.items()}
    leaves = {row: _leaves(row, atoms, row_of) for row, atom in atoms.items() if atom.id in below}
    own = {leaf: atoms[leaf] for leaf in itertools.chain.from_iterable(leaves.values())}
    concepts = _concepts(store, snapshot, own)
    said = {leaf: tellings(atom, concepts[leaf], names) for leaf, atom in own.items()}
    found = {}
    for row, under in leaves.items():
        every = [each for leaf in under for each in said[leaf]]
        # What it chose of its members; an oracle may have said it in words of its own.
        chosen = [each for each in every if each.text and each.text in atoms[row].text]
        found[row] = Member(atoms[row], chosen or every)
    return found


def _leaves(row: int, atoms: Mapping[int, Atom], row_of: Mapping[str, int]) -> list[int]:
    """The memories that an aggregate is of, directly or by others, in their order."""
    reached, new = dict[int, None](), [row]
    while new:
        links = (link for each in new for link in atoms[each].edges)
        targets = [row_of[link.target] for link in links if link.target in row_of]
        reached |= dict.fromkeys(each for each in targets if atoms[each].kind != AGGREGATE)
        new = [each for each in targets if atoms[each].kind == AGGREGATE]
    return [*reached]


def _concepts(
    store: MemoryStore, snapshot: Snapshot, atoms: Mapping[int, Atom]
) -> Mapping[int, list[str]]:
    """Names of the concepts that atoms mention themselves, by row."""
    rows, nodes = mentions_of(store, snapshot, torch.tensor(list(atoms), dtype=torch.int64))
    every = nodes.unique().tolist()
    name = dict(zip(every, (atom.text for atom in store.atoms(every)), strict=True))
    found = defaultdict[int, list[str]](list)
    for row, node in zip(rows.tolist(), nodes.tolist(), strict=True):
        found[row].append(name[node])
    return found


def mentions_of(
    store: MemoryStore, snapshot: Snapshot, rows: Tensor
) -> tuple[Tensor, Tensor]:  # [m], [m]
    """Which of some atoms mentions which concept: rows and nodes, by ascending row."""
    edges = store.edges()
    own = own_mentions(edges) & torch.isin(edges.source, snapshot.node[rows])
    row = torch.searchsorted(snapshot.node, edges.source[own])
    order = row.argsort(stable=True)
    return row[order], edges.target[own][order]
