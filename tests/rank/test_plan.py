"""What a query plan leaves, against a scan of the atoms by time, cosine, BM25 and edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.plan import Events, PlanBatch, prune
from graphmem_torch.rank.query import QueryBatch

ATOMS, CONCEPTS = 60, 8
DAY = 86_400.0
TYPES = [EdgeType.SIMILARITY, EdgeType.ABSTRACTION, EdgeType.DERIVED_FROM, EdgeType.TEMPORAL]


@pytest.fixture(scope="module")
def index(random_columns: Callable[..., IndexInput]) -> MemoryIndex:
    """Texts of different lengths, so that BM25 is never equal."""
    words = torch.randperm(ATOMS, generator=torch.Generator().manual_seed(3)) + 1
    offsets = torch.nn.functional.pad(words.cumsum(0), (1, 0))
    terms = torch.randint(30, (int(words.sum()),), generator=torch.Generator().manual_seed(4))
    columns = random_columns(ATOMS, CONCEPTS, terms=terms, term_offsets=offsets)
    return MemoryIndex.build(columns, load_config("default"))


def plan_of(count: int, **change: Any) -> PlanBatch:
    """Plans of everything, each alike but for what is given for each."""
    values = {
        "window": [[-math.inf, math.inf]] * count,
        "min_in_window": [0] * count,
        "match": [0.0] * count,
        "best": [5] * count,
        "hops": [0] * count,
        "starts": [[]] * count,
        "kept": [ATOMS] * count,
        "discount": [0.9] * count,
        **change,
    }
    types = values.pop("types", [TYPES] * count)
    mask = torch.zeros(count, 256, dtype=torch.bool)
    for row, kinds in enumerate(types):
        mask[row, list(map(int, kinds))] = True
    width = max(map(len, values["starts"]), default=0)
    starts = [own + [-1] * (width - len(own)) for own in values.pop("starts")]
    window = torch.tensor(values.pop("window"), dtype=torch.float64).view(count, 2)
    columns = {name: torch.tensor(own) for name, own in values.items()}
    if "slack_seconds" in columns:
        columns["slack_seconds"] = columns["slack_seconds"].double()
    own = torch.tensor(starts, dtype=torch.int64).view(count, width)
    return PlanBatch(window=window, types=mask, starts=own, **columns)


def scanned(
    index: MemoryIndex,
    query: QueryBatch,
    plan: PlanBatch,
    row: int,
    events: dict[int, tuple[float, float]] | None = None,
) -> dict[str, Any]:
    """One question, atom by atom and edge by edge."""
    memory, graph = index.tensors, index.graph
    times, told = index.time.tolist(), memory.told.tolist()
    listed = [True] * ATOMS
    for mask in (query.allowed, query.listed):
        if mask is not None:
            own = mask.expand(len(query), -1)[row].tolist()
            listed = [a and b for a, b in zip(listed, own, strict=True)]
    low, high = plan.window[row].tolist()
    ends_twice = math.isfinite(low) and math.isfinite(high)
    late = float(plan.slack_seconds[row]) if plan.slack_seconds is not None and ends_twice else 0.0

    def tier(atom: int) -> int:
        if math.isinf(low) and math.isinf(high):
            return 0
        first, last = (t // DAY if math.isfinite(t) else t for t in (low, high))
        begins, ends = told[atom]
        said = low <= times[atom] <= high
        if events and atom in events:
            begun, over = events[atom]
            inside, known = begun <= high and over >= low, True
        elif begins < ends:
            inside, known = said or (begins <= last and ends > first), True
        else:
            inside, known = said, not math.isnan(times[atom])
            if not inside and high < times[atom] <= high + late:
                return 2
        return 0 if inside else 3 if known else 1

    there = [atom for atom in range(ATOMS) if listed[atom]]
    tiers = {atom: tier(atom) for atom in there}
    inside = [atom for atom in there if tiers[atom] == 0]
    cosine = (memory.embeddings.double().numpy() @ query.embedding[row].double().numpy()).tolist()
    assert query.terms is not None
    words = memory.bm25.score(query.terms[row : row + 1])[0].tolist()
    tops = [max([0.0, *(words[a] for a in own)]) for own in (inside, there)]
    few = len(inside) < int(plan.min_in_window[row]) or tops[0] < float(plan.match[row]) * tops[1]
    gave_way = few and not (math.isinf(low) and math.isinf(high))
    if not inside:
        tiers = dict.fromkeys(there, 0)

    def left_of(seen: list[int]) -> tuple[dict[int, float], int, int]:
        """Return the atoms that meaning and relations leave, the best, and those reached."""
        best: set[int] = set()
        tops = []
        for values, least in ((cosine, -math.inf), (words, 0.0)):
            ranked = sorted((a for a in seen if values[a] > least), key=lambda a: -values[a])
            best |= {*ranked[: int(plan.best[row])]}
            tops.append(max(1e-12, values[ranked[0]] if ranked else 0.0))
        worth = {a: (max(cosine[a], 0) / tops[0] + words[a] / tops[1]) / 2 for a in best}
        hops = int(plan.hops[row])
        node, atom_of = memory.node.tolist(), memory.atom.tolist()
        value = {node[a]: v for a, v in worth.items()}
        if not hops:
            return worth, len(best), len(best)
        value |= {n: 1.0 for n in plan.starts[row].tolist() if n >= 0}
        columns = (graph.source, graph.target, graph.type)
        edges = list(zip(*(column.tolist() for column in columns), strict=True))
        fan = np.bincount([source for source, *_ in edges], minlength=index.num_nodes)
        for _ in range(hops):
            after = dict(value)
            for source, target, kind in edges:
                goal = atom_of[target]
                if source in value and plan.types[row, kind] and (goal < 0 or goal in seen):
                    sent = value[source] * float(plan.discount[row])
                    sent /= fan[source] ** 0.5 if atom_of[source] < 0 else 1.0
                    after[target] = max(after.get(target, 0.0), sent)
            value = after
        worth = {atom_of[n]: v for n, v in value.items() if atom_of[n] >= 0}
        return worth, len(best), len(worth)

    worth, best, reached = left_of(inside)
    if gave_way:
        more = left_of([atom for atom in there if atom not in inside])
        worth, best, reached = worth | more[0], best + more[1], reached + more[2]
    left = sorted(worth, key=lambda a: (tiers[a], -worth[a]))[: int(plan.kept[row])]
    counts = [len(there), len(inside), best, len(left)]
    return {
        "rows": left,
        "worth": {a: v - 2 * tiers[a] for a, v in worth.items()},
        "counts": counts,
        "reached": reached,
        "open": gave_way,
        "tiers": tiers,
    }


moment = st.floats(1.6995e9, 1.7405e9) | st.sampled_from([-math.inf, math.inf])


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    count = draw(st.integers(1, 4) | st.just(11))  # more than are looked at together

    def each(value: st.SearchStrategy[Any]) -> Any:
        return draw(st.lists(value, min_size=count, max_size=count))

    return {
        "window": [sorted(pair) for pair in each(st.tuples(moment, moment))],
        "min_in_window": each(st.sampled_from([0, 3, 30])),
        "match": each(st.sampled_from([0.0, 0.75, 1.0])),
        "best": each(st.integers(1, 70)),
        "hops": each(st.integers(0, 3)),
        "types": each(st.lists(st.sampled_from(TYPES), unique=True)),
        "starts": each(st.lists(st.integers(ATOMS, ATOMS + CONCEPTS - 1), max_size=2)),
        "kept": each(st.integers(1, 70)),
        "discount": each(st.sampled_from([0.5, 0.9, 1.0])),
        "slack_seconds": each(st.sampled_from([0.0, 3e6])),
    }


stated = st.dictionaries(
    st.integers(0, ATOMS - 1), st.tuples(st.floats(1.6995e9, 1.7405e9), st.floats(0, 1e7))
)


@given(batches(), stated, st.booleans(), st.integers(0, 99))
def test_prune_leaves_what_a_scan_leaves(
    index: MemoryIndex,
    random_questions: Callable[..., QueryBatch],
    drawn: dict[str, Any],
    stated: dict[int, tuple[float, float]],
    masked: bool,
    seed: int,
) -> None:
    count = len(drawn["best"])
    query = random_questions(count, seed=seed)
    if masked:
        g = torch.Generator().manual_seed(seed)
        masks = (torch.rand(n, ATOMS, generator=g) < 0.6 for n in (1, count))
        query = replace(query, **dict(zip(("allowed", "listed"), masks, strict=True)))
    plan = plan_of(count, **drawn)
    spans = {atom: (begun, begun + length) for atom, (begun, length) in stated.items()}
    span = torch.tensor([*spans.values()], dtype=torch.float64).view(-1, 2)
    events = Events(torch.tensor([*spans], dtype=torch.int64), span)
    found = index.prune(query, plan, events if spans else None)
    for row in range(count):
        wanted = scanned(index, query, plan, row, spans)
        tiers = found.tier[row].tolist()
        assert {a: tiers[a] for a in wanted["tiers"]} == wanted["tiers"]
        rows = [a for a in found.rows[row].tolist() if a >= 0]
        assert len({*rows}) == len(rows) and found.counts[row].tolist() == wanted["counts"]
        assert int(found.reached[row]) == wanted["reached"]
        assert bool(found.open[row]) == wanted["open"]
        # Atoms of equal worth may change places by a rounding.
        worth = [wanted["worth"][a] for a in rows]
        assert worth == pytest.approx([wanted["worth"][a] for a in wanted["rows"]], abs=1e-5)


def test_numbers_beyond_the_memory_are_those_of_all_of_it(
    index: MemoryIndex, random_questions: Callable[..., QueryBatch]
) -> None:
    query, nodes = random_questions(2), ATOMS + CONCEPTS
    huge = plan_of(2, best=[1, 10**12], hops=[10**9, 2], kept=[10**12, 7], starts=[[61], []])
    whole = plan_of(2, best=[1, ATOMS], hops=[nodes, 2], kept=[ATOMS, 7], starts=[[61], []])
    found = index.prune(query, huge)
    for row in range(2):
        wanted = scanned(index, query, whole, row)
        assert found.counts[row].tolist() == wanted["counts"]
        assert int(found.reached[row]) == wanted["reached"]
        worth = [wanted["worth"][a] for a in found.rows[row].tolist() if a >= 0]
        assert worth == pytest.approx([wanted["worth"][a] for a in wanted["rows"]], abs=1e-5)


def test_a_batch_of_plans_is_each_alone(
    index: MemoryIndex, random_questions: Callable[..., QueryBatch]
) -> None:
    count = 20
    query = random_questions(count)
    window = [[1.7e9, 1.701e9], [-math.inf, math.inf], [1.71e9, math.inf], [0.0, 1.0]] * 5
    starts = [[], [61], [62, 63], []] * 5
    plan = plan_of(count, window=window, hops=[0, 1, 2, 1] * 5, starts=starts)
    whole = index.prune(query, plan)
    tiled = index.prune(query, plan, tile=ATOMS)
    assert all(torch.equal(a, b) for a, b in zip(whole, tiled, strict=True))
    for row in range(count):
        alone = index.prune(query.rows(slice(row, row + 1)), plan.rows(slice(row, row + 1)))
        assert torch.equal(alone.counts[0], whole.counts[row])
        width = alone.rows.shape[1]
        assert torch.equal(alone.rows[0], whole.rows[row, :width])
        assert bool((whole.rows[row, width:] == -1).all())


def test_nothing_in_the_window_and_nobody_there(
    index: MemoryIndex, random_questions: Callable[..., QueryBatch]
) -> None:
    query = random_questions(2)
    empty = index.prune(query, plan_of(2, window=[[0.0, 1.0]] * 2, hops=[1, 1]))
    assert empty.rows.shape == (2, 0)
    assert empty.counts.tolist() == [[ATOMS, 0, 0, 0]] * 2
    nobody = replace(query, listed=torch.zeros(1, ATOMS, dtype=torch.bool))
    assert index.prune(nobody, plan_of(2)).counts.tolist() == [[0, 0, 0, 0]] * 2
    none = index.prune(query.rows(slice(0, 0)), plan_of(0))
    assert none.rows.shape == (0, 0) and none.counts.shape == (0, 4)


def test_the_temporal_index_is_made_where_a_state_lacks_it(
    index: MemoryIndex, random_questions: Callable[..., QueryBatch]
) -> None:
    state = {n: t for n, t in index.state_dict().items() if not n.endswith("_order")}
    other = MemoryIndex.from_state_dict(state, index.config)
    assert other.time_order is None
    query, plan = random_questions(3), plan_of(3, window=[[1.7e9, 1.705e9]] * 3)
    pair = zip(index.prune(query, plan), other.prune(query, plan), strict=True)
    assert all(torch.equal(a, b) for a, b in pair)


def test_plans_of_other_shapes_are_refused(
    index: MemoryIndex, random_questions: Callable[..., QueryBatch]
) -> None:
    with pytest.raises(InputError, match=r"plan.window: expected \[2, 2\], got .*\[3, 2\]"):
        index.prune(random_questions(2), plan_of(3))


@pytest.mark.parametrize("limit", [0, 2048])
def test_forward_lists_what_a_plan_left(
    index: MemoryIndex, random_questions: Callable[..., QueryBatch], limit: int
) -> None:
    """Whether every atom is scored, or only what is left and what is beside it."""
    config = replace(index.config, rank=replace(index.config.rank, exhaustive_up_to=limit))
    own = MemoryIndex.from_state_dict(index.state_dict(), config)
    query = random_questions(3)
    plan = plan_of(3, window=[[1.7e9, 1.71e9]] * 3, best=[4] * 3)
    found = prune(Candidates(own.tensors, query, config), plan)
    listed = torch.zeros(3, ATOMS + 1, dtype=torch.bool)
    listed = listed.scatter(1, found.rows % (ATOMS + 1), True)[:, :-1]
    hits = own(replace(query, planned=found.rows, listed=listed), k=40).rows

    def sets(rows: Tensor) -> list[set[int]]:
        return [{a for a in row if a >= 0} for row in rows.tolist()]

    assert sets(hits) == sets(found.rows)
