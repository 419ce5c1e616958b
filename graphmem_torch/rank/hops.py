"""Hops: from the anchors of a question to documents that it does not name.

`docs/mathematics.md` 8.4, one round of max propagation along title mentions and shared entities.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of, pointers
from graphmem_torch.ops import SparseRows, spmm
from graphmem_torch.ops.ragged import ranges, row_entries
from graphmem_torch.ops.spmm import csr_rows

__all__ = [
    "HOP_PARTS",
    "LONGEST_NAME",
    "MOST_NAMESAKES",
    "HopPairs",
    "HopParts",
    "bridges",
    "dense_entity_hop",
    "dense_hop_lifts",
    "dense_title_hop",
    "entity_hop",
    "hop_lifts",
    "hop_parts",
    "is_named",
    "largest_lifts",
    "most_bearers",
    "name_key",
    "named_keys",
    "named_share",
    "run_keys",
    "title_bearers",
    "title_hop",
]
LONGEST_NAME = 8
"""Maximum number of terms of a name."""
MOST_NAMESAKES = 8
"""Maximum number of documents of one title; more make it a heading ("Introduction")."""
_SHARE = 0.02  # maximum share of atoms with one title or entity (`docs/mathematics.md` 8.4)
_MOST = 512  # the same as a count, so the cost of a question is bounded
_BASE = 6364136223846793005  # odd, so that no term is lost in 64 bits (Knuth's multiplier)
_PAIR = 2862933555777941757
_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class HopParts:
    """A atoms, T mentions of titles, K concepts and M entries of atoms about concepts.

    Attributes:
        document: [A] bool, mask of the atoms that are whole documents with a title.
        title_key: [A] int64, hash of the title; 0 = none.
        mention_indptr, mention_target, mention_weight: [A + 1], [T] int32 and [T]: the documents
            whose title an atom mentions, each with 1 / sqrt(titles in the atom).
        entity_indptr, entity, entity_weight: [A + 1], [M] int32 and [M]: the entities of each atom,
            a unit IDF vector.
        bearer_indptr, bearer, bearer_weight: [K + 1], [M] int32 and [M]: the same by entity.
        entity_key: [K] int64, hash of the name of a concept; 0 = none.
    """

    document: Tensor
    title_key: Tensor
    mention_indptr: Tensor
    mention_target: Tensor
    mention_weight: Tensor
    entity_indptr: Tensor
    entity: Tensor
    entity_weight: Tensor
    bearer_indptr: Tensor
    bearer: Tensor
    bearer_weight: Tensor
    entity_key: Tensor

    @property
    def num_atoms(self) -> int:
        """A."""
        return int(self.document.shape[0])


HOP_PARTS = tuple(f"hop_{field.name}" for field in fields(HopParts))
"""Buffers of an index that hold `HopParts`; only a memory with documents has them."""


def hop_parts(
    terms: Tensor,  # [W] int64, the terms of the atoms one after another
    offsets: Tensor,  # [A + 1] int64
    title: Tensor,  # [A] int64 terms of the title at the start of each atom, -1 = no document
    about: tuple[Tensor, Tensor],  # [E] atoms, [E] concepts 0..K-1
    name_terms: Tensor,  # int64, the terms of the names of the concepts
    name_offsets: Tensor,  # [K + 1] int64
) -> HopParts:
    """Build the parts of a memory from the terms of its texts and their concepts."""
    title_key = _start_keys(terms, offsets, title)
    mention = _mentions(terms, offsets, title, title_key)
    entities = _entities(*about, len(title), len(name_offsets) - 1)
    key = _start_keys(name_terms, name_offsets, name_offsets.diff())
    tensors = (title >= 0, title_key, *mention, *entities, key)
    return HopParts(*tensors)


def run_keys(terms: Tensor, start: Tensor, length: int) -> Tensor:
    """Return the hash of the `length` terms from each start."""
    key = torch.zeros_like(start)
    for place in range(length):
        key = key * _BASE + terms[start + place] + 1
    return key


def _start_keys(terms: Tensor, offsets: Tensor, length: Tensor) -> Tensor:
    """Return the hash of the first terms of each row; 0 for none or more than a name has."""
    keys = torch.zeros_like(length)
    for size in range(1, LONGEST_NAME + 1):
        rows = (length == size).nonzero().squeeze(1)
        keys[rows] = run_keys(terms, offsets[rows], size)
    return keys


def _mentions(
    terms: Tensor, offsets: Tensor, title: Tensor, title_key: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    atoms = len(title)
    known, number = title_key.unique(return_inverse=True)
    ends = offsets[1:]
    found = []
    for size in range(1, LONGEST_NAME + 1):
        own = (title == size).nonzero().squeeze(1)
        if not len(own):
            continue
        # Few terms begin a title; compare only there.
        begins = torch.zeros(int(terms.max()) + 1, dtype=torch.bool)
        begins[terms[offsets[own]]] = True
        start = begins[terms].nonzero().squeeze(1)
        atom = torch.searchsorted(ends, start, right=True)
        inside = start + size <= ends[atom]
        start, atom = start[inside], atom[inside]
        key = run_keys(terms, start, size)
        place = torch.searchsorted(known, key).clamp(max=len(known) - 1)
        hit = known[place] == key
        found.append(atom[hit] * len(known) + place[hit])
    if not found:
        none = torch.empty(0, dtype=torch.int32)
        return torch.zeros(atoms + 1, dtype=torch.int32), none, none.float()
    pair = torch.cat(found).unique()
    atom, name = pair // len(known), pair % len(known)
    bearers = torch.bincount(number, minlength=len(known))
    df = torch.bincount(name, minlength=len(known))
    kept = (
        (df <= most_bearers(atoms))[name]
        & (bearers <= MOST_NAMESAKES)[name]
        & (number[atom] != name)
    )
    atom, name = atom[kept], name[kept]
    weight = torch.bincount(atom, minlength=atoms).clamp(min=1).float().rsqrt()[atom]
    order = torch.sort(number, stable=True).indices  # documents by title
    entry, place = ranges(offsets_of(bearers)[name], bearers[name])
    target = order[place]
    return pointers(atom[entry], atoms), target.to(torch.int32), weight[entry]


def _entities(atom: Tensor, concept: Tensor, atoms: int, concepts: int) -> tuple[Tensor, ...]:
    pair = (atom * max(1, concepts) + concept).unique()
    atom, concept = pair // max(1, concepts), pair % max(1, concepts)
    df = torch.bincount(concept, minlength=concepts)
    idf = (atoms / df.clamp(min=1)).log().float()
    kept = ((df >= 2) & (df <= most_bearers(atoms)))[concept]
    atom, concept = atom[kept], concept[kept]
    value = idf[concept]
    size = torch.zeros(atoms).index_add_(0, atom, value.square()).sqrt()
    value = value / size[atom].clamp(min=torch.finfo(torch.float32).tiny)
    order = torch.sort(concept, stable=True).indices
    return (
        pointers(atom, atoms),
        concept.to(torch.int32),
        value,
        pointers(concept, concepts),
        atom[order].to(torch.int32),
        value[order],
    )


def most_bearers(atoms: int) -> float:
    """Return the maximum number of atoms that a title or an entity leads to or from."""
    return min(max(2.0, _SHARE * atoms), _MOST)


def name_key(terms: Tensor) -> int:  # [n] int64
    """Return the hash of a name in `HopParts`; 0 for no terms or more than a name has."""
    ends = torch.tensor([0, len(terms)])
    return int(_start_keys(terms, ends, ends[1:]))


def named_keys(
    query_terms: Tensor | None,  # [B, W], -1 padding
    idf: Tensor | None = None,  # [V], of each term
    missing: Tensor | None = None,  # [B], idf of the terms that the memory does not have
) -> tuple[Tensor, Tensor] | None:  # [m] sorted, [m] in [0, 1]
    """Return the hashes of names in the questions: one for each run of up to 8 terms.

    Next to each hash is the run's share of the question's idf. Runs that end in padding have the
    hash of no name. Without `idf` all terms count alike.
    """
    if query_terms is None:
        return None
    weight = (query_terms >= 0).float()
    if idf is not None:
        weight = weight * idf.float()[query_terms.clamp(min=0)]
    whole = weight.sum(1, keepdim=True)
    if missing is not None:
        whole = whole + missing[:, None]
    weight = weight / whole.clamp(min=_TINY)
    found, shares = [query_terms.new_empty(0)], [weight.new_empty(0)]
    row = torch.arange(len(query_terms), device=query_terms.device)[:, None]
    key, share = torch.zeros_like(query_terms), torch.zeros_like(weight)
    for length in range(1, min(LONGEST_NAME, query_terms.shape[1]) + 1):
        last = query_terms[:, length - 1 :]
        key = key[:, : last.shape[1]] * _BASE + last + 1
        share = share[:, : last.shape[1]] + weight[:, length - 1 :]
        found.append(_pair_keys(row, key.where(last >= 0, 0)).flatten())
        shares.append(share.flatten())
    keys, order = torch.cat(found).sort()
    return keys, torch.cat(shares)[order]


def _pair_keys(row: Tensor, key: Tensor) -> Tensor:
    """Combine a question and a key into one number."""
    return key * _PAIR + row


class HopPairs(NamedTuple):
    """Pairs of an anchor of a question and an atom that it leads to; P in all.

    Attributes:
        row: [P] int64, the question.
        place: [P] int64, the anchor's position among the question's anchors.
        target: [P] int64, the atom.
        value: [P], value of the hop for an anchor of weight 1.
    """

    row: Tensor
    place: Tensor
    target: Tensor
    value: Tensor


def title_pairs(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    named: Tensor | None = None,  # keys of `named_keys`
) -> HopPairs:
    """Return 1 / sqrt(titles in p) for each anchor p that mentions the title of a document.

    Titles that the question names are skipped, because the question finds them itself.
    """
    row, place = (anchors >= 0).nonzero(as_tuple=True)
    sender, edge = row_entries(parts.mention_indptr, anchors[row, place])
    target = parts.mention_target[edge].long()
    row, place = row[sender], place[sender]
    fresh = ~is_named(row, parts.title_key[target], named)
    return HopPairs(row, place, target, parts.mention_weight.float()[edge] * fresh)


def entity_pairs(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    named: Tensor | None = None,  # keys of `named_keys`
) -> HopPairs:
    """Return sqrt(<x_p without the question's entities, x_c>) for each anchor p and document c.

    x is the unit IDF vector of an atom's entities. An anchor does not lead to itself.
    """
    row, place = (anchors >= 0).nonzero(as_tuple=True)
    atom = anchors[row, place]
    seed, edge = row_entries(parts.entity_indptr, atom)
    entity, share = parts.entity[edge].long(), parts.entity_weight.float()[edge]
    fresh = ~is_named(row[seed], parts.entity_key[entity], named)
    seed, entity, share = seed[fresh], entity[fresh], share[fresh]
    sender, bearer = row_entries(parts.bearer_indptr, entity)
    target, other = parts.bearer[bearer].long(), parts.bearer_weight.float()[bearer]
    start = seed[sender]
    key, slot = torch.unique(start * parts.num_atoms + target, return_inverse=True)
    product = share.new_zeros(len(key)).index_add_(0, slot, share[sender] * other)
    start, target = key // max(1, parts.num_atoms), key % max(1, parts.num_atoms)
    there = parts.document[target] & (target != atom[start])
    return HopPairs(row[start], place[start], target, product.clamp(min=0.0).sqrt() * there)


def seed_pairs(
    parts: HopParts,
    keys: Tensor,  # [B, S] of `name_key`, 0 = none
) -> HopPairs:
    """Return sqrt(the entity's part of x_c) for each entity that is a seed.

    A seed leads as the first anchor does, and counts as an anchor about nothing else.
    """
    row, _, entity = ((keys[:, :, None] == parts.entity_key) & (keys != 0)[:, :, None]).nonzero(
        as_tuple=True
    )
    sender, bearer = row_entries(parts.bearer_indptr, entity)
    target, part = parts.bearer[bearer].long(), parts.bearer_weight.float()[bearer]
    led = part.clamp(min=0.0).sqrt() * parts.document[target]
    return HopPairs(row[sender], torch.zeros_like(target), target, led)


def bridges(
    parts: HopParts,
    anchor: Tensor,  # [B, k] int64 rows, -1 = none
    document: Tensor,  # [B, k] int64 rows
    named: Tensor | None = None,  # keys of `named_keys`
) -> Tensor:  # [B, k, 2] int64 entities, -1 = none
    """Return the two heaviest entities by which each anchor leads to its document.

    They are entities of both that the question does not name. There are none if the anchor mentions
    the document's title, which is a hop by itself.
    """
    found = torch.full((*anchor.shape, 2), -1, dtype=torch.int64, device=anchor.device)
    question, column = (anchor >= 0).nonzero(as_tuple=True)
    if not len(question):
        return found
    pair = anchor[question, column], document[question, column]
    (own, left), (other, right) = (row_entries(parts.entity_indptr, rows) for rows in pair)
    entities, entity = len(parts.entity_key), parts.entity[left].long()
    wanted, order = (other.long() * entities + parts.entity[right].long()).sort()
    key = own.long() * entities + entity
    at = torch.searchsorted(wanted, key).clamp(max=max(0, len(wanted) - 1))
    shared = (wanted[at] == key) if len(wanted) else torch.zeros_like(key, dtype=torch.bool)
    shared &= ~is_named(question[own], parts.entity_key[entity], named)
    own, entity, left, at = own[shared], entity[shared], left[shared], at[shared]
    sender, edge = row_entries(parts.mention_indptr, pair[0])
    mentions = torch.zeros_like(question, dtype=torch.bool)
    mentions[sender[parts.mention_target[edge] == pair[1][sender]].long()] = True
    weight = parts.entity_weight.float()
    value = (weight[left] * weight[right[order[at]]]).masked_fill(mentions[own], 0.0)
    order = value.argsort(descending=True, stable=True)
    order = order[own[order].argsort(stable=True)]
    own, entity, value = own[order], entity[order], value[order]
    first = torch.searchsorted(own, torch.arange(len(question), device=own.device).to(own))
    place = torch.arange(len(own), device=own.device) - first[own.long()]
    kept = (place < 2) & (value > 0)
    pick = own[kept].long()
    found[question[pick], column[pick], place[kept]] = entity[kept]
    return found


def title_hop(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K], w_p = exp((F_p - max F) / temperature)
    named: Tensor | None = None,  # keys of `named_keys`
) -> SparseRows:  # [B, A]
    """Return max_p w_p / sqrt(titles in p) over the anchors that mention a document's title."""
    row, place, target, led = title_pairs(parts, anchors, named)
    return _largest(row, target, value[row, place] * led, len(anchors), parts.num_atoms)


def entity_hop(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K], w_p = exp((F_p - max F) / temperature)
    named: Tensor | None = None,  # keys of `named_keys`
    seeds: tuple[Tensor, Tensor] | None = None,  # [B, S] of `name_key`, 0 = none; [B, 1] their w
) -> SparseRows:  # [B, A]
    """Return max_p w_p sqrt(<x_p without the question's entities, x_c>) for documents c.

    The maximum is over the anchors. A seed is an entity that leads to w sqrt(its part of x_c).
    """
    row, place, target, led = entity_pairs(parts, anchors, named)
    reached = value[row, place] * led
    if seeds is not None:
        asked, _, bearer, part = seed_pairs(parts, seeds[0])
        row, target = torch.cat([row, asked]), torch.cat([target, bearer])
        reached = torch.cat([reached, seeds[1][asked, 0] * part])
    return _largest(row, target, reached, len(anchors), parts.num_atoms)


def hop_lifts(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K], w_p
    strength: Tensor,  # [B, 2], of a hop by title and by entity
    named: Tensor | None = None,  # keys of `named_keys`
    seeds: tuple[Tensor, Tensor] | None = None,  # as for `entity_hop`
    pairs: tuple[HopPairs, HopPairs] | None = None,  # by title and by entity, if they are known
) -> HopPairs:
    """Return w_p (T title + E entity) for each anchor and target (`docs/mathematics.md` 8.4)."""
    if pairs is None:
        pairs = title_pairs(parts, anchors, named), entity_pairs(parts, anchors, named)
    parted = [*pairs]
    lifted = [
        pairs.value * strength[pairs.row, column] * value[pairs.row, pairs.place]
        for column, pairs in enumerate(parted)
    ]
    if seeds is not None and anchors.shape[1]:
        led = seed_pairs(parts, seeds[0])
        parted.append(led)
        lifted.append(led.value * strength[led.row, 1] * seeds[1][led.row, 0])
    row, place, target, _ = (torch.cat(each) for each in zip(*parted, strict=True))
    slots, atoms = anchors.shape[1], parts.num_atoms
    key, slot = torch.unique((row * slots + place) * atoms + target, return_inverse=True)
    both = torch.cat(lifted)
    lift = both.new_zeros(len(key)).index_add_(0, slot, both)
    some = lift > 0
    key, lift = key[some], lift[some]
    row, target = key // max(1, slots * atoms), key % max(1, atoms)
    return HopPairs(row, key // max(1, atoms) % max(1, slots), target, lift)


def dense_title_pairs(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    named: Tensor | None = None,
) -> Tensor:  # [B, K, A]
    """Compute `title_pairs` in fixed shapes: along all mentions, for all anchors."""
    target = parts.mention_target.long()
    sender = csr_rows(parts.mention_indptr, len(target)).long()
    weight = parts.mention_weight.float()
    row = torch.arange(len(anchors), device=anchors.device)[:, None].expand(-1, len(target))
    fresh = ~is_named(row, parts.title_key[target].expand_as(row), named)
    reached = (anchors[:, :, None] == sender) * (weight * fresh)[:, None]
    found = weight.new_zeros(*anchors.shape, parts.num_atoms)
    return found.scatter_reduce(2, target.expand_as(reached), reached, "amax")


def dense_entity_pairs(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    named: Tensor | None = None,
) -> Tensor:  # [B, K, A]
    """Compute `entity_pairs` in fixed shapes: products with all entities of all atoms."""
    (questions, count), atoms = anchors.shape, parts.num_atoms
    to_entities = parts.bearer_indptr, parts.bearer, parts.bearer_weight.float()
    to_atoms = parts.entity_indptr, parts.entity, parts.entity_weight.float()
    picked = to_atoms[2].new_zeros(atoms + 1, anchors.numel())
    picked.scatter_(0, (anchors % (atoms + 1)).view(1, -1), 1.0)
    about = spmm(*to_entities, picked[:atoms])  # [entities, B * K]
    keys = parts.entity_key.expand(questions, -1)
    row = torch.arange(questions, device=anchors.device)[:, None].expand_as(keys)
    fresh = ~is_named(row, keys, named)
    about = about * fresh.T.repeat_interleave(count, dim=1)
    likeness = spmm(*to_atoms, about).clamp(min=0.0).sqrt().view(atoms, questions, count)
    other = torch.arange(atoms, device=anchors.device)[:, None, None] != anchors
    there = other & (anchors >= 0) & parts.document[:, None, None]
    return (likeness * there).permute(1, 2, 0)


def dense_seeds(
    parts: HopParts,
    keys: Tensor,  # [B, S] of `name_key`, 0 = none
) -> Tensor:  # [B, A]
    """Return the largest of `seed_pairs` for each atom, in fixed shapes."""
    asked = ((keys[:, :, None] == parts.entity_key) & (keys != 0)[:, :, None]).any(1)
    share = parts.entity_weight.float().clamp(min=0.0).sqrt()
    led = spmm(parts.entity_indptr, parts.entity, share, asked.T.float(), reduce="max")
    return (led.clamp(min=0.0) * parts.document[:, None]).T


def dense_title_hop(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K]
    named: Tensor | None = None,
) -> Tensor:  # [B, A]
    """Compute `title_hop` in fixed shapes."""
    return _strongest(dense_title_pairs(parts, anchors, named) * value[:, :, None])


