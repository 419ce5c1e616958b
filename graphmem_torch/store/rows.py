"""Vectors of single nodes, wherever their blocks are: for texts that were encoded before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.store.blocks import TokenRows, offsets_of, read_embeddings, read_tokens
from graphmem_torch.store.database import Database

__all__ = ["Rows", "join_tokens", "pick_tokens", "read_rows"]

_NEAR = 256  # nodes: about one block, which is read whole anyway


class Rows(NamedTuple):
    """Vectors of single nodes, in the order they were asked for.

    Attributes:
        embeddings: [n, d] float32.
        tokens: [T, m] int8, or None when the store holds no token vectors at all.
        pieces: [T] int32, or None.
        offsets: [n + 1] int64, or None.
    """

    embeddings: Tensor
    tokens: Tensor | None
    pieces: Tensor | None
    offsets: Tensor | None


def read_rows(database: Database, nodes: Sequence[int], dim: int, token_dim: int | None) -> Rows:
    """Vectors of `nodes`, each of which was given to an atom once; inside `Database.reading`.

    Raises:
        StoreDamagedError: A block is missing or has the wrong length.
    """
    spans = _ranges(sorted(set(nodes)))
    covered = [node for first, last in spans for node in range(first, last)]
    place = {node: row for row, node in enumerate(covered)}
    pick = torch.tensor([place[node] for node in nodes], dtype=torch.int64)
    embeddings = [read_embeddings(database, *span, dim) for span in spans]
    chosen = torch.cat([torch.empty(0, dim), *embeddings])[pick]
    if token_dim is None:
        return Rows(chosen, None, None, None)
    tokens = [read_tokens(database, *span, token_dim) for span in spans]
    return Rows(chosen, *pick_tokens(join_tokens(tokens, token_dim), pick))


def pick_tokens(rows: TokenRows, pick: Tensor) -> TokenRows:
    """The token vectors of the atoms `pick` [n], in that order."""
    counts = rows.offsets.diff()[pick]
    offsets = offsets_of(counts)
    # Position of every wanted row: its atom's first row plus its place within the atom.
    within = torch.arange(int(offsets[-1])) - offsets[:-1].repeat_interleave(counts)
    index = rows.offsets[:-1][pick].repeat_interleave(counts) + within
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


def _ranges(nodes: Sequence[int]) -> list[tuple[int, int]]:
    """Half-open ranges that cover ascending node numbers, so that neighbours are read together."""
    found: list[tuple[int, int]] = []
    for node in nodes:
        if found and node - found[-1][1] < _NEAR:
            found[-1] = (found[-1][0], node + 1)
        else:
            found.append((node, node + 1))
    return found
