"""Insight aggregates: what many memories say, found as clusters and said in few sentences.

Cognitive Weave, algorithm 1 (`docs/mathematics.md` 5.6). An aggregate is an atom of its own,
`derived_from` its members: it is embedded, linked and found as any other, erased with any of them,
and made of its members' own sentences unless an oracle writes it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, Atom, EdgeType, Link, text_hash
from graphmem_torch.config import AggregateConfig
from graphmem_torch.memory.assemble import Snapshot
from graphmem_torch.memory.edges import dated
from graphmem_torch.memory.link import own_mentions
from graphmem_torch.ops import knn_graph
from graphmem_torch.ops.ragged import ranges, segment_topk
from graphmem_torch.oracle.prompts import clean
from graphmem_torch.oracle.protocol import ask_checked
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.question import is_question
from graphmem_torch.text.sentences import split_sentences
from graphmem_torch.text.terms import terms
from graphmem_torch.text.words import count_words

__all__ = [
    "aggregate_atoms",
    "atoms_of_depth",
    "built_of_depth",
    "clusters",
    "mentions_of",
    "star_clusters",
    "unchanged",
    "written",
]

Summarise = Callable[[Sequence[str], str | None, int], Any]

_PREFIX = "aggregate:"
_DEPTH = "depth"  # field of `meta`: 1 of memories, 2 of such aggregates, ...
_SHUFFLED = 64  # clusters of others that a cluster is held against
_TOLD = 3  # words of a sentence that says something by itself
_SURE = 2.0  # standard deviations that it must be above them
_FACT = re.compile(r"\d+(?:[.,:]\d+)*|(?<=[a-z,;] )[A-Z]\w+")  # numbers, and names inside sentences


class Clusters(NamedTuple):
    """Groups of rows.

    Attributes:
        members: `[M]` int64 rows, cluster by cluster, the centre first, then by falling weight.
        offsets: `[C + 1]` int64.
        coherence: `[C]` mean cosine of the members with their mean direction.
    """

    members: Tensor
    offsets: Tensor
    coherence: Tensor


def star_clusters(
    source: Tensor,  # [P] int64
    target: Tensor,  # [P] int64
    weight: Tensor,  # [P]
    count: int,
    *,
    smallest: int,
    largest: int,
) -> tuple[Tensor, Tensor]:  # [M], [C + 1]
    """Clusters around the nodes that are joined most strongly, of a graph of n nodes.

    A node is a centre where the sum of its weights is the largest among its neighbours and itself;
    of equal ones the smaller number is. Each neighbour of a centre joins the centre that it is
    joined to most strongly. What has joined none is looked at again without the others, until no
    cluster is left to be found. Every step is a few scatters over the pairs.

    Args:
        source: One end of each pair; pairs come in both directions.
        target: The other.
        weight: Above 0.
        count: n.
        smallest: Members of a cluster at least, the centre included.
        largest: At most; those that are joined least strongly are left to others.
    """
    device = source.device
    free = torch.ones(count, dtype=torch.bool, device=device)
    found: list[Tensor] = []
    sizes: list[Tensor] = []
    number = torch.arange(count, device=device)
    while len(source):
        degree = weight.new_zeros(count).index_add_(0, source, weight)
        # The place in the order of degree, the smaller number first among equals: no two alike.
        rank = torch.empty_like(number)
        rank[degree.argsort(descending=True, stable=True)] = number
        best = rank.clone().scatter_reduce_(0, source, rank[target], "amin")
        centre = free & (best == rank) & (degree > 0)
        joins = centre[target] & ~centre[source]
        node, to, value = source[joins], target[joins], weight[joins]
        order = value.argsort(descending=True, stable=True)
        order = order[node[order].argsort(stable=True)]
        node, to, value = node[order], to[order], value[order]
        first = torch.ones_like(node, dtype=torch.bool)
        first[1:] = node[1:] != node[:-1]
        node, to, value = node[first], to[first], value[first]
        own = centre.nonzero().flatten()
        place = torch.searchsorted(own, to)
        size = torch.bincount(place, minlength=len(own))
        chosen = segment_topk(value, place, size, largest - 1)
        chosen = torch.where(chosen >= 0, node[chosen.clamp(min=0)], -1) if len(node) else chosen
        good = 1 + (chosen >= 0).sum(1) >= smallest
        rows = torch.cat([own[good, None], chosen[good]], 1)
        found.append(rows[rows >= 0])
        sizes.append((rows >= 0).sum(1))
        free[found[-1]] = False
        free[own] = False  # a centre that found too few is none of others either
        left = free[source] & free[target]
        source, target, weight = source[left], target[left], weight[left]
    none = torch.zeros(1, dtype=torch.int64, device=device)
    if not found:
        return none[:0], none
    return torch.cat(found), torch.cat([none, torch.cat(sizes).cumsum(0)])


def clusters(
    snapshot: Snapshot,
    rows: Tensor,  # [n] int64, ascending
    mentions: tuple[Tensor, Tensor],
    config: AggregateConfig,
) -> Clusters:
    """Clusters of some atoms by similarity, relation and time, those that are coherent.

    w = a cos + b shared + c e^(-|dt| / span), of each atom with its k nearest by cosine; `shared`
    are the concepts that both mention, over the root of how many each does; time is left out where
    one is unknown. Pairs from `least` on are joined.

    Args:
        snapshot: Of the atoms.
        rows: Those that are clustered.
        mentions: Rows and nodes [m] of concepts that they mention, by ascending row.
        config: The settings.
    """
    index = snapshot.index
    x = index.embeddings[rows.to(index.embeddings.device)].float()
    none = torch.empty(0, dtype=torch.int64)
    if len(rows) < config.smallest:
        return Clusters(none, torch.zeros(1, dtype=torch.int64), torch.empty(0))
    cosine, neighbour = knn_graph(x, min(config.neighbours, len(x) - 1))
    cosine, neighbour = cosine.cpu(), neighbour.cpu()
    source = torch.arange(len(x)).repeat_interleave(neighbour.shape[1])
    target, cosine = neighbour.flatten(), cosine.flatten()
    held = target >= 0
    source, target, cosine = source[held], target[held], cosine[held]
    time = index.time.cpu()[rows]
    gap = (time[source] - time[target]).abs() / (86_400.0 * config.span)
    near = torch.exp(-gap).nan_to_num(nan=0.0).float()
    shared = _shared(rows, mentions, source, target)
    weight = config.similarity * cosine + config.relation * shared + config.time * near
    keep = weight >= config.least
    ends = torch.stack([source[keep], target[keep]])
    # Both directions of a pair, once, at the stronger weight.
    ends, weight = torch.cat([ends, ends.flip(0)], 1), weight[keep].repeat(2)
    key, group = (ends[0] * len(x) + ends[1]).unique(return_inverse=True)
    strongest = weight.new_zeros(len(key)).scatter_reduce_(0, group, weight, "amax")
    limits = {"smallest": config.smallest, "largest": config.largest}
    members, offsets = star_clusters(key // len(x), key % len(x), strongest, len(x), **limits)
    if not len(members):
        return Clusters(members, offsets, torch.empty(0))
    coherence = _coherence(x.cpu(), members, offsets)
    good = coherence >= _shuffled(x.cpu(), members, offsets)
    size, start = offsets.diff()[good], offsets[:-1][good]
    kept = ranges(start, size)[1]
    ends = torch.cat([offsets[:1], size.cumsum(0)])
    return Clusters(rows[members[kept]], ends, coherence[good])


def _shared(
    rows: Tensor, mentions: tuple[Tensor, Tensor], source: Tensor, target: Tensor
) -> Tensor:  # [P] float32
    """How many concepts two atoms share, over the root of how many each mentions."""
    row, concept = mentions
    place = torch.searchsorted(rows, row)
    wide = 1 + int(concept.max()) if len(concept) else 1
    keys = (place * wide + concept).sort().values
    count = torch.bincount(place, minlength=len(rows))
    begin = count.cumsum(0) - count
    pair, entry = ranges(begin[source], count[source])
    asked = target[pair] * wide + concept[entry]
    at = torch.searchsorted(keys, asked).clamp(max=max(0, len(keys) - 1))
    both = keys[at] == asked if len(keys) else torch.zeros(0, dtype=torch.bool)
    found = torch.zeros(len(source)).index_add_(0, pair, both.float())
    return found / (count[source] * count[target]).clamp(min=1).sqrt()


def _coherence(x: Tensor, members: Tensor, offsets: Tensor) -> Tensor:  # [C]
    """The mean cosine of members with their mean direction: the length of their mean."""
    label = torch.repeat_interleave(offsets.diff())
    total = x.new_zeros(len(offsets) - 1, x.shape[1]).index_add_(0, label, x[members])
    return total.norm(dim=1) / offsets.diff().clamp(min=1)


def _shuffled(x: Tensor, members: Tensor, offsets: Tensor) -> Tensor:  # [C]
    """The coherence that clusters of these sizes must have: of random ones, and somewhat more."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack(
        [
            _coherence(x, torch.randint(len(x), members.shape, generator=generator), offsets)
            for _ in range(_SHUFFLED)
        ]
    )
    return drawn.mean(0) + _SURE * drawn.std(0)


