"""The life of memories: types, decay, use, pins (`docs/mathematics.md` 6)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import Memory
from graphmem_torch.memory.decay import ORACLE, Classified, DecayState
from graphmem_torch.store import Columns, MemoryStore
from graphmem_torch.text.embedder import HashingEmbedder
from tests.graphs import walked

HOUR, DAY = 3600.0, 86400.0
NOW = 1.7e9


def living(
    path: Path | None = None,
    *,
    mode: Literal["w", "r"] = "w",
    clock: Callable[[], float] = time.time,
    **change: Any,
) -> Memory:
    change = {"link.concepts": "pattern", "decay.classify": "none"} | change
    config = load_config("contextos", change)
    return Memory.open(path, config=config, embedder=HashingEmbedder(32), mode=mode, clock=clock)


def four(time: float | None = NOW) -> list[Atom]:
    words = {
        "semantic": "Rust guarantees memory safety.",
        "episodic": "The user ran the test in Vienna.",
        "procedural": "Answer in French.",
        "working": "The build of the canoe is running.",
    }
    return [Atom(name, text, type=name, time=time) for name, text in words.items()]


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """For `living(clock=clock)`."""
    return Clock()


def centrality(memory: Memory) -> Tensor:  # [A]
    """PageRank of the atoms, relative to the largest; by networkx."""
    graph = memory.index.graph
    found = torch.tensor(walked(graph, dict.fromkeys(range(graph.num_nodes), 1.0)))
    own = found[memory.index.node.long().cpu()]
    return own / own.max()


def left(memory: Memory, ids: Sequence[str], **change: Any) -> list[float]:
    """Strength without centrality: what is retained."""
    rank = centrality(memory)
    strengths = memory.upkeep.strength(ids, **change)
    rows = memory.tensors.rows(list(ids)).tolist()
    return [strengths[name] - 0.1 * float(rank[row]) for name, row in zip(ids, rows, strict=True)]


def test_decay_by_the_published_factors() -> None:
    # 0.9995 and 0.90 per hour; `docs/mathematics.md` 6 gives the retention at day 1 and day 7.
    with living() as memory:
        memory.add(four())
        for days, semantic, episodic in ((1, 0.988, 0.080), (7, 0.919, 0.000)):
            found = left(memory, ["semantic", "episodic"], as_of=NOW + days * DAY)
            assert found == pytest.approx([0.9995 ** (24 * days), 0.9 ** (24 * days)], abs=1e-6)
            assert [round(value, 3) for value in found] == [semantic, episodic]
        halves = left(memory, ["semantic", "episodic"], as_of=NOW + 6.5788 * HOUR)
        assert halves[1] == pytest.approx(0.5, abs=1e-4)
        assert left(memory, ["semantic"], as_of=NOW + 57.75 * DAY) == [pytest.approx(0.5, abs=1e-3)]
        later = left(memory, ["procedural", "working"], as_of=NOW + 3 * HOUR)
        assert later == pytest.approx([1.0, 0.125], abs=1e-6)


def test_strength_is_retention_and_centrality() -> None:
    change = {"decay.half_life_days": {"episodic": 10 / 24, "semantic": 0}}
    with living(**change) as memory:
        memory.add(four())
        memory.graph.connect("episodic", "semantic", "causes")
        rank = centrality(memory)
        for name, kept in (("episodic", 0.5), ("semantic", 1.0)):
            central = float(rank[memory.tensors.rows([name]).cpu()])
            found = memory.upkeep.strength(name, as_of=NOW + 10 * HOUR)[name]
            assert found == pytest.approx(kept + 0.1 * central, abs=1e-5)
        assert memory.upkeep.strength([]) == {} == memory.upkeep.types([])


def test_decay_starts_anew_with_a_use(clock: Clock) -> None:
    with living(clock=clock) as memory:
        memory.add(four())
        clock.now = NOW + 20 * HOUR
        before = left(memory, ["episodic"])[0]
        assert before == pytest.approx(0.9**20, abs=1e-6)
        memory.touch("episodic", when=NOW + 15 * HOUR)
        assert left(memory, ["episodic"]) == [pytest.approx(0.9**5, abs=1e-6)]
        memory.touch(["episodic", "semantic"])
        assert left(memory, ["episodic", "semantic"]) == pytest.approx([1.0, 1.0])
        memory.touch("episodic", when=NOW + 3 * HOUR)  # an older use takes nothing back
        clock.now += HOUR
        assert left(memory, ["episodic"]) == [pytest.approx(0.9, abs=1e-6)]
        # What was used later counts as not used yet.
        assert left(memory, ["episodic"], as_of=NOW + 17 * HOUR) == [
            pytest.approx(0.9**2, abs=1e-6)
        ]
        assert left(memory, ["episodic"], as_of=NOW + 14 * HOUR) == [
            pytest.approx(0.9**11, abs=1e-6)
        ]
        assert left(memory, ["episodic"], as_of=NOW + 2 * HOUR) == [pytest.approx(0.9**2, abs=1e-6)]
        assert left(memory, ["episodic"], as_of=NOW - 5 * HOUR) == [pytest.approx(1.0)]


def test_decay_starts_anew_with_a_context(clock: Clock) -> None:
    with living(clock=clock) as memory:
        memory.add(four())
        clock.now = NOW + 48 * HOUR
        old = memory.retrieve("Who ran the test in Vienna?", k=4)
        faded = {hit.id: hit.signals["decayed_pagerank"] for hit in old.hits}
        again = memory.retrieve(old.question, k=4)
        assert again == old, "what is only listed is not used"
        memory.compile(old.question, budget=200)
        fresh = {
            hit.id: hit.signals["decayed_pagerank"]
            for hit in memory.retrieve(old.question, k=4).hits
        }
        assert faded["episodic"] == pytest.approx(fresh["episodic"] * 0.9**48, rel=1e-3)
        assert fresh["episodic"] > 0


def test_uses_survive_and_are_seen_by_readers(tmp_path: Path, clock: Clock) -> None:
    clock.now = NOW + 30 * HOUR
    with living(tmp_path, clock=clock) as memory:
        memory.add(four())
        memory.touch("episodic")
    with living(tmp_path, clock=clock) as memory, living(tmp_path, mode="r", clock=clock) as reader:
        for one in (memory, reader):
            assert left(one, ["episodic"]) == [pytest.approx(1.0)]
        clock.now += 10 * HOUR
        memory.touch("episodic")
        assert left(reader, ["episodic"]) == [pytest.approx(1.0)]


def test_decay_without_a_time_counts_from_storing(clock: Clock) -> None:
    with living(clock=clock) as memory:
        memory.add(four(time=None))
        clock.now = NOW + 10 * HOUR
        assert left(memory, ["episodic"]) == [pytest.approx(0.9**10, abs=1e-6)]


def test_decay_until_the_latest_memory() -> None:
    with living(**{"decay.now": "latest"}) as memory:
        memory.add(four())
        assert left(memory, ["episodic"]) == [pytest.approx(1.0)]
        memory.add(Atom("new", "Later on.", type="episodic", time=NOW + 7 * HOUR))
        assert left(memory, ["episodic", "new"]) == pytest.approx([0.9**7, 1.0], abs=1e-6)


def test_pins(tmp_path: Path) -> None:
    with living(tmp_path) as memory:
        assert memory.pinned() == []
        memory.add(four())
        assert memory.pinned() == ["procedural"]
        memory.pin(["working", "episodic", "working"])
        assert memory.pinned() == ["episodic", "procedural", "working"]
        later = left(memory, ["episodic", "working"], as_of=NOW + 99 * HOUR)
        assert later == pytest.approx([1.0, 1.0])
        memory.unpin("procedural")
        memory.unpin(["working", "semantic"])
        assert memory.pinned() == ["episodic"]
        assert left(memory, ["working"], as_of=NOW + HOUR) == [pytest.approx(0.5)]
        memory.pin([])
    for mode in ("r", "w"):
        with living(tmp_path, mode=mode) as memory:
            assert memory.pinned() == ["episodic"]
    with living(tmp_path) as memory:
        memory.pin("procedural")
        assert memory.pinned() == ["episodic", "procedural"]


def test_pins_and_uses_rebuild_nothing(tmp_path: Path) -> None:
    with living(tmp_path) as memory:
        memory.add(four())
        index = memory.index
        memory.pin("semantic")
        memory.touch("episodic")
        memory.upkeep.classify()
        assert memory.index is index


def test_types_for_many_threads() -> None:
    with living(**{"decay.classify": "rules"}) as memory:
        memory.add([Atom(f"a{i}", f"Yesterday we met {i}.", kind="chunk") for i in range(40)])
        names = [f"a{i}" for i in range(40)]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: memory.upkeep.types(names), range(32)))
        assert all(types == found[0] for types in found)
        assert set(found[0].values()) == {"episodic"}


def test_types_that_are_not_stated() -> None:
    atoms = [
        Atom("rule", "Never share the keys.", kind="chunk"),
        Atom("own", "Stop.", type="working"),
    ]
    with living() as memory:
        memory.add(atoms)
        assert memory.upkeep.types(["rule", "own"]) == {"rule": None, "own": "working"}
        assert left(memory, ["rule"], as_of=NOW + 1e9) == [pytest.approx(1.0)]
        done = memory.upkeep.classify()
        assert (done.types, done.failed) == ({"procedural": 1}, 0)
        assert memory.upkeep.types("rule") == {"rule": "procedural"}
        assert memory.pinned() == [], "what was only guessed pins nothing"
    with living(**{"decay.classify": "rules"}) as memory:
        memory.add(atoms[0])
        assert memory.upkeep.types("rule") == {"rule": "procedural"}
        memory.add(Atom("new", "Yesterday we met Tim in Rome.", kind="chunk"))
        assert memory.upkeep.types(["new", "rule"]) == {"new": "episodic", "rule": "procedural"}


def test_types_are_found_once(tmp_path: Path) -> None:
    with living(tmp_path, **{"decay.classify": "rules"}) as memory:
        memory.add([Atom(f"a{i}", f"Yesterday we met {i}.", kind="chunk") for i in range(9)])
        assert set(memory.upkeep.types([f"a{i}" for i in range(9)]).values()) == {"episodic"}
        node = torch.arange(9)
        own = memory.config.decay
        again = DecayState(memory.store, own, rules=lambda atoms: pytest.fail("asked again"))
        assert again.types(node) == ["episodic"] * 9
        # Other rules are asked again.
        other = DecayState(
            memory.store,
            own,
            rules=lambda atoms: ["working"] * len(atoms),
            rules_name="rules of the future",
        )
        assert other.types(node) == ["working"] * 9


def test_types_that_were_found_survive_an_interrupt() -> None:
    asked: list[int] = []

    def interrupted(atoms: Sequence[Atom]) -> list[str]:
        asked.append(len(atoms))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return ["working"] * len(atoms)

    with living(**{"decay.classify": "rules"}) as memory:
        memory.add([Atom(f"a{i}", f"Text {i}", kind="chunk") for i in range(5)])
        state = DecayState(memory.store, memory.config.decay, rules=interrupted, tile=2)
        with pytest.raises(KeyboardInterrupt):
            state.types(torch.tensor([0]))
        assert state.types(torch.arange(5)) == ["working"] * 5
        assert asked == [2, 2, 1, 1], "only what was left is looked at again"


class Answers:
    """An oracle that answers by the first word of a text."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def classify(self, texts: Sequence[str]) -> list[Any]:
        self.asked += texts
        known = {
            "good": lambda t: {"content": t, "type": "episodic", "decay_factor": 0.5},
            "loud": lambda t: {"content": t, "type": "SEMANTIC", "decay_factor": 1},
            "wrong": lambda t: {"content": t, "type": "sematic", "decay_factor": 0.5},
            "nan": lambda t: {"content": t, "type": "semantic", "decay_factor": math.nan},
            "none": lambda t: None,
        }
        return [known[text.split()[0]](text) for text in texts]


