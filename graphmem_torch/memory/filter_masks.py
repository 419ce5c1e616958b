"""Filters: masks of the atoms that may be hits, and the concepts that a question starts from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import cast

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, CONCEPT, KINDS
from graphmem_torch.errors import InputError, nearest_names, unknown
from graphmem_torch.memory.fields import AtomFields
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.memory.request import Filters
from graphmem_torch.memory.validity_spans import whole
from graphmem_torch.rank.filters import fields_of, parse_where
from graphmem_torch.rank.hops import name_key
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.text.naming import plain_name
from graphmem_torch.text.times import parse_span
from graphmem_torch.text.unicode_forms import composed

__all__ = ["atom_masks", "concept_nodes", "entity_seeds", "over_moments", "unknown_concept"]

_NEAREST = 3  # maximum names of concepts in a message


def atom_masks(
    snapshot: Snapshot,
    fields: AtomFields,
    filters: Filters,
    instants: Sequence[float | None],
    excluded: Sequence[Sequence[int]] = (),
    valid: Tensor | None = None,
    expired: Sequence[Collection[int]] = (),
) -> dict[str, Tensor]:
    """Return the masks `allowed` [1 or T, A] and `listed` [1 or B, A] of a retrieval's filters.

    `between`, `as_of` and `valid_at` set which atoms exist for the question; an aggregate needs all
    of its members. An expired atom does not exist. `kinds`, `where` and `exclude` set only which
    are listed. Unlisted atoms are still traversed: a fact leads to its turns, a question to its
    answer. Aggregates are listed only if `kinds` has them, or `where` uses `kind` or `id`.

    Args:
        snapshot: Snapshot of A atoms.
        fields: Fields of the store.
        filters: Kinds, span and conditions.
        instants: T moments of `as_of`, seconds since the epoch UTC; None: now.
        excluded: Nodes that may not be hits, for each question or for all.
        valid: [1 or T, A] bool, atoms that were true at `valid_at`; None: any.
        expired: Nodes that have expired at each moment, those derived from them included.

    Raises:
        InputError: Unknown kind, invalid time, a span that ends before it starts, or an unusable
            condition.
    """
    index, masks = snapshot.index, {}
    kinds, between, where = filters.scope.kinds, filters.between, filters.where
    if kinds is not None:
        several = isinstance(kinds, Iterable) and not isinstance(kinds, str)
        kinds = list(kinds) if several else [cast(str, kinds)]
        kinds = [composed(kind) if isinstance(kind, str) else kind for kind in kinds]
        for kind in kinds:
            if kind not in snapshot.kinds and kind not in KINDS:
                known = sorted({*KINDS, *snapshot.kinds} - {CONCEPT})
                raise InputError(unknown("kinds", kind, known))
        there = [snapshot.kinds.index(kind) for kind in kinds if kind in snapshot.kinds]
        codes = torch.tensor(there, dtype=torch.int64)
        masks["listed"] = torch.isin(index.kind.long(), codes.to(index.kind.device))[None]
    elif AGGREGATE in snapshot.kinds and not (
        where is not None and fields_of(parse_where(where)) & {"kind", "id"}
    ):
        masks["listed"] = (index.kind != snapshot.kinds.index(AGGREGATE))[None]
    if where is not None:
        listed = fields.where(snapshot, where)[None]
        masks["listed"] = listed & masks["listed"] if "listed" in masks else listed
    if any(excluded):
        rows = [snapshot.rows_of(nodes) for nodes in excluded]
        question = torch.arange(len(rows)).repeat_interleave(torch.tensor(list(map(len, rows))))
        listed = torch.ones(len(rows), index.num_atoms, dtype=torch.bool)
        listed[question, torch.cat(rows)] = False
        listed = listed.to(index.kind.device)
        masks["listed"] = listed & masks["listed"] if "listed" in masks else listed
    if between is not None or any(each is not None for each in instants):
        start, end = (-torch.inf, torch.inf) if between is None else parse_span(between)
        last = torch.tensor(
            [[end if each is None else min(end, each)] for each in instants],
            dtype=torch.float64,
            device=index.time.device,
        )
        # An unknown time is NaN, outside of every span.
        masks["allowed"] = (index.time >= start) & (index.time <= last)
        if between is not None:
            masks["allowed"] = whole(snapshot, masks["allowed"])
    if valid is not None:
        valid = valid.to(index.kind.device)
        masks["allowed"] = valid & masks["allowed"] if "allowed" in masks else valid
    if any(expired):
        present = torch.ones(len(expired), index.num_atoms, dtype=torch.bool)
        for moment, nodes in enumerate(expired):
            present[moment, snapshot.rows_of(sorted(nodes))] = False
        present = present.to(index.kind.device)
        masks["allowed"] = present & masks["allowed"] if "allowed" in masks else present
    return masks


def entity_seeds(
    snapshot: Snapshot, store: TensorReader, named: Sequence[Sequence[str]], count: int
) -> dict[str, Tensor]:
    """Return concepts as the columns `seeds` and `seed_keys` [B, S] of a `QueryBatch`.

    Args:
        snapshot: Snapshot of the store.
        store: Store of the concepts.
        named: Names of concepts, for each question or for all.
        count: Number of questions B.

    Raises:
        InputError: No concept has the name; the message has the nearest names.
    """
    if not any(named):
        return {}
    plain = [list(map(plain_name, names)) for names in named]
    found = concept_nodes(store, [*chain(*named)], "seeds")
    there = {name: node for name, node in found.items() if node < snapshot.index.num_nodes}
    concepts = store.atoms(list(there.values()))  # their main names, as a concept may have several
    terms, ends = snapshot.vocabulary.encode([concept.text for concept in concepts], grow=False)
    keys = dict(zip(there, map(name_key, terms.tensor_split(ends[1:-1])), strict=True))
    width = max(map(len, plain))
    nodes = [[there.get(name, -1) for name in names] for names in plain]
    columns = {"seeds": (nodes, -1)}
    columns["seed_keys"] = ([[keys.get(name, 0) for name in names] for names in plain], 0)
    device = snapshot.index.kind.device
    return {
        name: torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=device)
        .expand(count, -1)
        .contiguous()
        for name, (rows, pad) in columns.items()
    }


def over_moments(masks: Mapping[str, Tensor], questions: int, moments: int) -> dict[str, Tensor]:
    """Return columns of a `QueryBatch` with a row for each of B questions at each of T moments.

    Args:
        masks: Columns of the questions (`seeds`, `seed_keys` and `listed`, which may be [1, A] for
            all), or of the moments (the others, [T, A]).
        questions: Number of questions B.
        moments: Number of moments T.
    """
    if moments == 1:
        return dict(masks)
    rows = {}
    for name, each in masks.items():
        if name in ("seeds", "seed_keys") or (name == "listed" and len(each) > 1):
            rows[name] = each.repeat_interleave(moments, 0)
        else:
            rows[name] = each if name == "listed" else each.repeat(questions, 1)
    return rows


def concept_nodes(
    store: TensorReader, named: Sequence[str], argument: str, do: str = "leave it out"
) -> dict[str, int]:
    """Return the nodes of concepts by `plain_name`.

    Args:
        store: Store of the concepts.
        named: Names of concepts.
        argument: Name of the argument, for the error.
        do: Remedy if no name is similar.

    Raises:
        InputError: No concept has the name; the message has the nearest names.
    """
    found = store.concepts(list(dict.fromkeys(map(plain_name, named))))
    for given in named:
        if plain_name(given) not in found:
            raise unknown_concept(given, [store], argument, do)
    return found


def unknown_concept(
    given: str, stores: Sequence[TensorReader], argument: str, do: str = "leave it out"
) -> InputError:
    """Return the error for the name of a concept that none of some stores has.

    Args:
        given: The name.
        stores: Stores of the concepts.
        argument: Name of the argument.
        do: Remedy if no name is similar.
    """
    known = [name for store in stores for name in store.texts(kind=CONCEPT)]
    known += [other for store in stores for _, other, _ in store.aliases()]
    if len(stores) > 1:  # shards share names
        known = list(dict.fromkeys(known))
    nearest = nearest_names(plain_name(given), known, _NEAREST)
    if not nearest:
        return InputError(
            f"{argument}: expected names of concepts, got {given!r:.80}, and none of "
            f"{len(known):,} is like it; {do}"
        )
    return InputError(unknown(argument, given, nearest, what="a name of a concept, such as"))
