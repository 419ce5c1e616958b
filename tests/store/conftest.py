"""Batches that are like real ones: uneven token counts, edges into the past, times, meta, links."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store import Batch, TokenRows

DIM = 8
TOKEN_DIM = 4


def build_batch(n: int, start: int, *, tokens: bool = True, edges: int = 5) -> Batch:
    g = torch.Generator().manual_seed(1000 + start)
    atoms = [
        Atom(
            id=f"a{start + i}",
            text=f"text {start + i} \u00fc\u2603\0",
            kind=("turn", "concept", "chunk")[(start + i) % 3],
            speaker=("Ann", None)[(start + i) % 2],
            session=f"s{(start + i) // 4}",
            time=None if i % 3 == 0 else start + i,
            event_time=1.5 if i % 2 else None,
            type="episodic" if i % 2 else None,
            meta={"n": [i, None, {"b": 1, "a": "x"}]} if i % 2 else {},
            edges=(Link("a0", EdgeType.CAUSES, -0.25), Link("a1")) if i % 4 == 1 else (),
        )
        for i in range(n)
    ]
    counts = torch.randint(0, 4, (n,), generator=g)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    total = int(offsets[-1])
    drawn = TokenRows(
        torch.randint(-127, 128, (total, TOKEN_DIM), generator=g, dtype=torch.int8),
        torch.randint(0, 30000, (total,), generator=g, dtype=torch.int32),
        offsets,
    )
    reach = start + n
    block = EdgeBlock(
        torch.randint(0, reach, (edges,), generator=g),
        torch.randint(0, reach, (edges,), generator=g),
        torch.randint(0, len(EdgeType), (edges,), generator=g, dtype=torch.uint8),
        torch.randn(edges, generator=g),
    )
    return Batch(atoms, torch.randn(n, DIM, generator=g), drawn if tokens else None, edges=block)


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    return build_batch
