"""Every operation in one compiled graph; every kernel down to the code of an absent GPU."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from graphmem_torch.ops import inhibit, knn_graph, maxsim, propagate, spread_activation, topk_cosine
from graphmem_torch.ops.bm25 import BM25
from graphmem_torch.ops.spmm import spmm
from tests.processes import Program, begun_ahead

BUILD = """
import sys
from unittest.mock import MagicMock

sys.modules["torch"] = MagicMock()  # only launchers need it, and importing it takes seconds

import triton
import triton.language as tl
import triton.runtime.cache
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from graphmem_torch.kernels import bm25, inhibit, local_push, maxsim, propagate, spmm, topk_cosine

# A digest of the whole compiler, for what an earlier run has left in a cache; this one is new.
triton.runtime.cache.triton_key = lambda: ""

def build(kernel, **kinds):
    kinds = {k: kinds[k] for k in kernel.arg_names}
    constants = {k: v for k, v in kinds.items() if not isinstance(v, str)}
    signature = {k: "constexpr" if k in constants else v for k, v in kinds.items()}
    places = {(kernel.arg_names.index(k),): v for k, v in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    return "ptx" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm

# Every branch and every type of every kernel once; bfloat16 is where all conversions are.
edges = dict(
    indptr="*i32", column="*i32", weight="*fp32", partial="*fp32", num_rows="i32", num_cols="i32",
    stride="i32", PIECE=128, ROWS=4, LANES=4, COLS=16,
)
settings = dict(edges, scale="*fp32", pattern="*i64", edges="i32", SCALED=True)
hubs = dict(settings, num_pieces="i32", steps="i32")
rounds = dict(
    settings, own="*fp32", mask="*u8", retention="*fp32", step="i32", MASKED=True, HUBS=True
)
assert build(spmm._spmm_kernel, **edges, x="*bf16", out="*bf16", MAXIMUM=True, HUBS=True)
assert build(spmm._hub_kernel, **hubs, x="*bf16", MAXIMUM=False, PATTERNS=True)
for kind, patterns in (("*bf16", True), ("*fp32", False)):
    rounds |= dict(x=kind, own=kind, out=kind, MAXIMUM=not patterns, PATTERNS=patterns)
    assert build(propagate._propagate_kernel, **rounds)
row = dict(length="i32", TOP=7, BLOCK=256, ACC=tl.float32)
assert build(
    inhibit._top_values_kernel, **row, u="*bf16", out="*bf16", share="i32", stride="i32", PADDED=8
)
assert build(
    inhibit._inhibit_kernel, **row, u="*bf16", top_values="*bf16", out="*bf16", strength="*fp32",
    step="i32", blocks="i32",
)

for keys, parts in (("*bf16", 3), ("*fp32", 0)):
    assert build(
        topk_cosine._topk_cosine_kernel, queries="*fp32", keys=keys, out_values="*fp32",
        out_indices="*i32", num_queries="i32", num_keys="i32", dim="i32", share="i32",
        num_shares="i32", query_stride="i32", key_stride="i32", K=30, PADDED=32, PARTS=parts,
        BLOCK_Q=16, BLOCK_N=16, BLOCK_D=16,
    )
assert build(
    bm25._add_postings_kernel, out="*fp32", indptr="*i64", docs="*i32", scores="*fp32",
    terms="*i64", width="i32", num_docs="i32", own="i32", shares="i32", BLOCK=256,
)
for listed in (False, True):
    assert build(
        bm25._holds_kernel, out="*fp32", indptr="*i64", docs="*i32", terms="*i64",
        rows="*i64" if listed else "*i32", width="i32", count="i32", LISTED=listed, BLOCK=256,
    )
assert build(
    local_push._local_push_kernel, out_indptr="*i32", out_edge="*i32", target="*i32",
    weight="*fp32", nodes="*i64", weights="*fp64", keys="*i32", settled="*fp64", left="*fp64",
    queue="*i32", tails="*i32", rounds="*i32", status="*i32", damping_at="*fp64", epsilon="fp32",
    max_iter="i32", num_seeds="i32", num_nodes="i32", BITS=13, NODES=4, EDGES=8, SEEDS=32,
)
for listed, group in ((False, 4), (True, 1)):
    assert build(
        maxsim._maxsim_kernel, query="*fp32", share="*fp32", tokens="*i8", offsets="*i64",
        candidates="*i64", out="*fp32", num_questions="i32", num_words="i32", num_atoms="i32",
        num_places="i32", width="i32", num_groups="i32", LISTED=listed, SUM=True, HELD=True,
        UNIT=127.0, GROUP=group, WORDS=16, ATOMS=4, BLOCK_T=16, BLOCK_M=16,
    )
"""


@begun_ahead
def built(folder: Path) -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    root = str(Path(__file__).resolve().parents[2])
    environment |= {"PYTHONPATH": root, "TRITON_CACHE_DIR": str(folder / "cache")}
    return {"code": BUILD, "env": environment}


@pytest.mark.skipif(find_spec("triton") is None, reason="pip install 'graphmem-torch[triton]'")
def test_kernels_compile_for_a_gpu_without_one(built: Program) -> None:
    """The interpreter accepts programs that the compiler does not."""
    built.said()


def test_operations_compile_without_a_break(random_graph):
    """Once for all sizes; an index that is compiled has them as constants.

    What the dispatcher makes of each operation is asked by its `opcheck`.
    """
    graph = random_graph(40, 150)
    generator = torch.Generator().manual_seed(0)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.arange(40).cumsum(0) % 7 + 1])
    offsets = offsets.sort().values
    tokens = torch.randint(-127, 128, (int(offsets[-1]), 8), generator=generator, dtype=torch.int8)
    terms = torch.randint(0, 9, (80,), generator=generator)
    lexical = BM25.build(terms, torch.arange(0, 81, 2), 9)

    def run(a, q, w, t):
        q = torch.nn.functional.normalize(q, dim=2)
        near, place = topk_cosine(q[:, 0], q[0], 2)
        return (
            propagate(graph, a, reduce="max", fan="sqrt", mask=a > 0.5),
            inhibit(a),
            spread_activation(graph, a, rounds=1),
            spread_activation(graph, a, retention=w.mean().detach(), rounds=1, firing="linear"),
            spmm(graph.indptr, graph.source, graph.weight, a.T),
            maxsim(q, w, tokens, offsets),
            maxsim(q, w, tokens, offsets, candidates=place),
            lexical.score(t),
            knn_graph(torch.nn.functional.normalize(a, dim=1), 2)[0],
            near,
        )

    made = CompileCounterWithBackend("eager")
    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend=made)
    for questions, words in ((3, 5), (4, 6)):
        inputs = (
            torch.rand(questions, 40, generator=generator),
            torch.randn(questions, words, 8, generator=generator),
            torch.rand(questions, words, generator=generator),
            torch.randint(-1, 9, (questions, words), generator=generator),
        )
        torch.testing.assert_close(compiled(*inputs), run(*inputs))
    assert made.frame_count == 1
