"""Bridges that a question does not name: from its anchors to documents that they lead to.

`docs/mathematics.md` 8.4, one round of max propagation along title mentions and shared entities.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of, pointers
from graphmem_torch.ops import SparseRows, spmm
from graphmem_torch.ops.ragged import ranges, row_entries
from graphmem_torch.ops.spmm import csr_rows

__all__ = [
    "HOP_PARTS",
    "HopParts",
    "dense_entity_hop",
    "dense_title_hop",
    "entity_hop",
    "hop_parts",
    "is_named",
    "name_key",
    "named_keys",
    "title_hop",
]
_LONGEST = 8  # terms of a name
_SHARE = 0.02  # of the atoms that a title or an entity may occur in (`docs/mathematics.md` 8.4)
_MOST = 512  # the same as a number: what a question costs does not grow with the memory
_NAMESAKES = 8  # documents of one title; more, and it is a heading such as "Introduction"
_BASE = 6364136223846793005  # odd, so that no term is lost in 64 bits (Knuth's multiplier)
_PAIR = 2862933555777941757


@dataclass(frozen=True, eq=False)
class HopParts:
    """A atoms, T mentions of titles, K concepts and M entries of atoms about concepts.

    Attributes:
        document: [A] bool, the atoms that are whole documents with a title.
        title_key: [A] int64, what stands for the title; 0 = none.
        mention_indptr, mention_target, mention_weight: [A + 1], [T] int32 and [T]: the documents
            whose title an atom mentions, each with 1 / sqrt(titles in the atom).
        entity_indptr, entity, entity_weight: [A + 1], [M] int32 and [M]: the entities of each atom,
            a unit IDF vector.
        bearer_indptr, bearer, bearer_weight: [K + 1], [M] int32 and [M]: the same by entity.
        entity_key: [K] int64, what stands for the name of a concept; 0 = none.
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
"""The buffers of an index that hold them; only a memory with documents has any."""


def hop_parts(
    terms: Tensor,  # [W] int64, the terms of the atoms one after another
    offsets: Tensor,  # [A + 1] int64
    title: Tensor,  # [A] int64 terms of the title at the start of each atom, -1 = no document
    about: tuple[Tensor, Tensor],  # [E] atoms, [E] concepts 0..K-1
    name_terms: Tensor,  # int64, the terms of the names of the concepts
    name_offsets: Tensor,  # [K + 1] int64
) -> HopParts:
    """The parts of a memory, from the terms of its texts and the concepts they are about."""
    title_key = _start_keys(terms, offsets, title)
    mention = _mentions(terms, offsets, title, title_key)
    entities = _entities(*about, len(title), len(name_offsets) - 1)
    key = _start_keys(name_terms, name_offsets, name_offsets.diff())
    tensors = (title >= 0, title_key, *mention, *entities, key)
    return HopParts(*tensors)


def _keys(terms: Tensor, start: Tensor, length: int) -> Tensor:
    """The key of the `length` terms from each start on."""
    key = torch.zeros_like(start)
    for place in range(length):
        key = key * _BASE + terms[start + place] + 1
    return key


def _start_keys(terms: Tensor, offsets: Tensor, length: Tensor) -> Tensor:
    """The key of the first terms of each row; 0 where there are none, or more than a name has."""
    keys = torch.zeros_like(length)
    for size in range(1, _LONGEST + 1):
        rows = (length == size).nonzero().squeeze(1)
        keys[rows] = _keys(terms, offsets[rows], size)
    return keys


