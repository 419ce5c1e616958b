"""Aggregates: clusters of memories, each summarised in a few sentences.

Cognitive Weave, algorithm 1 (`docs/mathematics.md` 5.6). An aggregate is an atom that is
`derived_from` its members. It is embedded and linked like any other and erased with any member. Its
text is sentences of its members unless an oracle writes it.
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
"""Levels of aggregates: of memories, then of aggregates. Deeper ones would add few new facts."""

_WORDS = 60  # maximum words of an aggregate: two or three sentences
_PRICE = 0.25  # cost of this many words, as a share of the value of the members
_MAKING = "3"  # version of the method: aggregates of other versions are rebuilt
_DAY = 86_400.0
_DEPTH = "depth"  # field of `meta`: 1 of memories, 2 of such aggregates, ...


class Member(NamedTuple):
    """Candidate member of an aggregate.

    Attributes:
        atom: Memory, or an aggregate one level below.
        said: Self-contained sentences of the memory, or of the memories below the aggregate.
    """

    atom: Atom
    said: Sequence[Telling]


class Made(NamedTuple):
    """Aggregate that is not stored yet.

    Attributes:
        atom: The aggregate.
        digest: Its text with the value of the text.
    """

    atom: Atom
    digest: Digest


def aggregate_atoms(
    found: Clusters,
    sources: Mapping[int, Member],
    built: Collection[str],
    depth: int,
) -> tuple[set[str], list[Made]]:
    """Return the ids of the aggregates of clusters, and the aggregates that are not built yet.

    An id depends on the members and their content; `edge_writes.dated` adds the time later. A
    cluster without a sentence worth its length has no aggregate.

    Args:
        found: Clusters of rows.
        sources: Members by row.
        built: Ids of existing aggregates.
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
    """Return the aggregate with its text and the value of the text."""
    worth = {name: round(getattr(own, name), 4) for name in ("value", "relevance", "complexity")}
    if own.bound > own.value:
        worth["bound"] = round(own.bound, 4)
    return Made(replace(made.atom, text=own.text, meta={**made.atom.meta, **worth}), own)


def _span(members: Sequence[Atom]) -> tuple[float | None, float | None]:
    """Return the start and end of the days that atoms mention, or else of their own times."""
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
    """Return the aggregates whose members are all stored unchanged, with their times.

    Call it in the turn to add, so that nothing outdated or forgotten is repeated.
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
    """Return aggregates rewritten by an oracle, if its summary claims only what members say.

    The members' own sentences stay if the summary is empty or has a relative time, or a number,
    name or day that no member has.

    Args:
        made: Aggregates to rewrite.
        atoms: Atoms by id, including all members.
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
    """Return whether an oracle's answer is a storable text within the word limit."""
    return (
        isinstance(answer, str)
        and bool(answer.strip())
        and answer == clean(answer)
        and count_words(answer) <= words
    )


def built_of_depth(store: MemoryStore, depth: int, *, and_more: bool) -> set[str]:
    """Return ids of automatic aggregates of a depth, with `and_more` also of deeper ones."""
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
    """Return the possible members of aggregates of a depth, by row: memories or aggregates below.

    Args:
        store: Store of the memories.
        snapshot: Index of all memories.
        depth: Depth of the aggregates.
        stop: First node that is left out.
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
        # The sentences chosen from its members, as an oracle may have rephrased them.
        chosen = [each for each in every if each.text and each.text in atoms[row].text]
        found[row] = Member(atoms[row], chosen or every)
    return found


def _leaves(row: int, atoms: Mapping[int, Atom], row_of: Mapping[str, int]) -> list[int]:
    """Return the memories below an aggregate, direct or indirect, in their order."""
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
    """Return the names of the concepts that atoms mention directly, by row."""
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
    """Return the mentions of concepts by atoms as rows and nodes, by ascending row."""
    edges = store.edges()
    own = own_mentions(edges) & torch.isin(edges.source, snapshot.node[rows])
    row = torch.searchsorted(snapshot.node, edges.source[own])
    order = row.argsort(stable=True)
    return row[order], edges.target[own][order]
