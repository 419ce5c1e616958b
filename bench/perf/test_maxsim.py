"""Late interaction against padded torch, pylate's scorer and the float32 product alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.perf.contest import Race, Size, peer, sizes
from bench.perf.inputs import unit_rows
from graphmem_torch.coo import offsets_of
from graphmem_torch.ops import maxsim


@pytest.mark.parametrize("size", sizes("maxsim"), ids=str)
def test_maxsim(race: Race, size: Size) -> None:
    """Late interaction with all atoms or with candidates."""
    query, tokens, offsets, candidates = _inputs(size)
    weights = torch.ones(query.shape[:2], device=query.device)
    padded, live = _padded(tokens, offsets)

    def by_torch() -> Tensor:
        if candidates is None:
            return _mean_of_best(query, padded.float()[None] / 127, live[None])
        # One question after another: all at once are gigabytes.
        picked = [
            _mean_of_best(q[None], padded[own].float()[None] / 127, live[own][None])
            for q, own in zip(query, candidates, strict=True)
        ]
        return torch.cat(picked)

    exact = _exact(query, tokens, offsets, candidates)
    race(
        ours=lambda: maxsim(query, weights, tokens, offsets, candidates=candidates),
        peers={
            "torch einsum": by_torch,
            "pylate": _pylate(query, padded, live, candidates),
        },
        floors={"product alone": _product(query, tokens, offsets, candidates)},
        accuracy=lambda found: float((found.cpu().double() - exact).abs().max()),
        measure="largest error",
        at_most=1e-4,
        target=1.2,
        against="product alone",
    )


def _inputs(size: Size) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return atoms of unit token vectors in int8, between the shortest and the longest length."""
    generator = torch.Generator().manual_seed(0)
    span = (size["shortest"], size["longest"] + 1)
    lengths = torch.randint(*span, (size["n"],), generator=generator)
    offsets = offsets_of(lengths)
    width, batch = size["width"], size["batch"]
    # Drawn as int8: unit_rows of millions of tokens would be gigabytes.
    shape = (int(offsets[-1]), width)
    spread = int(127 * 1.7 / width**0.5)
    tokens = torch.randint(-spread, spread + 1, shape, generator=generator, dtype=torch.int8)
    query = unit_rows(batch * size["words"], width, seed=1).view(batch, -1, width)
    candidates = None
    if size["candidates"]:
        chosen = (batch, size["candidates"])
        candidates = torch.randint(size["n"], chosen, generator=generator).sort(dim=1).values
        candidates = candidates.to(size.device)
    device = size.device
    return query.to(device), tokens.to(device), offsets.to(device), candidates


def _padded(tokens: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Return [N, L, m] int8 and a mask of its tokens, the form of the peers' documents."""
    lengths = offsets.diff()
    live = torch.arange(int(lengths.max()), device=tokens.device) < lengths[:, None]
    padded = tokens.new_zeros(*live.shape, tokens.shape[1])
    padded[live] = tokens
    return padded, live


def _mean_of_best(query: Tensor, documents: Tensor, live: Tensor) -> Tensor:
    """Score [B, Q, m] with [1, C, L, m] -> [B, C]."""
    scores = torch.einsum("bqm,clm->bcql", query, documents[0])
    return scores.masked_fill(~live[:, :, None], -torch.inf).amax(3).mean(2)


def _pylate(
    query: Tensor, padded: Tensor, live: Tensor, candidates: Tensor | None
) -> Callable[[], Tensor] | str:
    module: Any = peer("pylate.scores")
    if module is None:
        return "not installed"
    words = query.shape[1]
    if candidates is None:
        documents = padded.float() / 127
        return lambda: module.colbert_scores(query, documents, documents_mask=live) / words
    return "its scorer of candidates takes no shared store"


def _product(
    query: Tensor, tokens: Tensor, offsets: Tensor, candidates: Tensor | None
) -> Callable[[], list[Tensor]]:
    """Run only the float32 product, with tokens gathered and converted in advance."""
    if candidates is None:
        values, flat = tokens.float(), query.flatten(0, 1)
        return lambda: [values @ flat.T]
    start, lengths = offsets[candidates], offsets.diff()[candidates]
    rows = []
    for first, count in zip(start.tolist(), lengths.tolist(), strict=True):
        own = [tokens[f : f + c] for f, c in zip(first, count, strict=True)]
        rows.append(torch.cat(own).float())
    return lambda: [q @ own.T for q, own in zip(query, rows, strict=True)]


def _exact(
    query: Tensor, tokens: Tensor, offsets: Tensor, candidates: Tensor | None
) -> Tensor:  # [B, N] or [B, C] float64
    """Compute the definition in float64, an atom at a time."""
    query, tokens, offsets = query.cpu().double(), tokens.cpu(), offsets.cpu()
    atoms = torch.arange(len(offsets) - 1).expand(len(query), -1)
    atoms = atoms if candidates is None else candidates.cpu()
    bounds = offsets.tolist()
    out = torch.empty(atoms.shape, dtype=torch.float64)
    for b, own in enumerate(atoms.tolist()):
        for c, atom in enumerate(own):
            rows = tokens[bounds[atom] : bounds[atom + 1]].double() / 127
            out[b, c] = (query[b] @ rows.T).amax(1).mean()
    return out