def aggregate_atoms(
    found: Clusters,
    atoms: Mapping[int, Atom],
    built: Collection[str],
    depth: int,
    config: AggregateConfig,
) -> tuple[set[str], list[Atom]]:
    """The ids of the aggregates of clusters, and those that are not built yet.

    An id tells the members and what they say; the time is still to be told (`edges.dated`).

    Args:
        found: The clusters.
        atoms: By row.
        built: Ids of aggregates that there are.
        depth: Of the aggregates.
        config: The settings.
    """
    groups = [
        sorted((atoms[row] for row in part.tolist()), key=lambda atom: (atom.time or 0.0, atom.id))
        for part in found.members.tensor_split(found.offsets[1:-1])
        if len(part)
    ]
    ids = [_PREFIX + text_hash("\n".join(f"{a.id} {a.digest}" for a in own))[:24] for own in groups]
    fresh = [place for place, name in enumerate(ids) if name not in built]
    words = ({w for atom in own for w in terms(atom.text)} for own in groups if fresh)
    frequency = Counter(itertools.chain.from_iterable(words))
    made = []
    for place in fresh:
        own = groups[place]
        made.append(
            Atom(
                id=ids[place],
                text=digest(own, frequency, len(groups), config.words),
                kind=AGGREGATE,
                meta={_DEPTH: depth, "coherence": round(float(found.coherence[place]), 4)},
                edges=tuple(Link(atom.id, EdgeType.DERIVED_FROM) for atom in own),
            )
        )
    return {*ids}, made


