"""What a store takes in one write and gives back of vectors, as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.checks import check_tensor
from graphmem_torch.coo import offsets_of
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.ops.ragged import row_entries
from graphmem_torch.store.arrays import EdgeArrays, TokenArrays

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
        tokens: Token vectors of the same nodes; None when the store holds none at all.
    """

    embeddings: Tensor
    tokens: TokenRows | None


@dataclass(frozen=True, eq=False)
class Batch:
    """One acknowledged write: n atoms with their vectors, and any edges.

    Attributes:
        atoms: The n atoms; they get the node numbers `next_node` to `next_node + n - 1`.
        embeddings: [n, d] float32, finite.
        tokens: Their token vectors; None: these atoms have none.
        edges: Edges that linking made, among all nodes up to and including these. A batch may hold
            nothing but edges.
        cut: Edges that go, such as a temporal one that a turn has come between: as many of each as
            are there, at most as many as are named. A weight of NaN stands for any.
        gone: Node numbers of stored atoms that go, with everything that is said of them. Their
            numbers are given to no other, and their vectors stay in the blocks, unread.
        connected: Edges that callers made.
        versions: Of atoms that go and of the batch's own, the pairs (old, new) of versions of one:
            the old one is kept aside, and pins and uses become those of the new one.
        unnamed: Names of concepts, `aliases` of before, that go; some may come again.
        aliases: Names of concepts other than their own, each with the node number of its concept.
        alias_embeddings: [a, d] float32, of the `aliases`; None: not known.
        rows: Rows of the atoms, as `atom_to_row` gives them, where they are made already.
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
    rows: Sequence[tuple[Any, ...]] | None = None

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
    """Edges that were read, as tensors that share their memory."""
    return EdgeBlock(*map(torch.from_numpy, arrays))


def tokens_of(arrays: TokenArrays) -> TokenRows:
    """Token vectors that were read, as tensors that share their memory."""
    return TokenRows(*map(torch.from_numpy, arrays))


def pick_tokens(rows: TokenRows, pick: Tensor) -> TokenRows:
    """The token vectors of the atoms `pick` [n], in that order."""
    counts = rows.offsets.diff()[pick]
    offsets = offsets_of(counts)
    _, index = row_entries(rows.offsets, pick)
    return TokenRows(rows.tokens[index], rows.pieces[index], offsets)


def join_tokens(parts: Sequence[TokenRows], dim: int) -> TokenRows:
    """The atoms of several parts one after the other."""
    empty = TokenRows(
        torch.empty(0, dim, dtype=torch.int8),
        torch.empty(0, dtype=torch.int32),
        torch.zeros(1, dtype=torch.int64),
    )
    tokens, pieces, offsets = zip(empty, *parts, strict=True)
    counts = torch.cat([part.diff() for part in offsets])
    return TokenRows(torch.cat(tokens), torch.cat(pieces), offsets_of(counts))