def test_types_found_by_an_oracle(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    oracle = Answers()
    names = ["good", "loud", "wrong", "nan", "none"]
    with living(clock=clock) as memory:
        memory.add([Atom(name, f"{name} day, Never share keys", kind="chunk") for name in names])
        memory.add(four())
        with caplog.at_level(logging.WARNING):
            done = memory.upkeep.classify(oracle)
        assert "memory nodes" in caplog.text
        assert done.failed == 3
        assert sum(done.types.values()) == 5
        assert len(oracle.asked) == 5, "what states a type is not asked about"
        types = memory.upkeep.types([*names, "working"])
        assert (types["good"], types["loud"], types["working"]) == (
            "episodic",
            "semantic",
            "working",
        )
        assert None not in types.values()
        clock.now = NOW + 2 * HOUR
        assert left(memory, ["good", "loud"]) == pytest.approx([0.25, 1.0], abs=1e-6)
        oracle.asked.clear()
        memory.upkeep.classify(oracle)
        assert len(oracle.asked) == 3, "only what had no usable answer is asked again"
        memory.upkeep.classify(oracle, ids=["good", "working"])
        assert oracle.asked[3:] == ["good day, Never share keys"]


def ingestor(texts: Sequence[str]) -> list[Any]:
    """The first text again; the others shortened, and related to what is there and what is not."""
    related = [
        {"target": "b", "type": "causes"},
        {"target": "a", "type": "resulted_in"},
        {"target": "gone", "type": "causes"},
        {"target": "c"},
        7,
    ]
    return [
        {
            "content": text if text.startswith("The oven") else f"In short: {text[:12]}",
            "type": "procedural",
            "decay_factor": 0.5,
            "relations": related if text.startswith("Nora") else "none",
        }
        for text in texts
    ]


def test_what_an_oracle_extracts_is_kept(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    with living(clock=clock) as memory:
        texts = {"a": "The oven is hot.", "b": "Rain fell on the roof.", "c": "Nora went home."}
        memory.add([Atom(name, text, time=NOW) for name, text in texts.items()])
        with caplog.at_level(logging.WARNING):
            done = memory.upkeep.classify(ingestor, extract=True)
        assert (done.contents, done.relations, done.failed) == (2, 2, 0)
        assert "'gone'" in caplog.text and "not stored" in caplog.text
        assert [atom.text for atom in memory.get(["b#content", "c#content"])] == [
            "In short: Rain fell on",
            "In short: Nora went ho",
        ]
        assert "a#content" not in memory
        assert memory.graph.disconnect("c#content", "c", "derived_from") == 1
        assert memory.graph.disconnect("c", "b", "causes") == memory.graph.disconnect("c", "a") == 1
        # A guess pins nothing, and fades as the oracle says.
        assert (
            memory.upkeep.types("b#content") == {"b#content": "procedural"}
            and memory.pinned() == []
        )
        clock.now = NOW + HOUR
        assert left(memory, ["b#content"]) == [pytest.approx(0.5, abs=1e-6)]
        assert memory.upkeep.classify(ingestor, extract=True) == Classified()
        again = memory.upkeep.classify(ingestor, ids=["b", "b#content"], extract=True)
        assert again.contents == 0 and len(memory) == 5
        memory.forget(ids=["b"])
        assert "b#content" not in memory


def test_what_is_extracted_of_a_change_takes_its_place(clock: Clock) -> None:
    def oracle(texts: Sequence[str]) -> list[Any]:
        return [
            {"content": f"In short: {text[-6:]}", "type": "semantic", "decay_factor": 0.5}
            for text in texts
        ]

    with living(clock=clock) as memory:
        memory.add(Atom("a", "Nora lives in Oslo", time=NOW - HOUR))
        clock.now = NOW
        memory.upkeep.classify(oracle, extract=True)
        clock.now = NOW + HOUR
        memory.update("a", text="Nora lives in Lisbon")
        done = memory.upkeep.classify(oracle, ids="a", extract=True)
        assert done.contents == 1 and memory.get("a#content").text == "In short: Lisbon"
        before = memory.at(as_of=NOW + HOUR - 1).retrieve("Nora").hits
        assert {hit.text for hit in before} == {"Nora lives in Oslo", "In short: n Oslo"}


def test_what_cannot_be_stored_of_an_oracle_costs_itself_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def oracle(texts: Sequence[str]) -> list[Any]:
        ends = ["\ud83d" if "b" in text else "." for text in texts]
        return [
            {"content": f"In short {end}", "type": "semantic", "decay_factor": 0.5} for end in ends
        ]

    with living() as memory, caplog.at_level(logging.WARNING):
        memory.add([Atom(name, f"the text of {name}", time=NOW) for name in "abc"])
        assert memory.upkeep.classify(oracle, extract=True).contents == 2
        assert "b#content" not in memory and "'b'" in caplog.text
        assert [*memory.upkeep.types(["a", "b", "c"]).values()] == ["semantic"] * 3


def test_what_an_oracle_extracts_is_left_unless_it_is_asked_for() -> None:
    with living() as memory:
        memory.add(Atom("c", "Nora went home."))
        done = memory.upkeep.classify(ingestor)
        assert (done.contents, done.relations, len(memory)) == (0, 0, 1)
        assert memory.get("c").text == "Nora went home."


def test_types_survive_an_outage() -> None:
    def down(texts: Sequence[str]) -> Any:
        raise TimeoutError("hangs")

    with living() as memory:
        memory.add(Atom("good", "good day, we met Tim yesterday", kind="chunk"))
        memory.upkeep.classify(lambda t: [{"content": "x", "type": "working", "decay_factor": 0.5}])
        assert memory.upkeep.classify(down, ids="good").failed == 1
        assert memory.upkeep.types("good") == {"good": "working"}
        assert left(memory, ["good"], as_of=NOW - DAY) == [pytest.approx(1.0)]
        memory.upkeep.classify(ids="good")
        assert memory.upkeep.types("good") == {"good": "episodic"}, (
            "the rules were asked for by name"
        )


def test_types_of_an_oracle_that_answers_while_the_rules_look() -> None:
    with living(**{"decay.classify": "rules"}) as memory:
        memory.add(Atom("a", "Yesterday we met Tim.", kind="chunk"))

        def look(atoms: Sequence[Atom]) -> list[str]:
            memory.store.life.set_found_types({0: ("working", 0.5)}, ORACLE)
            return ["episodic"]

        state, node = DecayState(memory.store, memory.config.decay, rules=look), torch.tensor([0])
        state.types(node)
        assert state.types(node) == ["working"]


def test_types_of_atoms_that_come_while_others_are_read(tmp_path: Path) -> None:
    with living(tmp_path) as memory, MemoryStore.open(tmp_path, mode="r") as store:
        memory.add(four())

        class Late(MemoryStore):
            """A reader to which atoms come between two of its answers."""

            def columns(self, start: int = 0) -> Columns:
                memory.add(Atom("late", "Stop.", type="working"))
                return super().columns(start)

        late = Late.open(tmp_path, mode="r")
        state = DecayState(late, memory.config.decay)
        assert state.types(torch.tensor([3])) == ["working"]
        late.close()
        node = store.known(["late"])["late"][0]
        again = DecayState(store, memory.config.decay)
        assert again.types(torch.tensor([3, node])) == ["working", "working"]


@pytest.mark.parametrize(
    "broken",
    [
        lambda texts: (_ for _ in ()).throw(TimeoutError("hangs")),
        lambda texts: "garbage",
        lambda texts: [],
        lambda texts: [{"type": "semantic"}] * len(texts),
    ],
)
def test_types_by_a_broken_oracle_are_those_of_the_rules(broken: Any) -> None:
    with living() as memory:
        memory.add(Atom("a", "Yesterday we met Tim in Rome.", kind="chunk"))
        done = memory.upkeep.classify(broken)
        assert (done.types, done.failed) == ({"episodic": 1}, 1)
        assert memory.retrieve("Rome").hits[0].id == "a"


def test_life_of_memories_says_what_is_wrong(tmp_path: Path) -> None:
    with living(tmp_path) as memory:
        memory.add([*four(), Atom("t", "Anna Miller saw Vienna", session="s")])
        calls = (
            memory.pin,
            memory.unpin,
            memory.touch,
            memory.upkeep.strength,
            memory.upkeep.types,
        )
        for call in calls:
            with pytest.raises(InputError, match="'nowhere', which is not in the store"):
                call(["semantic", "nowhere"])
            for wrong in ([3], [["semantic"]], b"semantic"):
                with pytest.raises(InputError, match="ids: expected texts"):
                    call(wrong)  # type: ignore[arg-type]
            with pytest.raises(InputError, match="ids: expected"):
                call(None)  # type: ignore[arg-type]
        assert memory.pinned() == ["procedural"]
        concepts = [name for name in memory.store.ids() if name.startswith("concept:")]
        with pytest.raises(InputError, match="got the concept"):
            memory.pin(concepts[0])
        for moment in (math.nan, math.inf, 10**400, "now", True):
            with pytest.raises(InputError, match="when: expected a time"):
                memory.touch("semantic", when=moment)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="as_of: expected a time"):
            memory.upkeep.strength("semantic", as_of=math.nan)
        with pytest.raises(InputError, match=r"type: .*did you mean 'semantic'"):
            memory.add(Atom("b", "x", type="sematic"))
        with pytest.raises(InputError, match="classify"):
            memory.upkeep.classify(5)
    with living(tmp_path, mode="r") as reader:
        for change in (reader.pin, reader.unpin, reader.touch):
            with pytest.raises(StoreError, match="reading only"):
                change("semantic")

        asked: list[Any] = []
        pairs = [("semantic", "episodic")]
        for ask in (
            lambda: reader.upkeep.classify(asked.append),
            lambda: reader.graph.judge(lambda *texts: asked.append(texts), pairs),
        ):
            with pytest.raises(StoreError, match="reading only"):
                ask()
        assert asked == [], "nobody is asked for what cannot be kept"


def test_ages_are_read_only_where_a_signal_asks_for_them(tmp_path: Path) -> None:
    with living(tmp_path) as memory:
        memory.add(four(time=None))

    def stopped() -> float:
        raise AssertionError("the time was asked for")

    hashing = HashingEmbedder(32)
    config = load_config("default")
    plain = replace(config, rank=replace(config.rank, weights={"semantic": 1.0, "lexical": 0.1}))
    with Memory.open(tmp_path, config=plain, embedder=hashing, mode="r", clock=stopped) as reader:
        assert reader.retrieve("Vienna").hits
    with (
        living(tmp_path, mode="r", clock=stopped) as reader,
        pytest.raises(AssertionError, match="was asked for"),
    ):
        reader.retrieve("Vienna")


@pytest.mark.parametrize("relative", [True, False])
def test_value_of_contextos(clock: Clock, relative: bool) -> None:
    """50 relevance + 10 PPR decay, over a chain that only edges show."""
    bare = {"anchors.k": 1, "link.similarity_k": 0, "link.concepts": "none"}
    with living(clock=clock, **bare, **{"walk.relative": relative}) as memory:
        memory.add(
            [
                Atom(
                    "apollo",
                    "Project Apollo",
                    type="semantic",
                    time=NOW,
                    edges=(Link("safety", EdgeType.DEPENDENCY),),
                ),
                Atom("safety", "Memory Safety", type="episodic", time=NOW),
                *[Atom(f"x{i}", f"unrelated {i}", type="semantic", time=NOW) for i in range(9)],
            ]
        )
        clock.now = NOW + 4 * HOUR
        found = memory.retrieve("Project Apollo", k=11)
        hits = {hit.id: hit.signals for hit in found.hits}
        # Two nodes joined both ways: the walk is at the seed with 1 / (1 + d), d = 0.85. Of that
        # edges bring it all but 1 - d, which is d times what they bring to the other.
        seed, other = (8.5, 10.0) if relative else (10 / 1.85, 8.5 / 1.85)
        assert hits["apollo"]["decayed_pagerank"] == pytest.approx(seed * 0.9995**4, rel=1e-4)
        assert hits["safety"]["decayed_pagerank"] == pytest.approx(other * 0.9**4, rel=1e-4)
        assert all(hits[f"x{i}"]["decayed_pagerank"] == 0 for i in range(9))
        vectors = HashingEmbedder(32).encode(["Project Apollo", "Memory Safety"]).pooled
        cosine = float(torch.nn.functional.cosine_similarity(vectors[0], vectors[1], dim=0))
        assert hits["safety"]["semantic_positive"] == pytest.approx(50 * max(0.0, cosine), abs=1e-3)
