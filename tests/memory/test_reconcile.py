"""Contradictions and duplicates: found, judged, resolved, and found again by nobody."""

from __future__ import annotations

import itertools
import logging
import re
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch import Memory
from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.config import Config, LinkConfig, ReconcileConfig, load_config
from graphmem_torch.config.loading import preset_names
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import reconcile
from graphmem_torch.memory.conflict_pairs import SharedKeys, similar_nodes
from graphmem_torch.oracle import Verdict
from graphmem_torch.results import Reconciled
from tests.memories import config_of
from tests.processes import start

DAY = 86400.0
T = 1.7e9


def opened(path: Path | None = None, **settings: Any) -> Memory:
    config = load_config("default")
    config = replace(config, reconcile=replace(config.reconcile, **settings))
    return Memory.open(path, config=config, embedder="hashing", clock=lambda: T + 100 * DAY)


def unsure() -> list[Atom]:
    """The same without a word of a change."""
    plain = {"moved to": "lives in", "has moved from Porto to": "lives in"}
    found = moves()
    for said, other in plain.items():
        found = [replace(atom, text=atom.text.replace(said, other)) for atom in found]
    return found


def moves() -> list[Atom]:
    return [
        Atom("lisbon", "Ana lives in Lisbon.", time=T),
        Atom("rain", "It rained the whole afternoon at the harbour.", time=T + DAY),
        Atom("porto", "Ana moved to Porto.", time=T + 5 * DAY),
        Atom("ben", "Ben lives in Lisbon.", time=T + 6 * DAY),
        Atom("oslo", "Ana has moved from Porto to Oslo.", time=T + 9 * DAY),
    ]


def spans(memory: Memory, *ids: str) -> list[tuple[float | None, str | None]]:
    found = memory.facts.validity(list(ids))
    return [(found[name].stop, found[name].by) for name in ids]


def test_recency_ends_what_the_next_value_replaces() -> None:
    with opened() as memory:
        memory.add(moves())
        done = memory.facts.reconcile()
        assert (done.conflicts, done.superseded, done.stated, done.failed) == (3, 2, 0, 0)
        assert spans(memory, "lisbon", "porto", "oslo", "ben") == [
            (T + 5 * DAY, "porto"),
            (T + 9 * DAY, "oslo"),
            (None, None),
            (None, None),
        ]
        assert len(memory) == 5, "nothing is deleted"
        known = memory.facts.validity(["lisbon"], as_of=T + 6 * DAY)["lisbon"]
        assert known.by == "porto", "known from when it was told"
        assert memory.facts.validity(["lisbon"], as_of=T + 4 * DAY)["lisbon"].by is None
        found = {(each.earlier, each.later): each for each in memory.facts.conflicts()}
        assert set(found) == {("lisbon", "porto"), ("lisbon", "oslo"), ("porto", "oslo")}
        first = found["lisbon", "porto"]
        assert (first.state, first.how, first.by) == ("resolved", "superseded", "porto")
        assert first.texts == ("Ana lives in Lisbon.", "Ana moved to Porto.")
        assert first.confidence > 0.8
        assert memory.facts.reconcile() == Reconciled() and str(Reconciled()) == "nothing to do"


def test_one_by_one_and_in_any_order_is_as_all_at_once() -> None:
    with opened() as whole:
        whole.add(moves())
        whole.facts.reconcile()
        names = [atom.id for atom in moves()]
        expected = spans(whole, *names)
    for order in itertools.islice(itertools.permutations(moves()), 0, 120, 41):
        with opened() as memory:
            for atom in order:
                memory.add(atom)
                memory.facts.reconcile()
            assert spans(memory, *names) == expected


def contradicts(premises: Sequence[str], hypotheses: Sequence[str]) -> list[Any]:
    """An oracle for which nobody lives in two towns, and nothing else is at odds."""
    towns = [(re.findall("Lisbon|Porto", a)[-1:], re.findall("Lisbon|Porto", b)[-1:])
             for a, b in zip(premises, hypotheses, strict=True)]  # fmt: skip
    return [("contradict", 0.9) if a and b and a != b else ("neutral", 1.0) for a, b in towns]


