"""Every operation in one compiled graph; every kernel down to the code of an absent GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphmem_torch.ops import (
    inhibit,
    knn_graph,
    maxsim,
    propagate,
    spread_activation,
    topk_cosine,
)
from graphmem_torch.rank.bm25 import BM25

BUILD = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from graphmem_torch.kernels import inhibit, propagate

def build(kernel, **kinds):
    constants = {k: v for k, v in kinds.items() if not isinstance(v, str)}
    signature = {k: "constexpr" if k in constants else v for k, v in kinds.items()}
    places = {(kernel.arg_names.index(k),): v for k, v in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    return "ptx" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm

edges = dict(x="*fp32", indptr="*i32", column="*i32", weight="*fp32", scale="*fp32", extra="*i32")
for maximum in (False, True):
    assert build(
        propagate._propagate_hub_kernel, **edges, owner="*i32", partial="*fp32", num_pieces="i32",
        num_cols="i32", hub_rows="i32", MAXIMUM=maximum, PIECE=512, BLOCK_P=8, BLOCK_B=64,
    )
    assert build(
        propagate._propagate_kernel, **edges, partial="*fp32", activation="*fp32", mask="*u8",
        out="*fp32", retention="fp32", num_rows="i32", num_cols="i32", stride_b="i32",
        MAXIMUM=maximum, MASKED=True, HUBS=True, PIECE=512, BLOCK_N=16, BLOCK_B=64,
    )
assert build(
    inhibit._top_values_kernel, u="*fp32", out="*fp32", length="i32", share="i32", stride="i32",
    TOP=7, PADDED=8, BLOCK=1024,
)
assert build(
    inhibit._inhibit_kernel, u="*fp32", top_values="*fp32", out="*fp32", strength="fp32",
    length="i32", TOP=7, BLOCK=1024,
)
"""


def test_kernels_compile_for_a_gpu_without_one(tmp_path: Path) -> None:
    """The interpreter accepts programs that the compiler does not."""
    root = Path(__file__).resolve().parents[2]
    script = tmp_path / "build.py"
    script.write_text(BUILD)
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(root), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("dynamic", [False, True])
def test_operations_compile_without_a_break(random_graph, dynamic):
    graph = random_graph(40, 150)
    generator = torch.Generator().manual_seed(0)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.arange(40).cumsum(0) % 7 + 1])
    offsets = offsets.sort().values
    tokens = torch.randint(-127, 128, (int(offsets[-1]), 8), generator=generator, dtype=torch.int8)
    terms = torch.randint(0, 9, (80,), generator=generator)
    lexical = BM25.build(terms, torch.arange(0, 81, 2), 9)

    def run(a, q, w, t):
        near, place = topk_cosine(q[:, 0], q[0], 2)
        return (
            propagate(graph, a, reduce="max", fan="sqrt", mask=a > 0.5),
            inhibit(a),
            spread_activation(graph, a),
            spread_activation(graph, a, method="frontier", firing="linear"),
            maxsim(q, w, tokens, offsets),
            maxsim(q, w, tokens, offsets, candidates=place),
            lexical.score(t),
            knn_graph(a, 2)[1],
            near,
        )

    compiled = torch.compile(run, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for questions, words in ((3, 5), (4, 6)):
        inputs = (
            torch.rand(questions, 40, generator=generator),
            torch.randn(questions, words, 8, generator=generator),
            torch.rand(questions, words, generator=generator),
            torch.randint(-1, 9, (questions, words), generator=generator),
        )
        torch.testing.assert_close(compiled(*inputs), run(*inputs))
