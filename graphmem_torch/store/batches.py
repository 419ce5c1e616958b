"""Tensors of one write to a store (`Batch`), and of the vectors read from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.checks import check_tensor
from graphmem_torch.coo import offsets_of
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.ops.ragged import row_entries
from graphmem_torch.store.arrays import EdgeArrays, TokenArrays
from graphmem_torch.store.records import AtomRow

__all__ = [
    "Batch",
    "NodeVectors",
    "TokenRows",
    "edges_of",
    "join_tokens",
    "pick_tokens",
    "tokens_of",
]


class TokenRows(NamedTuple):
    """Packed token vectors of N atoms.

    Attributes:
        tokens: [T, m] int8, unit vectors times 127.
        pieces: [T] int32 word-piece numbers.
        offsets: [N + 1] int64; atom i owns rows offsets[i] to offsets[i + 1].
    """

    tokens: Tensor
    pieces: Tensor
    offsets: Tensor


class NodeVectors(NamedTuple):
    """Vectors of single nodes, in the order they were asked for.

    Attributes:
        embeddings: [n, d] float32.
        tokens: Token vectors of the same nodes; None if the store holds none.
    """

    embeddings: Tensor
    tokens: TokenRows | None


@dataclass(frozen=True, eq=False)
class Batch:
    """One acknowledged write: n atoms with their vectors, and any edges.

    Attributes:
        atoms: The n atoms; they get the node numbers `next_node` to `next_node + n - 1`.
        embeddings: [n, d] float32, finite.
        tokens: Token vectors of the atoms; None: they have none.
        edges: Edges that linking made, between stored nodes and those of the batch. A batch may
            hold only edges.
        cut: Edges to remove, such as a temporal edge whose two turns are no longer neighbours. Each
            removes one stored edge, if there is one. A weight of NaN matches any weight.
        gone: Node numbers of stored atoms to remove, with everything recorded about them. The
            numbers are never reused; the vectors stay in the blocks, unread.
        connected: Edges that callers made.
        versions: Pairs (old, new): the new atom replaces the old one, which is in `gone`. The old
            version is kept; its pins and uses move to the new one.
        unnamed: Aliases of concepts to remove; `aliases` may add some again.
        aliases: Aliases of concepts, each with the node number of its concept.
        alias_embeddings: [a, d] float32 vectors of `aliases`; None: not known.
        rows: Rows of the atoms, if the caller has already made them.
    """

    atoms: Sequence[Atom]
    embeddings: Tensor
    tokens: TokenRows | None = None
    edges: EdgeBlock = field(default_factory=EdgeBlock.empty)
    cut: EdgeBlock = field(default_factory=EdgeBlock.empty)
    gone: Sequence[int] = ()
    connected: EdgeBlock = field(default_factory=EdgeBlock.empty)
    versions: Sequence[tuple[int, int]] = ()
    unnamed: Sequence[str] = ()
    aliases: Sequence[tuple[str, int]] = ()
    alias_embeddings: Tensor | None = None
    rows: Sequence[AtomRow] | None = None

    def validate(self, *, dim: int | None, token_dim: int | None) -> None:
        """Check the vectors against the atoms and the widths of the store (None: not yet known).

        Raises:
            InputError: Shapes, types or offsets do not fit.
            EmbedderError: An embedding is not finite; the message names the atom.
        """
        n, do = len(self.atoms), "convert or reshape it: a store keeps one width for ever"
        if n or self.embeddings.numel():
            check_tensor("embeddings", self.embeddings, "float32", (n, dim or "d"), do)
        bad = (~torch.isfinite(self.embeddings)).nonzero()
        if len(bad):
            atom = self.atoms[int(bad[0, 0])]
            raise EmbedderError(
                f"embeddings: expected finite vectors, got NaN or infinity for atom {atom.id!r} "
                f"({atom.text[:40]!r}); check the embedder (half precision overflows) or its input"
            )
        if self.alias_embeddings is not None and self.aliases:
            shape = len(self.aliases), dim or "d"
            check_tensor("alias_embeddings", self.alias_embeddings, "float32", shape, do)
        if self.tokens is None:
            return
        tokens, pieces, offsets = self.tokens
        check_tensor("tokens", tokens, "int8", ("T", token_dim or "m"), do)
        check_tensor("pieces", pieces, "int32", (len(tokens),), do)
        check_tensor("offsets", offsets, "int64", (n + 1,), do)
        first, last = int(offsets[0]), int(offsets[-1])
        if first != 0 or last != len(tokens) or bool((offsets.diff() < 0).any()):
            raise InputError(
                f"offsets: expected an ascending sequence from 0 to {len(tokens)}, got {first} to "
                f"{last}; offsets[i] is where the token vectors of atom i begin"
            )


def edges_of(arrays: EdgeArrays) -> EdgeBlock:
    """Wrap edges in tensors that share their memory."""
    return EdgeBlock(*map(torch.from_numpy, arrays))


def tokens_of(arrays: TokenArrays) -> TokenRows:
    """Wrap token vectors in tensors that share their memory."""
    return TokenRows(*map(torch.from_numpy, arrays))


def pick_tokens(rows: TokenRows, pick: Tensor) -> TokenRows:
    """Select the token vectors of atoms `pick` [n], in that order; shares them if all are taken."""
    counts = rows.offsets.diff()[pick]
    offsets = offsets_of(counts)
    # The atoms left out, as concepts, own none: a copy would double the largest column.
    if int(offsets[-1]) == len(rows.tokens) and bool((pick.diff() > 0).all()):
        return TokenRows(rows.tokens, rows.pieces, offsets)
    _, index = row_entries(rows.offsets, pick)
    return TokenRows(rows.tokens[index], rows.pieces[index], offsets)


def join_tokens(parts: Sequence[TokenRows], dim: int) -> TokenRows:
    """Concatenate the token vectors of several parts."""
    empty = TokenRows(
        torch.empty(0, dim, dtype=torch.int8),
        torch.empty(0, dtype=torch.int32),
        torch.zeros(1, dtype=torch.int64),
    )
    tokens, pieces, offsets = zip(empty, *parts, strict=True)
    counts = torch.cat([part.diff() for part in offsets])
    return TokenRows(torch.cat(tokens), torch.cat(pieces), offsets_of(counts))