def test_importance_keeps_the_stronger(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(policy="importance") as memory:
        memory.add(moves()[:3])
        best = {"lisbon": 1.0, "porto": 0.0}
        monkeypatch.setattr(
            memory._state, "importance_of", lambda ids: {name: best[name] for name in ids}
        )
        assert memory.facts.reconcile(oracle=contradicts).superseded == 1
        assert spans(memory, "lisbon", "porto") == [(None, None), (T + 5 * DAY, "lisbon")]
        assert memory.facts.conflicts()[0].how == "superseded"
        best |= {"lisbon": 0.0, "porto": 1.0}
        assert memory.facts.reconcile(oracle=contradicts) == Reconciled(), (
            "what is resolved stays so"
        )


def test_the_rules_end_the_earlier_one_whatever_its_importance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(policy="importance") as memory:
        memory.add(moves()[:3])
        monkeypatch.setattr(
            memory._state, "importance_of", lambda ids: {"lisbon": 1.0, "porto": 0.0}
        )
        assert memory.facts.reconcile().superseded == 1
        assert spans(memory, "lisbon", "porto") == [(T + 5 * DAY, "porto"), (None, None)]


def test_both_stay_and_an_aggregate_states_it() -> None:
    with opened() as memory:
        memory.add(moves()[:3])
        assert memory.facts.reconcile(policy="both").stated == 1
        (conflict,) = memory.facts.conflicts()
        assert (conflict.state, conflict.how) == ("resolved", "aggregate")
        assert conflict.by is not None
        (aggregate,) = memory.get([conflict.by])
        assert aggregate.kind == "aggregate" and aggregate.time == T + 5 * DAY
        assert "Ana lives in Lisbon." in aggregate.text and "Ana moved to Porto." in aggregate.text
        assert {(link.target, link.type) for link in aggregate.edges} == {
            ("lisbon", EdgeType.DERIVED_FROM),
            ("porto", EdgeType.DERIVED_FROM),
        }
        assert spans(memory, "lisbon", "porto") == [(None, None), (None, None)]
        assert memory.facts.reconcile(policy="both") == Reconciled(), "an aggregate is not compared"
        memory.forget(["porto"])
        assert memory.facts.conflicts() == [] and conflict.by not in memory


def test_what_is_not_sure_stays_open_until_it_is_asked_for() -> None:
    with opened() as memory:
        memory.add(unsure()[:3])
        assert memory.facts.reconcile() == Reconciled(compared=1, conflicts=1)
        assert [each.state for each in memory.facts.conflicts()] == ["open"]
        memory.graph.connect("rain", "lisbon", "contradicts", 1.0)
        assert memory.facts.reconcile().superseded == 0, "what somebody states is theirs to resolve"
        assert {each.reason for each in memory.facts.conflicts()} == {
            "value: lisbon / porto",
            "stated or judged",
        }
        memory.facts.set_validity("lisbon", stop=T + DAY / 2)
        assert {each.how for each in memory.facts.conflicts()} == {"validity"}


def test_judged_contradictions_stay_open_without_an_oracle() -> None:
    with opened() as memory:
        memory.add([Atom("a", "Bread is cheap.", time=T), Atom("b", "Bread is dear.", time=T + 1)])
        memory.graph.judge(lambda p, h: [("contradict", 0.9)] * len(p), [("a", "b")])
        (conflict,) = memory.facts.conflicts()
        assert conflict.confidence == pytest.approx(0.9) and conflict.state == "open"
        assert memory.facts.reconcile().superseded == 0
        assert spans(memory, "a") == [(None, None)]


def test_an_oracle_takes_back_what_the_rules_flagged() -> None:
    with opened() as memory:
        memory.add(
            [
                Atom("a", "The light is on.", time=T),
                Atom("b", "The light is off.", time=T + DAY),
                Atom("c", "The light is bright.", time=T + 2 * DAY),
            ]
        )
        memory.graph.connect("c", "a", "contradicts", 1.0)
        assert memory.facts.reconcile().conflicts == 1
        assert {(each.earlier, each.later) for each in memory.facts.conflicts()} == {
            ("a", "b"),
            ("a", "c"),
        }
        memory.facts.reconcile(oracle=lambda p, h: ["neutral"] * len(p))
        (left,) = memory.facts.conflicts()
        assert (left.earlier, left.later) == ("a", "c"), "what somebody stated stays"


def test_an_oracle_is_asked_both_ways_round() -> None:
    asked: list[tuple[str, str]] = []

    def oracle(premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict]:
        asked.extend(zip(premises, hypotheses, strict=True))
        return [Verdict("contradict", 0.9)] * len(premises)

    with opened() as memory:
        memory.add(moves()[:3])
        done = memory.facts.reconcile(oracle=oracle)
        assert done.compared and done.conflicts == done.compared
        assert {pair[::-1] for pair in asked} == set(asked)
        seen = len(asked)
        assert memory.facts.reconcile(oracle=oracle).compared == 0 and len(asked) == seen
        assert memory.facts.reconcile().compared == 1, "the local rules have not judged yet"


@pytest.mark.parametrize(
    "oracle",
    [
        lambda p, h: [("contradict" if a < b else "entail") for a, b in zip(p, h, strict=True)],
        lambda p, h: ["perhaps"] * len(p),
        lambda p, h: None,
        lambda p, h: 1 / 0,
        lambda p, h: itertools.repeat("contradict"),
        lambda p, h: [("contradict", float("nan"))] * len(p),
    ],
)
def test_nonsense_is_neutral(oracle: Any, caplog: pytest.LogCaptureFixture) -> None:
    with opened() as memory, caplog.at_level(logging.WARNING):
        memory.add(moves()[:3])
        done = memory.facts.reconcile(oracle=oracle)
        assert done.failed == done.compared > 0 and done.conflicts == 0
        assert "neutral" in caplog.text and memory.facts.conflicts() == []


def test_what_was_changed_later_is_told_to_no_earlier_moment() -> None:
    """Neither by an end of validity nor by an aggregate: nobody knew of Porto before the change."""
    for policy in ("recency", "both"):
        now = [T + 100 * DAY]
        config = replace(load_config("default"), reconcile=ReconcileConfig(policy=policy))
        with Memory.open(config=config, embedder="hashing", clock=lambda now=now: now[0]) as memory:
            memory.add(moves()[0])
            memory.add(Atom("porto", "Ana likes tea.", time=T + 5 * DAY))
            now[0] += DAY
            memory.update("porto", text="Ana moved to Porto.")
            now[0] += DAY
            done = memory.facts.reconcile()
            assert done.superseded + done.stated == 1
            known = T + 101 * DAY  # of the change
            for moment, told in ((known - 1, False), (known, True)):
                span = memory.facts.validity("lisbon", as_of=moment)["lisbon"]
                assert (span.by is not None) is (told and policy == "recency")
                where = {"kind": {"$in": ["turn", "aggregate"]}}
                result = memory.at(as_of=moment).retrieve("Where does Ana live?", k=9, where=where)
                said = any("Porto" in hit.text for hit in result.hits)
                assert said is told
            stated = [hit for hit in result.hits if hit.kind == "aggregate"]
            assert [hit.time for hit in stated] == ([known] if policy == "both" else [])


def test_an_aggregate_of_what_has_no_time_has_none() -> None:
    with opened(policy="both") as memory:
        memory.add([moves()[0], replace(moves()[2], time=None)])
        assert memory.facts.reconcile().stated == 1
        (conflict,) = memory.facts.conflicts()
        assert conflict.by is not None and memory.get(conflict.by).time is None
        assert not any("Porto" in hit.text for hit in memory.at(as_of=T * 2).retrieve("Ana").hits)


@pytest.mark.parametrize("what", ["delete", "upkeep.archive", "update"])
def test_a_stated_conflict_goes_with_what_it_states(what: str) -> None:
    with opened(policy="both") as memory:
        memory.add(moves()[:3])
        memory.facts.reconcile()
        (conflict,) = memory.facts.conflicts()
        change = {"text": "Ana once saw Lisbon."} if what == "update" else {}
        attrgetter(what)(memory)("lisbon", **change)
        memory.facts.reconcile()
        assert conflict.by not in memory and memory.check() == []
        told = " ".join(hit.text for hit in memory.retrieve("Where does Ana live?", k=9).hits)
        assert "Ana lives in Lisbon." not in told


def test_an_oracle_that_was_down_is_asked_again() -> None:
    answers: list[Any] = []

    def oracle(premises: Sequence[str], hypotheses: Sequence[str]) -> list[Any]:
        if not answers:
            raise ConnectionError("down")
        return answers * len(premises)

    with opened() as memory:
        memory.add(moves())
        done = memory.facts.reconcile(oracle=oracle, block=1)
        assert done.failed == done.compared == 1, "it is not asked of the other blocks"
        answers.append(("contradict", 1.0))
        done = memory.facts.reconcile(oracle=oracle, block=1)
        assert done.failed == 0 and done.conflicts == done.compared > 1
        assert memory.facts.reconcile(oracle=oracle) == Reconciled()


def test_one_way_round_alone_is_half_as_sure() -> None:
    def oracle(premises: Sequence[str], hypotheses: Sequence[str]) -> list[Any]:
        pairs = zip(premises, hypotheses, strict=True)
        return [("contradict", 1.0) if a < b else ("neutral", 1.0) for a, b in pairs]

    with opened() as memory:
        memory.add(moves()[:3])
        memory.facts.reconcile(oracle=oracle)
        assert {each.confidence for each in memory.facts.conflicts()} == {0.5}
        assert {each.state for each in memory.facts.conflicts()} == {"open"}


def test_duplicates_support_the_first_and_count_as_its_use() -> None:
    said = "Ana keeps 3 red canoes in the harbour."
    with opened() as memory:
        memory.add(
            [
                Atom("first", said, time=T),
                Atom("again", said, time=T + DAY),
                Atom("near", "Oh, Ana keeps 3 red canoes in the harbour!", time=T + 2 * DAY),
                Atom("more", "Ana keeps 3 red canoes in the old harbour.", time=T + 2 * DAY),
                Atom("number", "Ana keeps 4 red canoes in the harbour.", time=T + 3 * DAY),
                Atom("denied", "Ana never keeps 3 red canoes in the harbour.", time=T + 4 * DAY),
                Atom("other", "Ben keeps 3 red canoes in the harbour.", time=T + 5 * DAY),
                Atom("thanks", "Thanks!", time=T + 6 * DAY),
                Atom("welcome", "Thanks!", time=T + 7 * DAY),
            ]
        )
        before = memory.upkeep.strength(["first"], as_of=T + 50 * DAY)["first"]
        assert memory.facts.reconcile().duplicates == 2
        edges = memory.store.edges()
        known = edges.take(edges.type == int(EdgeType.SUPPORTS))
        ids = memory.store.ids()
        node = dict(zip(memory.store.nodes().tolist(), ids, strict=True))
        ends = torch.stack([known.source, known.target]).T.tolist()
        pairs = {(node[a], node[b]) for a, b in ends}
        assert {source for source, _ in pairs} == {"again", "near"}
        assert ("again", "first") in pairs
        counts = memory.store.uses
        assert len(memory) == 9 and counts.last(torch.tensor([0]), T + 50 * DAY)[0] >= T + DAY
        assert memory.upkeep.strength(["first"], as_of=T + 50 * DAY)["first"] >= before
        assert memory.facts.reconcile() == Reconciled()


def test_keys_are_those_of_a_brute_force(generator: torch.Generator) -> None:
    names, cities = ["Ana", "Ben", "Nora"], ["Lisbon", "Porto", "Oslo", "Turin"]
    draw = torch.randint(12, (40,), generator=generator).tolist()
    with opened() as memory:
        memory.add(
            [
                Atom(f"m{i}", f"{names[d % 3]} lives in {cities[d // 3]}.", time=T + i)
                for i, d in enumerate(draw)
            ]
        )
        node = memory.store.nodes(concepts=False).tolist()
        row = {number: place for place, number in enumerate(node)}
        for start in (0, node[20], node[-1] + 1):
            found = SharedKeys().pairs(memory.store, start, shared=1000, rare=0)
            got = {(row[a], row[b]) for a, b in found.T.tolist()}
            assert got == {
                (i, j)
                for i in range(40)
                for j in range(i)
                if draw[i] % 3 == draw[j] % 3 and node[i] >= start
            }
        few = SharedKeys().pairs(memory.store, 0, shared=2, rare=0)
        assert 0 < few.shape[1] < 40 * 4
        assert SharedKeys().pairs(memory.store, 0, shared=0, rare=9).shape == (2, 0)


def test_what_is_given_up_is_looked_for_in_earlier_memories_alone() -> None:
    with opened() as memory:
        said = [
            "Kim: I sing in the church choir.",
            "Kim: The choir sang well.",
            "Kim: I've left the choir.",
            "Kim: The choir has a new director.",
        ]
        memory.add([Atom(f"c{i}", text, time=T + i) for i, text in enumerate(said)])
        node = memory.store.nodes(concepts=False).tolist()
        found = SharedKeys().pairs(memory.store, 0, shared=8, rare=0).T.tolist()
        asked = {(node.index(a), node.index(b)) for a, b in found}
        assert {(2, 0), (2, 1)} <= asked and (1, 0) not in asked


def test_rare_words_make_candidates() -> None:
    with opened() as memory:
        memory.add([Atom(f"w{i}", f"the usual words number{i}") for i in range(5)])
        memory.add([Atom("x", "zebra quartz here"), Atom("y", "a quartz by the zebra")])
        node = dict(zip(memory.store.ids(), memory.store.nodes().tolist(), strict=True))
        found = SharedKeys().pairs(memory.store, 0, shared=8, rare=3)
        assert found.T.tolist() == [[node["y"], node["x"]]]


def test_similar_nodes_once_and_from_the_start_on() -> None:
    edges = EdgeBlock.of(
        [3, 1, 5, 4, 5], [1, 3, 2, 2, 2], [2, 2, 2, 0, 2], [0.9, 0.8, 0.4, 1.0, 0.7]
    )
    kind = int(EdgeType.SIMILARITY)
    edges = replace(edges, type=torch.where(edges.type == 2, kind, 0).to(torch.uint8))
    pairs, cosine = similar_nodes(edges, 0, min_cosine=0.5)
    assert pairs.T.tolist() == [[3, 1], [5, 2]]
    assert cosine.tolist() == pytest.approx([0.9, 0.7])
    assert similar_nodes(edges, 4, min_cosine=0.5)[0].T.tolist() == [[5, 2]]
    assert similar_nodes(edges, 0, min_cosine=0.95)[0].shape == (2, 0)


def test_equal_times_and_backward_clocks() -> None:
    with opened() as memory:
        memory.add(
            [Atom("a", "Ana lives in Lisbon.", time=T), Atom("b", "Ana moved to Oslo.", time=T)]
        )
        memory.facts.reconcile()
        assert spans(memory, "a", "b") == [(T, "b"), (None, None)]
    with opened() as memory:
        memory.add([Atom("a", "Ana lives in Lisbon."), Atom("b", "Ana moved to Oslo.")])
        memory.facts.reconcile()
        assert spans(memory, "a")[0][1] == "b"


def test_open_conflicts_are_those_of_all_conflicts_that_are_open() -> None:
    with opened() as memory:
        memory.add(unsure())
        memory.add(
            [
                Atom("past", "Ana lives in Rome.", time=T + 20 * DAY, event_end=T - DAY),
                Atom("later", "Ana lives in Bern.", time=T, event_time=T + 30 * DAY),
                Atom("timeless", "Ana lives in Lund."),
            ]
        )
        memory.facts.reconcile()

        def looked_at() -> int:
            every = reconcile.conflicts_of(memory.store)
            for least in (0.0, 0.8, 0.95, 1.0):
                asked = reconcile.conflicts_of(memory.store, open_from=least)
                assert asked == [
                    each for each in every if each.state == "open" and each.confidence >= least
                ]
            return len(asked) + sum(each.state == "open" for each in every)

        before = looked_at()
        memory.facts.set_validity("later", start=T, stop=T + DAY)
        memory.facts.supersede("lisbon", "porto")
        assert looked_at() < before
        memory.facts.set_validity("later", stop=T + 9 * DAY)
        looked_at()
        memory.facts.reconcile(policy="both")
        memory.forget(["porto"])
        looked_at()


def test_what_was_taken_back_is_superseded_once_more_and_in_no_circle() -> None:
    with opened(policy="importance") as memory:
        memory.add(moves()[:3])
        memory.facts.supersede("porto", "lisbon")
        memory.facts.set_validity("porto", start=T, stop=T + 50 * DAY)
        memory.graph.connect("porto", "lisbon", "contradicts", 1.0)
        assert memory.facts.validity("porto")["porto"].by is None
        importance = memory.upkeep.importance(["porto", "lisbon"])
        assert importance["lisbon"] > importance["porto"]
        assert memory.facts.reconcile(oracle=contradicts).superseded == 1
        found = memory.facts.validity(["porto", "lisbon"])
        assert (found["porto"].by, found["lisbon"].by) == ("lisbon", None)
        assert found["lisbon"].stop is None
        assert [each.state for each in memory.facts.conflicts()] == ["resolved"]
        assert memory.facts.reconcile(oracle=contradicts) == Reconciled()


def test_empty_unknown_and_readonly(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        assert memory.facts.reconcile() == Reconciled() and memory.facts.conflicts() == []
        memory.add(moves()[:3])
        with pytest.raises(InputError, match="policy: expected one of recency"):
            memory.facts.reconcile(policy="luck")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="oracle"):
            memory.facts.reconcile(oracle=3)  # type: ignore[arg-type]
        memory.facts.reconcile()
    with Memory.open(tmp_path / "m", mode="r", embedder="hashing") as reader:
        assert len(reader.facts.conflicts()) == 1
        with pytest.raises(StoreError):
            reader.facts.reconcile()
    with opened(tmp_path / "m") as memory:
        assert memory.facts.reconcile() == Reconciled(), "what was judged is kept"


def test_an_update_is_judged_and_a_forgotten_one_leaves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        memory.add(moves()[:3])
        memory.facts.reconcile()
        memory.forget(["porto"])
        assert memory.facts.conflicts() == [] and spans(memory, "lisbon") == [(None, None)]
        memory.update("rain", text="Ana moved to Turin.")
        assert memory.facts.reconcile().superseded == 1
        assert spans(memory, "lisbon")[0][1] == "rain"
        memory.check()


def test_beside_writers() -> None:
    with opened() as memory:
        memory.add(moves())
        stop = threading.Event()
        errors: list[BaseException] = []

        def write() -> None:
            for i in itertools.count():
                if stop.is_set():
                    return
                try:
                    memory.add(Atom(f"n{i}", f"Ana lives in City{i % 7}.", time=T + i))
                    if i % 3 == 2:
                        memory.delete([f"n{i - 1}"])
                except BaseException as error:
                    errors.append(error)
                    return

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(4):
                memory.facts.reconcile()
        finally:
            stop.set()
            thread.join()
        assert errors == []
        memory.facts.reconcile()
        assert memory.facts.reconcile() == Reconciled() and memory.check() == []


class Killed(BaseException):
    """Nothing that anybody catches."""


@pytest.mark.parametrize(
    ("name", "call"),
    [("_flag_block", 2), ("_store_edges", 2), ("supersede", 1), ("validity_of", 3)],
)
def test_killed_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    kept, calls = getattr(reconcile, name), itertools.count(1)

    def dying(*arguments: Any, **named: Any) -> Any:
        found = kept(*arguments, **named)
        if next(calls) == call:
            raise Killed
        return found

    memory = opened(tmp_path / "m")
    memory.add(moves())
    monkeypatch.setattr(reconcile, name, dying)
    with pytest.raises(Killed):
        memory.facts.reconcile(block=2)
    monkeypatch.setattr(reconcile, name, kept)
    with opened(tmp_path / "m") as again:
        again.facts.reconcile()
        assert spans(again, "lisbon", "porto") == [(T + 5 * DAY, "porto"), (T + 9 * DAY, "oslo")]
        assert len(again.facts.conflicts()) == 3 and again.facts.reconcile() == Reconciled()


def test_blocks_find_what_one_block_finds() -> None:
    found = []
    for size in (1, 3, 1024):
        with opened() as memory:
            memory.add(moves())
            memory.facts.reconcile(block=size)
            found.append([(each.earlier, each.later) for each in memory.facts.conflicts()])
    assert found[0] == found[1] == found[2] != []


def test_without_links_keys_find_it() -> None:
    config = replace(Config(), link=LinkConfig(similarity_k=0), reconcile=ReconcileConfig())
    with Memory.open(config=config, embedder="hashing") as memory:
        memory.add([*moves()[:3], Atom("derived", "Ana", edges=(Link("porto"),))])
        assert memory.facts.reconcile().superseded == 1


RECONCILING = """
import sys, time
from pathlib import Path
from graphmem_torch import Memory
from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
folder, work, first, last = sys.argv[1:]
config = load_config("default", {"link.concepts": "pattern"})
with Memory.open(folder, config=config, embedder="hashing") as memory:
    Path(folder, f"ready {work}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.001)
    if work == "add":
        for i in range(int(first), int(last)):
            memory.add(Atom(f"m{i}", f"Name{i % 3} moved to City{i}.", time=1.7e9 + i))
    else:
        memory.facts.reconcile(block=4)
"""


def test_processes_at_once_find_what_one_finds_alone(
    tmp_path: Path, launcher: socket.socket
) -> None:
    told = [Atom(f"m{i}", f"Name{i % 3} moved to City{i}.", time=T + i) for i in range(18)]

    def outcome(memory: Memory) -> Any:
        found = [(each.earlier, each.later, each.how, each.by) for each in memory.facts.conflicts()]
        assert memory.check() == []
        return found, spans(memory, *(atom.id for atom in told))

    given: dict[str, Any] = {"config": config_of(), "embedder": "hashing"}
    with Memory.open(**given) as alone:
        alone.add(told)
        alone.facts.reconcile()
        expected = outcome(alone)
    folder, program = tmp_path / "m", tmp_path / "program.py"
    program.write_text(RECONCILING)
    with Memory.open(folder, **given) as memory:
        memory.add(told[:12])
    works = "add", "one", "other"
    commands = []
    for work in works:
        (tmp_path / work).mkdir()
        commands.append(start(launcher, tmp_path / work, program, folder, work, "12", "18"))
    while not all((folder / f"ready {work}").exists() for work in works):
        time.sleep(0.002)
    (folder / "go").touch()
    assert [command.wait() for command in commands] == [0, 0, 0], [c.told() for c in commands]
    with Memory.open(folder, **given) as memory:
        memory.facts.reconcile()
        assert outcome(memory) == expected
        assert memory.facts.reconcile() == Reconciled()


@pytest.mark.parametrize("preset", preset_names())
def test_flags_change_no_ranking_and_no_validity(preset: str) -> None:
    pairs = [
        ("The port is 8080.", "The port is 9090."),
        ("Ana lives in Oslo.", "Ana lives in Rome."),
        ("The door is locked.", "The door is unlocked."),
        ("I am allergic to nuts.", "I am not allergic to nuts."),
    ]
    texts = [text for pair in pairs for text in pair]
    questions = ["Which port?", "Where does Ana live?", "Is the door locked?", "nuts"]
    config = load_config(preset, {"link.concepts": "pattern"})
    with Memory.open(None, config=config, embedder="hashing", clock=lambda: T + DAY) as memory:
        memory.add([Atom(f"m{i}", text, time=T + i) for i, text in enumerate(texts)])

        def ranked() -> list[list[tuple[str, float]]]:
            when = [None, T + 2.5, T + DAY]
            return [
                [(hit.id, hit.score) for hit in memory.at(valid_at=at).retrieve(question).hits]
                for question in questions
                for at in when
            ]

        before, spans_before = ranked(), memory.facts.validity([f"m{i}" for i in range(8)])
        done = memory.facts.reconcile()
        assert done.conflicts == len(pairs) and done.superseded == 0
        assert [each.state for each in memory.facts.conflicts()] == ["open"] * len(pairs)
        assert ranked() == before, "bit by bit"
        assert memory.facts.validity([f"m{i}" for i in range(8)]) == spans_before