def unchanged(store: MemoryStore, made: Sequence[Atom], digests: Mapping[str, str]) -> list[Atom]:
    """Aggregates whose members are all stored still, as they were; in the turn to add them.

    What a member said before it was changed or forgotten is not told on. They get their times.
    """
    known = store.known([link.target for atom in made for link in atom.edges])
    now = {name: digest for name, (_, digest) in known.items()}
    kept = [
        atom
        for atom in made
        if all(now.get(link.target) == digests[link.target] for link in atom.edges)
    ]
    return dated(store, kept)


def written(
    made: Sequence[Atom], atoms: Iterable[Atom], summarise: Summarise, config: AggregateConfig
) -> list[Atom]:
    """Aggregates in the words of an oracle, where it claims nothing that no member says.

    A summary with a number or a name that none of them has, or none, leaves the members' own
    sentences.

    Args:
        made: The aggregates.
        atoms: What they are made of, among others.
        summarise: An oracle's `summarise(texts, question, max_tokens)`.
        config: The settings.
    """
    own = {atom.id: atom for atom in atoms}
    whole = ["\n".join(own[link.target].rendered for link in atom.edges) for atom in made]
    said = ask_checked(
        lambda: summarise(whole, None, 2 * config.words),
        len(whole),
        lambda answer: answer if _is_summary(answer, 2 * config.words) else None,
        what=("summaries", "clusters"),
        wanted="no text",
        lost="sentences of their members stand in",
    )
    return [
        replace(atom, text=" ".join(text.split())) if text and _is_claimed(text, members) else atom
        for atom, text, members in zip(made, said, whole, strict=True)
    ]