def dense_entity_hop(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K]
    named: Tensor | None = None,
    seeds: tuple[Tensor, Tensor] | None = None,
) -> Tensor:  # [B, A]
    """Compute `entity_hop` in fixed shapes."""
    found = _strongest(dense_entity_pairs(parts, anchors, named) * value[:, :, None])
    if seeds is None:
        return found
    return torch.maximum(found, dense_seeds(parts, seeds[0]) * seeds[1])


def dense_hop_lifts(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K]
    strength: Tensor,  # [B, 2]
    named: Tensor | None = None,
    seeds: tuple[Tensor, Tensor] | None = None,
) -> Tensor:  # [B, K, A]
    """Compute `hop_lifts` in fixed shapes."""
    lifts = strength[:, :1, None] * dense_title_pairs(parts, anchors, named)
    lifts = lifts + strength[:, 1:, None] * dense_entity_pairs(parts, anchors, named)
    lifts = lifts * value[:, :, None]
    if seeds is None or not anchors.shape[1]:
        return lifts
    led = dense_seeds(parts, seeds[0]) * strength[:, 1:] * seeds[1]
    first = torch.arange(anchors.shape[1], device=anchors.device)[:, None] == 0
    return lifts + led[:, None] * first


def _strongest(values: Tensor) -> Tensor:  # [B, K, A] -> [B, A]
    """Return the largest value of any anchor; 0 without anchors."""
    return torch.nn.functional.pad(values, (0, 0, 0, 1)).amax(1)


