"""Shared hops: hops from the anchors of all shards to the documents of one.

Titles and entities have numbers that all shards share. A shard sends what its anchors name, and
looks up who bears these names among its own documents (`docs/mathematics.md` 8.4). What is common,
and so leads nowhere, is decided by the counts of all shards.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.coo import offsets_of, pointers
from graphmem_torch.ops.ragged import row_entries
from graphmem_torch.rank.hops import (
    LONGEST_NAME,
    MOST_NAMESAKES,
    HopPairs,
    is_named,
    most_bearers,
    run_keys,
)
from graphmem_torch.rank.peers import Peers

__all__ = [
    "HopInputs",
    "SharedHops",
    "Titles",
    "mention_pairs",
    "shared_hops",
    "shared_pairs",
    "titles_of",
]


class HopInputs(NamedTuple):
    """Source of hops: A atoms, W terms.

    Attributes:
        terms, offsets: [W] and [A + 1] int64, the terms of the atoms one after another.
        title: [A] int64, number of first terms that are the title of a document, -1 = none.
        atom, concept: [E] int64, which atoms are about which concepts.
    """

    terms: Tensor
    offsets: Tensor
    title: Tensor
    atom: Tensor
    concept: Tensor


class Titles(NamedTuple):
    """Titles of documents, ascending by key: [U] each.

    Attributes:
        key: Hash of the terms, by the hashes that all shards share.
        size: Number of terms.
        first: Hash of the first term.
        bearers: Number of documents with the title.
    """

    key: Tensor
    size: Tensor
    first: Tensor
    bearers: Tensor

    @classmethod
    def joined(cls, parts: list[Titles]) -> Titles:
        """Return the titles of all shards."""
        key, slot = torch.cat([part.key for part in parts]).unique(return_inverse=True)
        bearers = torch.zeros_like(key).index_add_(0, slot, torch.cat([p.bearers for p in parts]))
        size, first = (
            torch.zeros_like(key).index_copy(0, slot, torch.cat([getattr(p, name) for p in parts]))
            for name in ("size", "first")
        )
        return cls(key, size, first, bearers)


def titles_of(inputs: HopInputs, codes: Tensor) -> tuple[Titles, Tensor]:  # , [A] int64
    """Return the titles of a shard, and the key of each atom's title, 0 = none.

    Args:
        inputs: Source of the hops.
        codes: [V] int64, hash of each term.
    """
    title, begin = inputs.title, inputs.offsets[:-1]
    keys = torch.zeros_like(title)
    for size in range(1, LONGEST_NAME + 1):
        rows = (title == size).nonzero().squeeze(1)
        keys[rows] = run_keys(codes[inputs.terms], begin[rows], size)
    named = (keys != 0).nonzero().squeeze(1)
    key, slot, count = keys[named].unique(return_inverse=True, return_counts=True)
    bearer = torch.zeros_like(key).index_copy(0, slot, named)  # any of them
    first = codes[inputs.terms[begin[bearer]]] if len(key) else key
    return Titles(key, title[bearer] if len(key) else key, first, count), keys


def mention_pairs(inputs: HopInputs, codes: Tensor, titles: Titles) -> tuple[Tensor, Tensor]:
    """Return which atoms mention which titles of all shards: [P] atoms, [P] numbers of titles."""
    found = [torch.empty(0, dtype=torch.int64)]
    names = max(1, len(titles.key))
    for size in range(1, LONGEST_NAME + 1):
        own = titles.size == size
        if not bool(own.any()):
            continue
        # Few terms begin a title; compare only there.
        begins = torch.isin(codes, titles.first[own])
        start = begins[inputs.terms].nonzero().squeeze(1)
        atom = torch.searchsorted(inputs.offsets[1:], start, right=True)
        inside = start + size <= inputs.offsets[1:][atom]
        start, atom = start[inside], atom[inside]
        key = run_keys(codes[inputs.terms], start, size)
        place = torch.searchsorted(titles.key, key).clamp(max=len(titles.key) - 1)
        hit = (titles.key[place] == key) & own[place]
        found.append(atom[hit] * names + place[hit])
    pair = torch.cat(found).unique()
    return pair // names, pair % names


@dataclass(frozen=True, eq=False)
class SharedHops:
    """Names in the A atoms of a shard, and their bearers, by the numbers of all shards.

    Attributes:
        mention_indptr, mention, mention_weight: [A + 1], [T] int64 and [T]: the titles that an atom
            mentions, each with 1 / sqrt(titles in the atom).
        title, title_indptr, title_document: [U] int64 ascending, [U + 1] and [D] int64: the titles
            of documents of this shard, and these documents.
        title_key: [A] int64, hash of the title as questions have it (`HopParts`).
        entity_indptr, entity, entity_weight: [A + 1], [M] int64 and [M]: the entities of each atom,
            a unit IDF vector.
        bearer_entity, bearer_indptr, bearer, bearer_weight: [K] int64 ascending, [K + 1], [M] int64
            and [M]: the same by entity.
        bearer_key: [K] int64, hash of the name of each as questions have it; 0 = none.
        document: [A] bool, mask of the documents.
    """

    mention_indptr: Tensor
    mention: Tensor
    mention_weight: Tensor
    title: Tensor
    title_indptr: Tensor
    title_document: Tensor
    title_key: Tensor
    entity_indptr: Tensor
    entity: Tensor
    entity_weight: Tensor
    bearer_entity: Tensor
    bearer_indptr: Tensor
    bearer: Tensor
    bearer_weight: Tensor
    bearer_key: Tensor
    document: Tensor

    def to(self, device: torch.device | str) -> SharedHops:
        """Return the same on another device."""
        return SharedHops(*(getattr(self, each.name).to(device) for each in fields(self)))


def shared_hops(
    inputs: HopInputs,
    mentions: tuple[Tensor, Tensor],  # of `mention_pairs`
    keys: Tensor,  # [A] int64, of `titles_of`
    titles: Titles,
    mentioned: Tensor,  # [U] int64, number of atoms of all shards that mention each title
    entity_of: Tensor,  # [concepts] int64, number of each concept among the entities of all
    bearing: Tensor,  # [entities] int64, number of atoms of all shards about each
    atoms: int,
    question_keys: tuple[Tensor, Tensor],  # [A] of titles, [concepts] of names; 0 = none
) -> SharedHops:
    """Build what a shard of `atoms` in all needs for hops between shards."""
    count, most = len(inputs.title), most_bearers(atoms)
    number = torch.searchsorted(titles.key, keys).clamp(max=max(0, len(titles.key) - 1))
    own = (keys != 0).nonzero().squeeze(1)
    atom, name = mentions
    kept = (mentioned <= most)[name] & (titles.bearers <= MOST_NAMESAKES)[name]
    kept &= (keys[atom] == 0) | (number[atom] != name)
    atom, name = atom[kept], name[kept]
    weight = torch.bincount(atom, minlength=count).clamp(min=1).float().rsqrt()[atom]
    title, bearers = number[own].unique(return_counts=True)
    order = number[own].argsort(stable=True)
    pair = (inputs.atom * max(1, len(bearing)) + entity_of[inputs.concept]).unique()
    about, entity = pair // max(1, len(bearing)), pair % max(1, len(bearing))
    led = ((bearing >= 2) & (bearing <= most))[entity]
    about, entity = about[led], entity[led]
    value = (atoms / bearing.clamp(min=1)).log().float()[entity]
    size = torch.zeros(count).index_add_(0, about, value.square()).sqrt()
    value = value / size[about].clamp(min=torch.finfo(torch.float32).tiny)
    by_entity = entity.argsort(stable=True)
    known, each = entity.unique(return_counts=True)
    asked = torch.zeros(len(bearing), dtype=torch.int64)
    asked[entity_of] = question_keys[1]
    return SharedHops(
        mention_indptr=pointers(atom, count),
        mention=name,
        mention_weight=weight,
        title=title,
        title_indptr=offsets_of(bearers),
        title_document=own[order],
        title_key=question_keys[0],
        entity_indptr=pointers(about, count),
        entity=entity,
        entity_weight=value,
        bearer_entity=known,
        bearer_indptr=offsets_of(each),
        bearer=about[by_entity],
        bearer_weight=value[by_entity],
        bearer_key=asked[known],
        document=inputs.title >= 0,
    )


def shared_pairs(
    shared: SharedHops,
    peers: Peers,
    anchors: Tensor,  # [B, K] int64 rows of the own anchors of all, -1 = of another shard
    named: Tensor | None,  # keys of `rank.hops.named_keys`
) -> tuple[HopPairs, HopPairs]:
    """Return `title_pairs` and `entity_pairs` from the anchors of all shards to own documents."""
    titles, entities = _sent(
        peers,
        anchors,
        (shared.mention_indptr, shared.mention, shared.mention_weight),
        (shared.entity_indptr, shared.entity, shared.entity_weight),
    )
    row, place, name, weight = titles
    sender, document = _found(shared.title, shared.title_indptr, name)
    target = shared.title_document[document]
    row, place = row[sender], place[sender]
    fresh = ~is_named(row, shared.title_key[target], named)
    by_title = HopPairs(row, place, target, weight[sender] * fresh)
    row, place, entity, share = entities
    sender, entry = _found(shared.bearer_entity, shared.bearer_indptr, entity)
    known = torch.searchsorted(shared.bearer_indptr, entry, right=True) - 1
    fresh = ~is_named(row[sender], shared.bearer_key[known], named)
    sender, entry = sender[fresh], entry[fresh]
    target, atoms, slots = shared.bearer[entry], len(shared.document), anchors.shape[1]
    start = row[sender] * slots + place[sender]
    key, slot = torch.unique(start * atoms + target, return_inverse=True)
    product = share.new_zeros(len(key)).index_add_(
        0, slot, share[sender] * shared.bearer_weight[entry]
    )
    start, target = key // max(1, atoms), key % max(1, atoms)
    row, place = start // max(1, slots), start % max(1, slots)
    there = shared.document[target] & (target != anchors[row, place])
    return by_title, HopPairs(row, place, target, product.clamp(min=0.0).sqrt() * there)


_Named = tuple[Tensor, Tensor, Tensor]  # pointers by atom, numbers of names, weights


def _sent(
    peers: Peers, anchors: Tensor, *named: _Named
) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:  # [n] each: question, slot, number, weight
    """Return what the anchors of all shards name; each anchor belongs to one of them."""
    row, place = (anchors >= 0).nonzero(as_tuple=True)
    parts, most = [], []
    for indptr, name, weight in named:
        sender, entry = row_entries(indptr, anchors[row, place])
        first = torch.searchsorted(sender, torch.arange(len(row), device=sender.device))
        lane = torch.arange(len(sender), device=sender.device) - first[sender]
        most.append(int(lane.max()) + 1 if len(lane) else 0)
        parts.append((sender, lane, name[entry].double(), weight[entry].double()))
    widths = peers.largest("width of names", torch.tensor(most)).tolist()
    shape = (*anchors.shape, sum(widths), 2)
    own = torch.full(shape, -1.0, dtype=torch.float64, device=anchors.device)
    begin = 0
    for (sender, lane, number, share), width in zip(parts, widths, strict=True):
        own[row[sender], place[sender], begin + lane, 0] = number
        own[row[sender], place[sender], begin + lane, 1] = share
        begin += width
    found = []
    for part in peers.largest("names", own).split(widths, dim=2):
        at = (part[..., 0] >= 0).nonzero(as_tuple=True)
        number, share = part[at].unbind(1)
        found.append((at[0], at[1], number.long(), share.float()))
    return found


def _found(known: Tensor, indptr: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of the wanted names are known, once for each of their entries, and these."""
    if not len(known):
        return wanted[:0], wanted[:0]
    place = torch.searchsorted(known, wanted).clamp(max=len(known) - 1)
    (there,) = (known[place] == wanted).nonzero(as_tuple=True)
    sender, entry = row_entries(indptr, place[there])
    return there[sender], entry.long()