def digest(own: Sequence[Atom], frequency: Mapping[str, int], groups: int, words: int) -> str:
    """The sentences of memories that say most of what they say, in their order.

    One at a time the sentence whose new words weigh most, ln(1 + groups / frequency) each, for
    each word that it has; as long as `words` are not reached, and any of them is new. Questions
    and scraps are left out where anything else is said.
    """
    every = [
        (atom, sentence.strip(), frozenset(terms(sentence)))
        for atom in own
        for sentence in split_sentences(atom.text)
        if sentence.strip()
    ]
    told = [each for each in every if len(each[2]) >= _TOLD and not is_question(each[1])]
    said = told or every
    weight = {
        word: math.log1p(groups / frequency.get(word, 1)) for _, _, has in said for word in has
    }
    chosen: list[int] = []
    covered: set[str] = set()
    used = 0
    while True:
        gains = [
            (sum(weight[w] for w in has - covered) / (2 + len(text.split())), -place)
            for place, (_, text, has) in enumerate(said)
            if place not in chosen and (not chosen or used + len(text.split()) <= words)
        ]
        if not gains or max(gains)[0] <= 0:
            break
        place = -max(gains)[1]
        chosen.append(place)
        covered |= said[place][2]
        used += len(said[place][1].split())
    parts, speaker = [], None
    for place in sorted(chosen):
        atom, text, _ = said[place]
        named = atom.speaker is not None and atom.speaker != speaker
        parts.append(f"{atom.speaker}: {text}" if named else text)
        speaker = atom.speaker
    return " ".join(parts) or own[0].rendered


def _is_summary(answer: object, words: int) -> TypeGuard[str]:
    """Whether an oracle gave text that can be stored, and no more of it than was asked for."""
    return (
        isinstance(answer, str)
        and bool(answer.strip())
        and answer == clean(answer)
        and count_words(answer) <= words
    )


def _is_claimed(text: str, members: str) -> bool:
    """Whether every number and every name of a text is said by the members."""
    return all(fact in members for fact in _FACT.findall(text))


def built_of_depth(store: MemoryStore, depth: int, *, and_more: bool) -> set[str]:
    """Ids of the aggregates of a depth, or of more, that were built here and are no user's own."""
    names = [name for name in store.ids_of_kind(AGGREGATE) if name.startswith(_PREFIX)]
    atoms = store.atoms([node for node, _ in store.known(names).values()])
    return {
        atom.id
        for atom in atoms
        if (own := atom.meta.get(_DEPTH)) == depth or (and_more and own is not None and own > depth)
    }


def atoms_of_depth(store: MemoryStore, snapshot: Snapshot, depth: int) -> dict[int, Atom]:
    """The atoms by row that aggregates of a depth are made of: memories, or those of one less."""
    atoms = dict(enumerate(store.atoms(snapshot.node.tolist())))
    if depth == 1:
        return {row: atom for row, atom in atoms.items() if atom.kind != AGGREGATE}
    below = built_of_depth(store, depth - 1, and_more=False)
    return {row: atom for row, atom in atoms.items() if atom.id in below}


def mentions_of(
    store: MemoryStore, snapshot: Snapshot, rows: Tensor
) -> tuple[Tensor, Tensor]:  # [m], [m]
    """Which of some atoms mentions which concept: rows and nodes, by ascending row."""
    edges = store.edges()
    own = own_mentions(edges) & torch.isin(edges.source, snapshot.node[rows])
    row = torch.searchsorted(snapshot.node, edges.source[own])
    order = row.argsort(stable=True)
    return row[order], edges.target[own][order]
