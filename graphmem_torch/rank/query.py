"""QueryBatch: a batch of B questions as tensors, the input of every signal."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from graphmem_torch.checks import all_finite, check_tensor
from graphmem_torch.errors import InputError
from graphmem_torch.ops.fixed_shapes import doubt, shapes_are_fixed

__all__ = ["ATOM_COLUMNS", "LISTS", "QueryBatch"]

ATOM_COLUMNS = ("allowed", "listed", "retention", "ended", "group", "tier")
"""Columns with a value for each atom, in which one row may stand for all questions."""

LISTS = {
    **dict.fromkeys(("terms", "pieces", "seeds", "planned", "followed", "asked_terms"), -1),
    **dict.fromkeys(("tokens", "wishes", "seed_keys", "asked_bits"), 0),
    **{"replies": -1, "reply_weight": 0},
}
"""Columns that are lists, and what ends a shorter one."""


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """B questions. A column that is None is unknown, and signals that need it are 0.

    Attributes:
        embedding: [B, d] float32 unit rows.
        terms: [B, W] int64 term ids of the lexical index, -1 padding.
        missing: [B] float32, number of question terms that the lexical index lacks.
        foreign: [B] float32, idf of the terms that only other shards have; None: one store.
        tokens: [B, Q, m] float32 unit token vectors.
        pieces: [B, Q] int64 word-piece numbers, -1 padding.
        speakers: [B, S] bool, speakers that a question names.
        months: [B, 12] bool, days: [B, 31] bool: months and days of a month that a question names.
        span: [B, 2] int64, the first day since the epoch that a question states, also by words such
            as "last week", and the day after the last; 0 and 0 if it states none.
        asks_when: [B] bool, mask of questions for a time.
        recalls: [B] bool, mask of questions about what an assistant said.
        unread: [B] float32 in [0, 1], share of a question that the encoder cannot read.
        unreadable: [B] bool, mask of questions in a language that the encoder does not read.
        background: [B] float32, the cosine that the encoder gives unrelated texts; None: about 0.
        wishes: [B, P, d] float32 unit rows, the parts of a question that has several, zero padding.
        nearest: [B] float32, the best cosine that the memory has with an unrelated text, averaged
            over several such texts; None: unknown.
        allowed: [B or 1, A] bool, the atoms that exist for the question; others are neither hits
            nor anchors.
        listed: [B or 1, A] bool, the atoms that may be hits; the others still lead to them.
        seeds: [B, S] int64, start nodes besides the anchors, -1 padding; each as strong as the best
            anchor.
        seed_keys: [B, S] int64, `rank.hops.name_key` of the concepts in `seeds`, 0 padding.
        planned: [B, K] int64, the atoms that a plan left (`rank.plan.prune`), best first, -1
            padding; None: candidates by the settings.
        retention: [B or 1, A] float32 in [0, 1], remaining share of each atom's strength since its
            last use; None: 1.
        ended: [B or 1, A] bool, the atoms whose validity has ended; None: no atom.
        group: [B or 1, A] int64, group of memories that say the same, from 1; only the best of a
            group is a hit. 0: no group. None: no groups.
        tier: [B or 1, A] integers: hits of a smaller tier come before those of larger ones,
            whatever their scores; None: scores alone decide.
        asked_key: [B] int64, equal to that of stored questions that ask the same; 0: asks nothing.
        asked_terms: [B, W] int64, distinct terms of what is asked, -1 padding.
        asked_bits: [B, W] int64, the bit of each of these terms.
        asked_words: [B] int64, number of these terms, including terms that no atom has. 0: the
            question asks for stored questions, so only those in the same words are echoes.
        replies: [B, P] int64, the atoms that follow stored questions which ask the same
            (`rank.echo`), -1 padding; reply_weight: [B, P] float32, their weights.
        followed: [B, P] int64, the atoms found by following successions
            (`rank.succession.follow`), -1 padding; None: none.
    """

    embedding: Tensor
    terms: Tensor | None = None
    missing: Tensor | None = None
    foreign: Tensor | None = None
    tokens: Tensor | None = None
    pieces: Tensor | None = None
    speakers: Tensor | None = None
    months: Tensor | None = None
    days: Tensor | None = None
    span: Tensor | None = None
    asks_when: Tensor | None = None
    recalls: Tensor | None = None
    unread: Tensor | None = None
    unreadable: Tensor | None = None
    background: Tensor | None = None
    wishes: Tensor | None = None
    nearest: Tensor | None = None
    allowed: Tensor | None = None
    listed: Tensor | None = None
    seeds: Tensor | None = None
    seed_keys: Tensor | None = None
    planned: Tensor | None = None
    retention: Tensor | None = None
    ended: Tensor | None = None
    group: Tensor | None = None
    tier: Tensor | None = None
    followed: Tensor | None = None
    asked_key: Tensor | None = None
    asked_terms: Tensor | None = None
    asked_bits: Tensor | None = None
    asked_words: Tensor | None = None
    replies: Tensor | None = None
    reply_weight: Tensor | None = None

    def __len__(self) -> int:
        """B."""
        return self.embedding.shape[0]

    def to(self, device: torch.device | str) -> QueryBatch:
        """Return the batch on another device."""
        return QueryBatch(**{name: value.to(device) for name, value in self.given().items()})

    def given(self) -> dict[str, Tensor]:
        """Return the columns that are not None, by name."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in given.items() if value is not None}

    def rows(self, part: slice | Tensor) -> QueryBatch:
        """Return some of the questions."""
        taken: dict[str, Tensor] = {}
        for name, value in self.given().items():
            shared = name in ATOM_COLUMNS and value.shape[0] == 1
            taken[name] = value if shared else value[part]
        return QueryBatch(**taken)

    def check(self, *, dim: int, atoms: int, speakers: int) -> None:
        """Raise `InputError` unless the batch fits a memory of these sizes: d, A and S."""
        axes: dict[str, tuple[int | str, ...]] = {
            "embedding": (dim,),
            "terms": ("?",),
            "missing": (),
            "foreign": (),
            "tokens": ("?", "?"),
            "pieces": ("?",),
            "speakers": (speakers,),
            "months": (12,),
            "days": (31,),
            "span": (2,),
            "asks_when": (),
            "recalls": (),
            "unread": (),
            "unreadable": (),
            "background": (),
            "wishes": ("?", dim),
            "nearest": (),
            "allowed": (atoms,),
            "listed": (atoms,),
            "seeds": ("?",),
            "seed_keys": ("?",),
            "planned": ("?",),
            "retention": (atoms,),
            "ended": (atoms,),
            "group": (atoms,),
            "tier": (atoms,),
            "followed": ("?",),
            "asked_key": (),
            "asked_terms": ("?",),
            "asked_bits": ("?",),
            "asked_words": (),
            "replies": ("?",),
            "reply_weight": ("?",),
        }
        do = "give one row a question, made by the memory's own encoder and vocabulary"
        for name, tensor in self.given().items():
            rows = 1 if name in ATOM_COLUMNS and tensor.shape[:1] == (1,) else len(self)
            check_tensor(f"query.{name}", tensor, "", (rows, *axes[name]), do)

    def checked(self, vocabulary: int | Tensor) -> QueryBatch:
        """Return the questions after checking values; fixed shapes raise flags instead of errors.

        Terms outside the vocabulary are then left out, as kernels must not be given them.
        Otherwise operations refuse them.

        Raises:
            InputError: A vector has NaN or infinity.
        """
        for name in ("embedding", "tokens", "wishes"):
            values: Tensor | None = getattr(self, name)
            if values is None or not values.numel() or torch.compiler.is_compiling():
                continue
            if shapes_are_fixed():
                ends = torch.stack(values.detach().aminmax())
                doubt(ends.isfinite().logical_not().any())
            elif not all_finite(values):
                raise InputError(
                    f"query.{name}: expected finite numbers, got NaN or infinity; check the "
                    "embedder"
                )
        if not shapes_are_fixed() or torch.compiler.is_compiling():
            return self
        known: dict[str, Tensor] = {}
        for name in ("terms", "asked_terms"):
            terms: Tensor | None = getattr(self, name)
            if terms is not None and terms.numel():
                strange = terms >= vocabulary
                doubt(strange.any())
                known[name] = terms.masked_fill(strange, -1)
        return replace(self, **known)