def _mentions(
    terms: Tensor, offsets: Tensor, title: Tensor, title_key: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    atoms = len(title)
    known, number = title_key.unique(return_inverse=True)
    ends = offsets[1:]
    found = []
    for size in range(1, _LONGEST + 1):
        own = (title == size).nonzero().squeeze(1)
        if not len(own):
            continue
        # Few terms begin a title: only there is it worth looking.
        begins = torch.zeros(int(terms.max()) + 1, dtype=torch.bool)
        begins[terms[offsets[own]]] = True
        start = begins[terms].nonzero().squeeze(1)
        atom = torch.searchsorted(ends, start, right=True)
        inside = start + size <= ends[atom]
        start, atom = start[inside], atom[inside]
        key = _keys(terms, start, size)
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
    kept = (df <= _most(atoms))[name] & (bearers <= _NAMESAKES)[name] & (number[atom] != name)
    atom, name = atom[kept], name[kept]
    weight = torch.bincount(atom, minlength=atoms).clamp(min=1).float().rsqrt()[atom]
    order = torch.sort(number, stable=True).indices  # the documents by title
    entry, place = ranges(offsets_of(bearers)[name], bearers[name])
    target = order[place]
    return pointers(atom[entry], atoms), target.to(torch.int32), weight[entry]


def _entities(atom: Tensor, concept: Tensor, atoms: int, concepts: int) -> tuple[Tensor, ...]:
    pair = (atom * max(1, concepts) + concept).unique()
    atom, concept = pair // max(1, concepts), pair % max(1, concepts)
    df = torch.bincount(concept, minlength=concepts)
    idf = (atoms / df.clamp(min=1)).log().float()
    kept = ((df >= 2) & (df <= _most(atoms)))[concept]
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


def _most(atoms: int) -> float:
    return min(max(2.0, _SHARE * atoms), _MOST)


def name_key(terms: Tensor) -> int:  # [n] int64
    """What stands for a name of these terms in `HopParts`; 0 for none, or more than a name has."""
    ends = torch.tensor([0, len(terms)])
    return int(_start_keys(terms, ends, ends[1:]))


def named_keys(query_terms: Tensor | None) -> Tensor | None:  # [B, W], -1 padding -> [m] sorted
    """What the questions name, one key for each question and run of up to 8 of its terms.

    Runs that end in padding have the key of no name.
    """
    if query_terms is None:
        return None
    found = [query_terms.new_empty(0)]
    row = torch.arange(len(query_terms), device=query_terms.device)[:, None]
    key = torch.zeros_like(query_terms)
    for length in range(1, min(_LONGEST, query_terms.shape[1]) + 1):
        last = query_terms[:, length - 1 :]
        key = key[:, : last.shape[1]] * _BASE + last + 1
        found.append(_pair_keys(row, key.where(last >= 0, 0)).flatten())
    return torch.cat(found).sort().values


def _pair_keys(row: Tensor, key: Tensor) -> Tensor:
    """One number for a question and a key."""
    return key * _PAIR + row


def title_hop(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K], w_p = exp(F_p - max F)
    named: Tensor | None = None,  # of `named_keys`
) -> SparseRows:  # [B, A]
    """max_p w_p / sqrt(titles in p) over the anchors that mention the title of a document.

    Titles that the question names lead nowhere: it finds them itself.
    """
    row, atom, weight = _seeds(anchors, value)
    sender, edge = row_entries(parts.mention_indptr, atom)
    target = parts.mention_target[edge].long()
    reached = weight[sender] * parts.mention_weight.float()[edge]
    fresh = ~is_named(row[sender], parts.title_key[target], named)
    return _largest(row[sender], target, reached * fresh, len(anchors), parts.num_atoms)


def entity_hop(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K], w_p = exp(F_p - max F)
    named: Tensor | None = None,  # of `named_keys`
    seeds: tuple[Tensor, Tensor] | None = None,  # [B, S] of `name_key`, 0 = none; [B, 1] their w
) -> SparseRows:  # [B, A]
    """max_p w_p sqrt(<x_p without the question's entities, x_c>) over the anchors, for documents c.

    x is the unit IDF vector of an atom's entities. An anchor does not lead to itself. A seed is an
    entity that counts as an anchor about nothing else: it leads to w sqrt(its part of x_c).
    """
    row, atom, weight = _seeds(anchors, value)
    seed, edge = row_entries(parts.entity_indptr, atom)
    entity, share = parts.entity[edge].long(), parts.entity_weight.float()[edge]
    fresh = ~is_named(row[seed], parts.entity_key[entity], named)
    seed, entity, share = seed[fresh], entity[fresh], share[fresh]
    sender, place = row_entries(parts.bearer_indptr, entity)
    target, other = parts.bearer[place].long(), parts.bearer_weight.float()[place]
    start = seed[sender]
    key, slot = torch.unique(start * parts.num_atoms + target, return_inverse=True)
    product = share.new_zeros(len(key)).index_add_(0, slot, share[sender] * other)
    start, target = key // max(1, parts.num_atoms), key % max(1, parts.num_atoms)
    there = parts.document[target] & (target != atom[start])
    reached = weight[start] * product.clamp(min=0.0).sqrt() * there
    question = row[start]
    if seeds is not None:
        keys, value = seeds
        asked, _, entity = (
            (keys[:, :, None] == parts.entity_key) & (keys != 0)[:, :, None]
        ).nonzero(as_tuple=True)
        sender, place = row_entries(parts.bearer_indptr, entity)
        bearer, part = parts.bearer[place].long(), parts.bearer_weight.float()[place]
        led = value[asked[sender], 0] * part.clamp(min=0.0).sqrt() * parts.document[bearer]
        question = torch.cat([question, asked[sender]])
        target, reached = torch.cat([target, bearer]), torch.cat([reached, led])
    return _largest(question, target, reached, len(anchors), parts.num_atoms)


