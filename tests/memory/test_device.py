"""A memory on CUDA goes through the life of one on the CPU and answers the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.memory import Memory, Scope
from tests.memories import DAY, QUESTIONS, ids, opened, stored, turns

pytestmark = pytest.mark.cuda

PRESETS = ("default", "synapse", "contextos", "spectral", "sgrm", "weave")
BOTH = ("cpu", "cuda")


def pair(preset: str = "default", paths: tuple[Path, Path] | None = None) -> Iterator[Memory]:
    from graphmem_torch.config import load_config

    config = load_config(preset, {"link.concepts": "none" if preset == "sgrm" else "pattern"})
    for place, device in enumerate(BOTH):
        path = None if paths is None else paths[place]
        yield opened(path, config=config, device=device)


def alike(one: Memory, other: Memory, questions: list[str] = QUESTIONS) -> None:
    """The same hits with the same scores; of equal scores in any order."""
    expected, found = (memory.retrieve(questions, k=8) for memory in (one, other))
    for a, b in zip(expected, found, strict=True):
        assert [hit.score for hit in b.hits] == pytest.approx(
            [hit.score for hit in a.hits], rel=1e-3, abs=1e-3
        )
        assert len(set(ids(a)) & set(ids(b))) >= len(a.hits) - 1
        assert b.confidence == pytest.approx(a.confidence, abs=1e-3)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_life_on_cuda_is_one_on_the_cpu(preset: str) -> None:
    one, other = pair(preset)
    with one, other:
        assert other.index.embeddings.is_cuda
        for memory in (one, other):
            memory.add(turns(40))
        alike(one, other)
        for memory in (one, other):
            memory.add(Atom("late", "The canoe went to the harbour at last", session="s1"))
            memory.graph.connect("late", "a3", "causes")
            memory.update("a5", text="The comet is a bakery now")
            memory.delete("a6")
            memory.forget(["a7", "a8"])
        alike(one, other)
        assert other.index.embeddings.is_cuda
        for memory in (one, other):
            memory.upkeep.consolidate()
        alike(one, other)
        for memory in (one, other):
            assert memory.check() == []


@pytest.mark.parametrize("preset", PRESETS)
def test_all_that_is_asked_is_answered_on_cuda(preset: str, tmp_path: Path) -> None:
    _, memory = pair(preset)
    with memory:
        memory.add(turns(40))
        hit = memory.retrieve(QUESTIONS[0], k=5).hits[0]
        assert memory.explain(QUESTIONS[0], hit.id).id == hit.id
        assert memory.compile(QUESTIONS[0], budget=200).tokens <= 200
        filters = {"where": {"meta.page": {"$gt": 3}}, "between": (1.7e9, 1.7e9 + 30 * DAY)}
        assert memory.retrieve(QUESTIONS, k=3, **filters)[0].hits
        assert memory.at(as_of=1.7e9 + 20 * DAY).retrieve(QUESTIONS, k=3)[1].hits
        assert memory.retrieve("What did Ada say before the comet?", scope=Scope(plan=True)).hits
        memory.touch(hit.id)
        memory.graph.structure()
        memory.themes.list()
        memory.report(tmp_path / "report.html")
        assert (tmp_path / "report.html").stat().st_size > 1000


def test_what_is_linked_on_cuda_is_what_is_linked_on_the_cpu() -> None:
    one, other = pair()
    with one, other:
        for memory in (one, other):
            memory.add(turns(30))
            memory.forget(["a3", "a9"])  # concepts among them, whose vectors are known no more
            for i in range(30, 50):
                memory.add(turns(i + 1)[i:])
        expected, found = stored(one.store), stored(other.store)
        assert [ends for ends, _ in found] == [ends for ends, _ in expected]
        weights = [weight for _, weight in expected]
        assert [weight for _, weight in found] == pytest.approx(weights, abs=1e-5)


def test_a_store_is_opened_on_either(tmp_path: Path) -> None:
    with opened(tmp_path / "store", device="cpu") as memory:
        memory.add(turns(40))
        expected = [ids(found) for found in memory.retrieve(QUESTIONS, k=6)]
    with opened(tmp_path / "store", device="cuda") as memory:
        assert [ids(found) for found in memory.retrieve(QUESTIONS, k=6)] == expected
        memory.add(Atom("new", "A violin in the garden", session="s2"))
        memory.upkeep.consolidate()
        expected = [ids(found) for found in memory.retrieve(QUESTIONS, k=6)]
    with opened(tmp_path / "store", device="cpu") as memory:
        assert [ids(found) for found in memory.retrieve(QUESTIONS, k=6)] == expected


def test_what_is_learned_on_cuda_is_kept() -> None:
    from tests.memories import planted

    atoms, questions, evidence = planted()
    learned = []
    for memory in pair():
        with memory:
            memory.add(atoms)
            with torch.inference_mode():
                assert memory.index.embeddings.device.type == memory.device
            memory.learning.fit(
                questions, evidence
            )  # which wants gradients of what was moved there
            learned.append({name: float(w) for name, w in memory.config.rank.weights.items()})
            assert memory.retrieve(questions[0], k=5).hits
    assert learned[1] == pytest.approx(learned[0], rel=0.05, abs=0.05)


def test_many_ask_while_one_adds_on_cuda() -> None:
    """From threads: one index a state, whatever stream it is asked on."""
    _, memory = pair()

    async def life() -> None:
        await memory.aio.add(turns(24))
        alone = [ids(found) for found in memory.retrieve(QUESTIONS, k=3)]
        asked = [memory.aio.retrieve(QUESTIONS, k=3) for _ in range(16)]
        together = await asyncio.gather(*asked)
        assert all([ids(found) for found in each] == alone for each in together)
        more = [memory.aio.add(Atom(f"n{i}", f"Nothing like it, number {i}")) for i in range(8)]
        await asyncio.gather(*more, *(memory.aio.retrieve(QUESTIONS, k=3) for _ in range(8)))

    with memory:
        asyncio.run(life())
        assert len(memory) == 32
