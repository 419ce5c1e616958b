"""The knapsack against OR-tools: the same optimum on many instances, and the time of each.

`python -m bench.packing --instances 10000 [--json OUT]`

Instances are random, correlated like hard ones in the literature (Pisinger 2005), or memories:
tokens as in turns of a dialogue (log-normal, median 24), values as from a ranking. Values are whole
numbers, because OR-tools takes no others. Both solve one problem at a time, in turn; `knapsack`
also solves all problems of a shape in one call. Times are CPU time of one thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor
from tyro.conf import arg

from bench.command import command
from graphmem_torch.errors import optional_import
from graphmem_torch.ops import knapsack
from graphmem_torch.quality.common.measure import code_version

__all__ = ["KINDS", "Packing", "instances", "main", "run"]

KINDS = ("random", "weakly correlated", "strongly correlated", "subset sum", "memories")
_SIZES = (50, 200, 1000)
_BUDGETS = (512, 1024, 4096)
_LIMIT = 0.2  # seconds for OR-tools' branch and bound; after that, its table over tokens is used


@dataclass(frozen=True)
class Packing:
    """Options of the measurement.

    Attributes:
        instances: Number of problems, an equal part for each kind, size and budget.
        seed: Seed of the problems.
        json: File to write the report to; printed by default.
    """

    instances: Annotated[int, arg(aliases=["-n"])] = 10_000
    seed: int = 0
    json: Path | None = None


def instances(kind: str, count: int, n: int, seed: int) -> tuple[Tensor, Tensor]:  # [B, n] each
    """Return whole values (float64) and costs in tokens of some problems of a kind."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(count, n, generator=generator, dtype=torch.float64)
    if kind == "memories":
        spread = torch.randn(count, n, generator=generator, dtype=torch.float64)
        costs = (24 * (0.6 * spread).exp()).round().clamp(min=3).long()
        return (1e6 / (1 + noise.argsort(1).argsort(1).double())).round(), costs
    costs = torch.randint(5, 81, (count, n), generator=generator)
    if kind == "random":
        return (noise * 1e6).round(), costs
    if kind == "weakly correlated":
        return (1e4 * costs * (0.9 + 0.2 * noise)).round(), costs
    return costs.double() + (10.0 if kind == "strongly correlated" else 0.0), costs


def run(options: Packing) -> dict[str, Any]:
    """Solve everything and compare.

    Raises:
            MissingPackageError: OR-tools is not installed.
    """
    knapsack_solver = optional_import(
        "ortools.algorithms.python.knapsack_solver", "this comparison", "graphmem-torch[bench]"
    )
    torch.set_num_threads(1)
    shapes = [(kind, n, w) for kind in KINDS for n in _SIZES for w in _BUDGETS]
    share, more = divmod(options.instances, len(shapes))
    table: dict[str, Any] = {}
    for at, (kind, n, budget) in enumerate(shapes):
        count = share + (at < more)
        if count:
            values, costs = instances(kind, count, n, options.seed + at)
            row = table.setdefault(kind, _Tally())
            row.add(values, costs, budget, knapsack_solver)
    return {
        "commit": code_version(),
        "config": {"sizes": _SIZES, "budgets": _BUDGETS, "limit_s": _LIMIT},
        "seed": options.seed,
        "n": sum(row.count for row in table.values()),
        "same_optimum": sum(row.same for row in table.values()),
        "kinds": {kind: row.report() for kind, row in table.items()},
    }


class _Tally:
    """Results for the problems of one kind."""

    def __init__(self) -> None:
        self.count = self.same = self.proven = self.tables = 0
        self.ours: list[float] = []
        self.theirs: list[float] = []
        self.batched = 0.0

    def add(self, values: Tensor, costs: Tensor, budget: int, solver: Any) -> None:
        """Solve some problems of one shape with all solvers."""
        budgets = torch.full((len(values),), budget)
        rows = zip(values.split(1), costs.split(1), budgets.split(1), strict=True)
        for worth, tokens, room in rows:
            packed, seconds = _timed(partial(knapsack, worth, tokens, room))
            self.ours.append(seconds)
            lists = (worth[0].long().tolist(), [tokens[0].tolist()], [budget])
            best, seconds, tabled = _ortools(lists, solver)
            self.theirs.append(seconds)
            self.same += int(packed.value) == best
            self.proven += bool(packed.exact)
            self.tables += tabled
        self.count += len(values)
        self.batched += _timed(lambda: knapsack(values, costs, budgets))[1]

    def report(self) -> dict[str, Any]:
        """Return plain JSON values; times in milliseconds."""
        ours, theirs = (1e3 * statistics.median(each) for each in (self.ours, self.theirs))
        return {
            "n": self.count,
            "same_optimum": self.same,
            "proven": self.proven,
            "ortools_by_table": self.tables,
            "ours_median_ms": round(ours, 4),
            "ours_mean_ms": round(1e3 * statistics.mean(self.ours), 4),
            "ours_batched_mean_ms": round(1e3 * self.batched / self.count, 4),
            "ortools_median_ms": round(theirs, 4),
            "ortools_mean_ms": round(1e3 * statistics.mean(self.theirs), 4),
            "median_ratio": round(ours / theirs, 4),
        }


def _ortools(lists: tuple[Any, ...], module: Any) -> tuple[int, float, bool]:
    """Return the optimum, the seconds it took, and whether the table over tokens found it."""
    kinds = module.SolverType
    for kind in (
        kinds.KNAPSACK_MULTIDIMENSION_BRANCH_AND_BOUND_SOLVER,
        kinds.KNAPSACK_DYNAMIC_PROGRAMMING_SOLVER,
    ):
        solver = module.KnapsackSolver(kind, "knapsack")
        if kind is kinds.KNAPSACK_MULTIDIMENSION_BRANCH_AND_BOUND_SOLVER:
            solver.set_time_limit(_LIMIT)

        def solve(solver: Any = solver) -> int:
            solver.init(*lists)
            return int(solver.solve())

        best, seconds = _timed(solve)
        if solver.is_solution_optimal():
            break
    return best, seconds, kind is kinds.KNAPSACK_DYNAMIC_PROGRAMMING_SOLVER


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the report."""

    def measured(options: Packing) -> dict[str, Any]:
        own = {name: str(value) for name, value in asdict(options).items()}
        return {**run(options), "options": own}

    command(Packing, measured, arguments, __doc__)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
