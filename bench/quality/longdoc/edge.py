"""The edge case of orthogonal chunks: "only chronological context is retrieved" (SGRM, 5 F).

A document is built whose chunks have orthogonal vectors, or nearly so, and asked for some of its
chunks: no similarity edge may be there, and what comes back must be exactly the chunks up to L
places before and after.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import Config
from graphmem_torch.memory import Memory
from graphmem_torch.text.embedder import Encoded
from graphmem_torch.text.tokens import Tokenizer, WordTokenizer

__all__ = ["GivenEmbedder", "judge_orthogonal", "judge_unlike"]
_CHUNKS = 60
_WIDTH = 384  # of the vectors that are nearly orthogonal: MiniLM's
_NUMBER = re.compile(r"\d+")


class GivenEmbedder:
    """The vector of a text is the row that its first number names."""

    def __init__(self, rows: Tensor) -> None:  # [n, d], unit
        self._rows = rows
        self.dim = rows.shape[1]
        self.token_dim = 0
        self.num_pieces = 0
        self.name = f"given:{len(rows)}"
        self.fingerprint = self.name
        self.tokenizer: Tokenizer = WordTokenizer()
        self.window = 254

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`."""
        numbers = [int(_NUMBER.findall(text)[0]) for text in texts]
        return Encoded(self._rows[torch.tensor(numbers, dtype=torch.int64)])


def judge_orthogonal(config: Config, seed: int) -> dict[str, Any]:
    """Both documents under the settings of a segment graph, by name."""
    drawn = torch.randn(_CHUNKS, _WIDTH, generator=torch.Generator().manual_seed(seed))
    return {
        "orthogonal": judge_unlike(torch.eye(_CHUNKS), config),
        "nearly": judge_unlike(torch.nn.functional.normalize(drawn, dim=1), config),
    }


def judge_unlike(rows: Tensor, config: Config) -> Mapping[str, Any]:  # [n, d], unit
    """What is retrieved, from one seed, of a document whose chunks have these vectors.

    Returns:
        The largest cosine of two chunks, the number of similarity edges, for each chunk asked for
        what came back and what the text around it is, and whether everything `holds`.
    """
    count, hops = len(rows), config.segment.hops
    size = config.embedder.max_tokens
    chunks = [" ".join([f"w{i}"] * (size - 1)) + "." for i in range(count)]
    asked = [0, count // 2, count - 1]
    # As published: further seeds would be chunks that are no more like the question than any.
    config = replace(config, segment=replace(config.segment, seeds=1))
    with Memory.open(None, config=config, embedder=GivenEmbedder(rows), device="cpu") as memory:
        memory.add_document("\n\n".join(chunks), name="unlike")
        results = memory.retrieve([f"w{i}" for i in asked], k=count)
        edges = int((memory.store.edges().type == int(EdgeType.SIMILARITY)).sum())
    found = [sorted(int(_NUMBER.findall(hit.text)[0]) for hit in result.hits) for result in results]
    around = [list(range(max(0, i - hops), min(count, i + hops + 1))) for i in asked]
    cosine = (rows @ rows.T).fill_diagonal_(-1.0)
    return {
        "chunks": count,
        "hops": hops,
        "largest_cosine": float(cosine.max()),
        "similarity_edges": edges,
        "asked": asked,
        "retrieved": found,
        "expected": around,
        "holds": found == around and edges == 0,
    }
