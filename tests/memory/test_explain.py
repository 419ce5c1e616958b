"""Memory.explain: the reasons of hits, with ids in place of rows, and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.results import Explanation
from graphmem_torch.text.embedder import HashingEmbedder
from tests.memories import QUESTIONS, ids, opened, turns


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with opened() as made:
        made.add(turns(36))
        yield made


@pytest.mark.parametrize("preset", ["default", "synapse", "spectral", "contextos", "sgrm"])
def test_explains_any_memory_as_its_hit_has_it(preset: str) -> None:
    config = load_config(preset, {"link.concepts": "pattern"})
    with Memory.open(config=config, embedder=HashingEmbedder(32)) as memory:
        memory.add(turns(36))
        (question, *_), threshold = QUESTIONS, 1e-4
        result = memory.retrieve(question, k=36)
        for place in (0, len(result.hits) - 1):
            hit = result.hits[place]
            found = memory.explain(question, hit.id, k=36)
            assert result.hits[found.rank - 1].raw == pytest.approx(hit.raw, abs=threshold)
            assert found.text == hit.text
            assert found.raw == pytest.approx(hit.raw, rel=1e-3, abs=threshold)
            assert found.signals == pytest.approx(hit.signals, rel=1e-3, abs=threshold)
            assert sum(found.signals.values()) == pytest.approx(found.raw, abs=1e-3)
            assert hit.id not in found.influences
            assert [p.strength for p in found.paths] == sorted(
                (p.strength for p in found.paths), reverse=True
            )
            for path in found.paths:
                assert path.steps[-1].target == hit.id
                assert path.steps[0].source in {start.id for start in found.starts}
            if hit.path:
                assert hit.path in {path.steps for path in found.paths}


def test_without_an_id_it_is_the_best_hit(memory: Memory) -> None:
    found = memory.explain(QUESTIONS[0])
    assert found.id == ids(memory.retrieve(QUESTIONS[0]))[0]
    values = [abs(worth) for worth in found.influences.values()]
    assert values == sorted(values, reverse=True)
    assert values


def test_explanations_are_readable_and_plain(memory: Memory) -> None:
    concept = next(iter(memory.store.texts(kind="concept")))
    found = memory.explain(QUESTIONS[1], scope=Scope(seeds=concept, exclude=["a2"]))
    assert any(start.id == f"concept:{concept}" for start in found.starts)
    told = json.loads(json.dumps(found.as_dict()))
    assert told["id"] == found.id and told["influences"] == found.influences
    assert repr(found).startswith(f"Explanation({QUESTIONS[1]!r}, {found.id!r}, score")
    text = str(found)
    assert text.splitlines()[0].endswith(f"rank {found.rank}")
    assert all(f"\n{part}: " in text for part in ("signals", "starts", "paths", "edges", "without"))
    strongest = max(found.signals, key=lambda name: abs(found.signals[name]))
    assert f"{found.signals[strongest]:>+10.3g}  {strongest}\n" in text
    listed = [edge for edge in found.edges if edge.gradient]
    assert sum("→" in line for line in text.partition("\nedges: ")[2].splitlines()) == len(listed)
    assert memory.explain(QUESTIONS[1], "a2", scope=Scope(exclude=["a2"])).rank == 0
    few = memory.explain(QUESTIONS[1], limit=1)
    assert len(few.edges) <= 1 and len(few.gradients) <= 1
    assert isinstance(few, Explanation)


def test_explain_says_what_is_wrong(memory: Memory) -> None:
    for arguments, said in (
        (("Where?", "nobody"), "nobody"),
        (("Where?", "concept:violin"), "concept"),
        (("  ", "a1"), "expected a question"),
    ):
        with pytest.raises(InputError, match=said):
            memory.explain(*arguments)
    with pytest.raises(InputError, match="limit: expected an integer"):
        memory.explain("Where?", limit=0)
    with opened() as empty, pytest.raises(InputError, match="nothing is found; name one"):
        empty.explain("Where?")
    everyone = [f"a{i}" for i in range(36)]
    with pytest.raises(InputError, match="nothing is found; name one"):
        memory.explain("Where?", scope=Scope(exclude=everyone))


def test_explain_anywhere_and_side_by_side(memory: Memory) -> None:
    expected = memory.explain(QUESTIONS[0])
    with torch.inference_mode():
        inside = memory.explain(QUESTIONS[0])
        query = memory.tensors.encode(QUESTIONS[:1])
        row = int(memory.tensors.rows([expected.id])[0])
        assert float(memory.index.explain(query, row).score) == pytest.approx(
            expected.raw, abs=1e-4
        )
    with torch.no_grad(), ThreadPoolExecutor(4) as pool:
        several = list(pool.map(memory.explain, [QUESTIONS[0]] * 4))
    for found in (inside, *several):
        assert found.signals == pytest.approx(expected.signals, abs=1e-4)
        assert found.influences == pytest.approx(expected.influences, abs=1e-4)
        assert found.gradients == pytest.approx(expected.gradients, abs=1e-4)


def test_explain_of_memories_that_say_the_same() -> None:
    with opened() as memory:
        memory.add([{"id": f"m{i}", "text": "The same note about a canoe"} for i in range(12)])
        found = memory.explain("canoe", "m5")
        place = ids(memory.retrieve("canoe", k=12)).index("m5")
        assert memory.retrieve("canoe", k=12).hits[found.rank - 1].raw == pytest.approx(
            memory.retrieve("canoe", k=12).hits[place].raw, abs=1e-4
        )
        assert all(math.isfinite(value) for value in (found.raw, *found.influences.values()))


def test_explain_of_a_memory_that_grows() -> None:
    """Edges that came one by one are numbered otherwise, and named alike."""
    with opened() as grown, opened() as whole:
        grown.add(turns(20))
        grown.explain(QUESTIONS[0])
        for atom in turns(24)[20:]:
            grown.add(atom)
            grown.retrieve("canoe")
        whole.add(turns(24))
        one, two = (each.explain(QUESTIONS[0], "a9", limit=500) for each in (grown, whole))
        assert one.signals == pytest.approx(two.signals, abs=1e-4)
        assert one.influences == pytest.approx(two.influences, abs=1e-4)
        assert one.gradients == pytest.approx(two.gradients, abs=1e-4)
        assert {(e.source, e.target, e.type) for e in one.edges} == {
            (e.source, e.target, e.type) for e in two.edges
        }


def test_explain_of_an_earlier_version() -> None:
    with opened() as memory:
        memory.add(turns(14))
        memory.update("a3", text="an entirely other canoe")
        now, then = memory.explain("canoe", "a3"), memory.at(as_of=1.75e9).explain("canoe", "a3")
        assert "entirely" in now.text
        assert "entirely" not in then.text
        assert now.score != then.score


@pytest.mark.parametrize("preset", ["default", "synapse", "spectral", "contextos", "sgrm"])
def test_a_trace_says_what_was_looked_at(preset: str) -> None:
    config = load_config(preset, {"link.concepts": "pattern", "anchors.k": 3})
    with Memory.open(config=config, embedder=HashingEmbedder(32)) as memory:
        assert memory.retrieve("nothing is stored", trace=True).trace is None
        memory.add(turns(36))
        index = memory.index
        plain = memory.retrieve(QUESTIONS, between=(1.7e9, 1.7015e9))
        traced = memory.retrieve(QUESTIONS, between=(1.7e9, 1.7015e9), trace=True)
        with torch.inference_mode():
            query = memory.tensors.encode(QUESTIONS)
            there = (index.time >= 1.7e9) & (index.time <= 1.7015e9)
            found = index.candidates(replace(query, allowed=there[None]))
        for place, (one, two) in enumerate(zip(plain, traced, strict=True)):
            assert one.trace is None
            assert "trace" not in one.as_dict()
            assert (two.hits, two.confidence) == (one.hits, one.confidence)
            trace = two.trace
            assert trace is not None
            assert trace.seconds.keys() >= {"encode", "candidates", "score", "read"}
            assert all(value >= 0 for value in trace.seconds.values())
            assert (trace.questions, trace.atoms) == (3, 36)
            valid = found.valid.expand(found.shape)
            assert trace.candidates == int(valid[place].sum())
            reached = found.reached.activation
            if reached is None:
                assert trace.activated is None
            else:
                assert trace.activated == int((reached.row == place).sum())
            assert {id for id, _ in trace.anchors} <= {f"a{i}" for i in range(36)}
            assert json.dumps(two.as_dict()["trace"])


def test_an_unknown_id_names_its_argument() -> None:
    with opened() as memory:
        memory.add(turns(3))
        with pytest.raises(InputError, match=r"^id: expected .* got 'nope'"):
            memory.explain("x", "nope")