def is_named(row: Tensor, key: Tensor, named: Tensor | None) -> Tensor:
    """Return whether questions name the keys; `named` holds keys of `named_keys`, 0 is none."""
    if named is None or not len(named):
        return torch.zeros_like(key, dtype=torch.bool)
    wanted = _pair_keys(row, key)
    place = torch.searchsorted(named, wanted).clamp(max=len(named) - 1)
    return (named[place] == wanted) & (key != 0)


def named_share(row: Tensor, key: Tensor, named: tuple[Tensor, Tensor] | None) -> Tensor:
    """Return the share of a question's idf that the names of keys have; 0 if it names none."""
    if named is None or not len(named[0]):
        return torch.zeros(key.shape, device=key.device)
    keys, shares = named
    place = torch.searchsorted(keys, _pair_keys(row, key)).clamp(max=len(keys) - 1)
    return shares[place].where(is_named(row, key, keys), 0.0)


def title_bearers(parts: HopParts) -> Tensor:  # [A] int64
    """Return the number of atoms with the same title as each."""
    ordered = parts.title_key.sort().values
    first = torch.searchsorted(ordered, parts.title_key)
    return torch.searchsorted(ordered, parts.title_key, right=True) - first


def largest_lifts(pairs: HopPairs, rows: int, columns: int) -> SparseRows:  # [B, A]
    """Return the largest lift of each atom by any anchor."""
    return _largest(pairs.row, pairs.target, pairs.value, rows, columns)


def _largest(row: Tensor, column: Tensor, value: Tensor, rows: int, columns: int) -> SparseRows:
    kept = value > 0
    key, slot = torch.unique(row[kept] * columns + column[kept], return_inverse=True)
    best = value.new_zeros(len(key)).scatter_reduce(0, slot, value[kept], "amax")
    return SparseRows(key, best, (rows, columns))