def dense_title_hop(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K]
    named: Tensor | None = None,
) -> Tensor:  # [B, A]
    """`title_hop` in shapes that no value decides: along all mentions, for all questions."""
    weight = value.new_zeros(len(anchors), parts.num_atoms + 1)  # and where none goes
    weight = weight.scatter_reduce(1, anchors % weight.shape[1], value, "amax")
    target = parts.mention_target.long()
    sender = csr_rows(parts.mention_indptr, len(target)).long()
    reached = weight[:, sender] * parts.mention_weight.to(value.dtype)
    row = torch.arange(len(anchors), device=anchors.device)[:, None].expand_as(reached)
    fresh = ~is_named(row, parts.title_key[target].expand_as(reached), named)
    found = value.new_zeros(len(anchors), parts.num_atoms)
    return found.scatter_reduce(1, target.expand_as(reached), reached * fresh, "amax")


def dense_entity_hop(
    parts: HopParts,
    anchors: Tensor,  # [B, K] int64 rows, -1 = none
    value: Tensor,  # [B, K]
    named: Tensor | None = None,
    seeds: tuple[Tensor, Tensor] | None = None,
) -> Tensor:  # [B, A]
    """`entity_hop` in shapes that no value decides: products with all entities of all atoms."""
    (questions, count), atoms = anchors.shape, parts.num_atoms
    to_entities = parts.bearer_indptr, parts.bearer, parts.bearer_weight.to(value.dtype)
    to_atoms = parts.entity_indptr, parts.entity, parts.entity_weight.to(value.dtype)
    picked = value.new_zeros(atoms + 1, anchors.numel())
    picked.scatter_(0, (anchors % (atoms + 1)).view(1, -1), 1.0)
    about = spmm(*to_entities, picked[:atoms])  # [entities, B * K]
    keys = parts.entity_key.expand(questions, -1)
    row = torch.arange(questions, device=anchors.device)[:, None].expand_as(keys)
    fresh = ~is_named(row, keys, named)
    about = about * fresh.T.repeat_interleave(count, dim=1)
    likeness = spmm(*to_atoms, about).clamp(min=0.0).sqrt().view(atoms, questions, count)
    other = torch.arange(atoms, device=anchors.device)[:, None, None] != anchors
    found = (likeness * value * (other & (anchors >= 0))).amax(2)
    if seeds is not None:
        wanted, worth = seeds
        asked = ((wanted[:, :, None] == parts.entity_key) & (wanted != 0)[:, :, None]).any(1)
        share = to_atoms[2].clamp(min=0.0).sqrt()
        led = spmm(*to_atoms[:2], share, asked.T.to(value.dtype), reduce="max").clamp(min=0.0)
        found = torch.maximum(found, led * worth.T)
    return (found * parts.document[:, None]).T


def _seeds(anchors: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The question, the row and the weight of every anchor there is."""
    row, place = (anchors >= 0).nonzero(as_tuple=True)
    return row, anchors[row, place], value[row, place]


def is_named(row: Tensor, key: Tensor, named: Tensor | None) -> Tensor:
    """Whether questions name what keys stand for; `named` as of `named_keys`, 0 is no key."""
    if named is None or not len(named):
        return torch.zeros_like(key, dtype=torch.bool)
    wanted = _pair_keys(row, key)
    place = torch.searchsorted(named, wanted).clamp(max=len(named) - 1)
    return (named[place] == wanted) & (key != 0)


def _largest(row: Tensor, column: Tensor, value: Tensor, rows: int, columns: int) -> SparseRows:
    kept = value > 0
    key, slot = torch.unique(row[kept] * columns + column[kept], return_inverse=True)
    best = value.new_zeros(len(key)).scatter_reduce(0, slot, value[kept], "amax")
    return SparseRows(key, best, (rows, columns))
