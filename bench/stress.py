"""Stress test of the kernels, for races, wrong masks and full grid axes.

`python -m bench.stress --device cuda [--huge] [--json OUT]`, or small in Triton's interpreter:
`TRITON_INTERPRET=1 python -m bench.stress --device cpu --nodes 60 --questions 2 --rounds 1
--repeats 1 --epsilon 0.01`. Needs only torch and triton.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.graph import Graph

__all__ = ["Stress", "main", "run"]

_DAMPING = 0.85
_BALANCE = 1e-12  # of the mass 1 of a question, added up in float64
_HUGE_NODES, _HUGE_QUESTIONS = 70_000_000, 4_200_000  # beyond 65,535 blocks of 1,024 and of 64


@dataclass(frozen=True)
class Stress:
    """Sizes of a run.

    Attributes:
        device: "cuda", or "cpu" for the interpreter.
        nodes: Nodes of the graph, the first of which is a hub in both directions.
        degree: Edges a node besides those of the hub.
        questions: Questions of a push; of a sparse product at most 65.
        rounds: Pushes of fresh questions.
        repeats: Runs whose results must have the same bits.
        keys: Rows that `topk_cosine` searches.
        epsilon: Mass per edge that a push may leave at a node.
        huge: Whether to inhibit 7e7 nodes and search for 4.2e6 questions, too.
    """

    device: str = "cuda"
    nodes: int = 100_000
    degree: int = 8
    questions: int = 1000
    rounds: int = 200
    repeats: int = 50
    keys: int = 20_001
    epsilon: float = 1e-4
    huge: bool = False


def run(sizes: Stress, tell: Callable[[dict[str, Any]], object] = id) -> dict[str, Any]:
    """Return the worst figure of every check and whether it passes; call `tell` with each."""
    found = []
    parts = [_pushes, _same_bits, _searches, *([_huge] if sizes.huge else [])]
    for name, worst, bound in chain.from_iterable(part(sizes) for part in parts):
        found.append({"check": name, "worst": worst, "bound": bound, "holds": worst <= bound})
        tell(found[-1])
    return {"sizes": vars(sizes), "checks": found, "holds": all(one["holds"] for one in found)}


def _hub_graph(sizes: Stress) -> Graph:
    """Return a ring, so that no node loses its mass, with random edges and a common hub."""
    generator, n = torch.Generator().manual_seed(0), sizes.nodes
    node = torch.arange(n)
    drawn = torch.randint(0, n, (2, n * sizes.degree), generator=generator)
    hub = torch.zeros_like(node)
    source = torch.cat([node, drawn[0], node, hub])
    target = torch.cat([(node + 1) % n, drawn[1], hub, node])
    weight = torch.rand(len(source), generator=generator) + 0.05
    return Graph.from_edges(torch.stack([source, target]), weight, num_nodes=n).to(sizes.device)


def _pushes(sizes: Stress) -> Iterator[tuple[str, float, float]]:
    from graphmem_torch.kernels.local_push import launch_local_push

    graph, generator = _hub_graph(sizes), torch.Generator().manual_seed(1)
    # Room for all nodes, or for the 0.25 / epsilon that a push visits and their neighbours.
    slots = 1 << min(15, max(10, (sizes.nodes * 4 // 3).bit_length()))
    balance = waiting = twice = unfinished = full = 0.0
    fan = graph.out_degree.clamp(min=1)
    for _ in range(sizes.rounds):
        seeds = torch.randint(0, sizes.nodes, (sizes.questions, 3), generator=generator)
        mass = torch.rand(seeds.shape, generator=generator, dtype=torch.float64) + 0.1
        node, settled, left, _, status = launch_local_push(
            graph.out_indptr, graph.out_edge, graph.target, graph.weight,
            seeds.to(sizes.device), mass.to(sizes.device), _DAMPING, sizes.epsilon, 10_000, slots,
        )  # fmt: skip
        done = status == 0
        full = max(full, float((status == 2).double().mean()))
        unfinished = max(unfinished, float((~done & (status != 2)).sum()))
        there = node >= 0
        total = ((settled + left) * there).sum(1)[done]
        limit = sizes.epsilon * fan[node.clamp(min=0).long()]
        ordered = node[done].sort(dim=1).values
        repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        if len(total):
            balance = max(balance, float((total - 1).abs().max()))
            waiting = max(waiting, float((left / limit)[done].max()))
        twice = max(twice, float(repeated.sum()))
    yield "push: mass of a question", balance, _BALANCE
    yield "push: what a node still holds, in its limits", waiting, 1 + 1e-6
    yield "push: nodes with two slots", twice, 0.0
    yield "push: questions neither done nor full", unfinished, 0.0
    yield "push: share of questions whose table was full", full, 0.5


def _same_bits(sizes: Stress) -> Iterator[tuple[str, float, float]]:
    """Check that operations with a fixed order of sums give the same bits every time."""
    from graphmem_torch.kernels.inhibit import launch_inhibit
    from graphmem_torch.kernels.maxsim import launch_maxsim
    from graphmem_torch.kernels.propagate import launch_propagate
    from graphmem_torch.kernels.spmm import launch_spmm

    graph, generator = _hub_graph(sizes), torch.Generator().manual_seed(2)
    batch = min(sizes.questions, 65)

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator).to(sizes.device)

    a, scale = rand(batch, sizes.nodes), graph.out_degree.clamp(min=1).reciprocal()
    x, half = a.T.contiguous(), torch.tensor(0.5, device=sizes.device)
    length = torch.randint(0, 20, (min(sizes.nodes, 5000),), generator=generator)
    offsets = torch.nn.functional.pad(length.cumsum(0), (1, 0)).to(sizes.device)
    tokens = (rand(int(length.sum()), 64) * 254 - 127).to(torch.int8)
    words, share = rand(batch, 7, 64) - 0.5, rand(batch, 7)
    edges = graph.indptr, graph.source, graph.target, graph.weight, graph.out_indptr
    runs: dict[str, Callable[[], Tensor]] = {
        "spmm": lambda: launch_spmm(graph.indptr, graph.source, graph.weight, x, False),
        "propagate": lambda: launch_propagate(
            *edges, graph.out_edge, a, scale, half, False, a > 0.5
        ),
        "inhibit": lambda: launch_inhibit(a, half, 7),
        "maxsim": lambda: launch_maxsim(words, share, tokens, offsets, None),
        "bm25": lambda: _postings_added(a[0], batch),
    }
    for name, call in runs.items():
        first = call()
        yield (
            f"{name}: runs with other bits",
            float(sum(not torch.equal(call(), first) for _ in range(sizes.repeats))),
            0.0,
        )


def _postings_added(scores: Tensor, questions: int) -> Tensor:  # [N] -> [questions, N]
    """Add terms that every, every second and every third document has; one question asks all."""
    from graphmem_torch.kernels.bm25 import launch_add_postings

    documents = torch.arange(len(scores), dtype=torch.int32, device=scores.device)
    docs = [documents[::step] for step in (1, 2, 3)]
    first = torch.tensor([0, *map(len, docs)], device=scores.device).cumsum(0)
    own = torch.cat([scores[: len(part)] for part in docs])
    out = scores.new_zeros(questions, len(scores))
    terms = torch.tensor([[0, 2, 1, 0]] * questions, device=scores.device)
    launch_add_postings(out, first, torch.cat(docs), own, terms)
    return out


def _searches(sizes: Stress) -> Iterator[tuple[str, float, float]]:
    """Compare `topk_cosine` of odd sizes and every pair of types with float64."""
    from graphmem_torch.kernels.topk_cosine import launch_topk_cosine

    # Every number of one list is paired with two of another; each triple is a kernel to compile.
    shapes = [(1, 1, 5), (3, 7, 100), (65, 128, 385), (1, 7, 385), (3, 128, 5), (65, 1, 100)]
    if sizes.device == "cpu":  # a program takes milliseconds in the interpreter
        shapes = [(1, 7, 5), (3, 1, 100), (17, 3, 65)]
    pairs = [
        (torch.float32, torch.float32),
        (torch.float32, torch.float16),
        (torch.float16, torch.float16),
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.bfloat16),
    ]
    for left, right in pairs:
        worst = 0.0
        for batch, k, width in shapes:
            queries = _unit(batch, width, 1).to(sizes.device, left)
            keys = _unit(sizes.keys, width, 2).to(sizes.device, right)
            values, indices = launch_topk_cosine(queries, keys, k)
            exact = queries.double() @ keys.double().T
            best = exact.topk(min(k, sizes.keys), dim=1).values
            worst = max(worst, float((values - best).abs().max()))
            worst = max(worst, float((exact.gather(1, indices) - best).abs().max()))
        name = f"topk_cosine: {left} over {right}".replace("torch.", "")
        yield name, worst, 2e-6


def _unit(rows: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(rows, width, generator=generator), dim=1)


def _huge(sizes: Stress) -> Iterator[tuple[str, float, float]]:
    from graphmem_torch.kernels.inhibit import launch_inhibit
    from graphmem_torch.kernels.topk_cosine import launch_topk_cosine
    from graphmem_torch.ops.inhibit import inhibit_reference

    u = torch.rand(1, _HUGE_NODES, device=sizes.device)
    got = launch_inhibit(u, torch.tensor(0.15, device=sizes.device), 7)
    strongest = u.topk(7).values
    worst = 0.0
    for part in (slice(0, 4096), slice(-4096, None)):
        expected = inhibit_reference(torch.cat([strongest, u[:, part]], dim=1), 0.15, 7)[:, 7:]
        worst = max(worst, float((got[:, part] - expected).abs().max()))
    yield f"inhibit: {_HUGE_NODES:,} nodes", worst, 1e-5
    queries = torch.nn.functional.normalize(
        torch.randn(_HUGE_QUESTIONS, 16, device=sizes.device), dim=1
    )
    keys = queries[-50:].contiguous()
    values, _ = launch_topk_cosine(queries, keys, 3)
    parts = torch.cat([queries[:4096], queries[-4096:]])
    expected = (parts.double() @ keys.double().T).topk(3).values
    worst = float((torch.cat([values[:4096], values[-4096:]]) - expected).abs().max())
    yield f"topk_cosine: {_HUGE_QUESTIONS:,} questions", worst, 2e-6


def main(arguments: list[str]) -> int:
    """Run the checks and print one line each; return 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m bench.stress", description=__doc__)
    usual = Stress()
    parser.add_argument("--device", default=usual.device, choices=("cuda", "cpu"))
    for name in ("nodes", "degree", "questions", "rounds", "repeats", "keys"):
        parser.add_argument(f"--{name}", type=int, default=getattr(usual, name))
    parser.add_argument("--epsilon", type=float, default=usual.epsilon)
    parser.add_argument("--huge", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = vars(parser.parse_args(arguments))
    out = chosen.pop("json")
    report = run(Stress(**chosen), _print)
    if out:
        out.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return int(not report["holds"])


def _print(one: dict[str, Any]) -> None:
    mark = "holds" if one["holds"] else "BROKEN"
    line = f"{mark:6}  {one['check']}: {one['worst']:.3g} (at most {one['bound']:.3g})"
    print(line, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
