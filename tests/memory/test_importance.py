"""Importance is what its formulas say, atom by atom; what is least important is archived."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.cli.main import main
from graphmem_torch.memory import Memory
from graphmem_torch.text.question import is_question, role_of, tells_time
from graphmem_torch.text.terms import terms
from tests.memories import config_of, opened

DAY = 86_400.0
NOW = 1.7e9 + 100 * DAY
SAID = [
    ("Nora", "I moved to Lisbon last week."),
    ("assistant", "Lisbon is the capital of Portugal, and Porto its second city."),
    ("Ben", "Do you like Lisbon?"),
    ("Nora", "I moved to Lisbon last week."),
    ("Ben", "My violin broke, so the quartet plays without me in Vienna."),
    ("Ben", "Wow!"),
]


def atoms() -> list[Atom]:
    return [
        Atom(f"a{i}", text, speaker=speaker, session="s", time=1.7e9 + i * DAY)
        for i, (speaker, text) in enumerate(SAID)
    ]


def remembering(**settings: object) -> Memory:
    refine = {f"refine.{name}": value for name, value in settings.items()}
    memory = opened(config=config_of(**refine), clock=lambda: NOW)
    memory.add(atoms())
    return memory


def begun(place: int) -> float:
    """I_0 of an atom, by a loop over the texts before it."""
    earlier = {word for said in SAID[:place] for word in terms(": ".join(said))}
    speaker, text = SAID[place]
    fresh = len({*terms(f"{speaker}: {text}")} - earlier)
    score = math.log1p(fresh) - 2 - 0.5 * is_question(text) + tells_time(text)
    return 1 / (1 + math.exp(-(score - 4 * (role_of(speaker) < 0))))


def faded(value: float, days: float, half_life: float = 30.0, base: float = 0.05) -> float:
    return base + (value - base) * 0.5 ** (days / half_life)


def test_importance_begins_with_what_is_new_and_fades() -> None:
    with remembering() as memory:
        found = memory.upkeep.importance([f"a{i}" for i in range(len(SAID))])
        for place in range(len(SAID)):
            expected = faded(begun(place), 100 - place)
            assert found[f"a{place}"] == pytest.approx(expected, rel=1e-9)
        early = memory.upkeep.importance("a4", as_of=1.7e9 + 5 * DAY)
        assert early["a4"] == pytest.approx(faded(begun(4), 1), rel=1e-9)
    with remembering(half_life_days=0.0) as memory:
        assert memory.upkeep.importance("a0")["a0"] == pytest.approx(begun(0), rel=1e-9)
        assert memory.upkeep.importance([]) == {}


def test_uses_raise_it_once() -> None:
    with remembering() as memory:
        memory.touch(["a4", "a4", "a5"])
        memory.touch("a4")
        before = memory.upkeep.importance(["a4", "a5"])
        assert memory.upkeep.consolidate().reinforced == 2
        after = memory.upkeep.importance(["a4", "a5"])
        assert after["a4"] == pytest.approx(before["a4"] + 0.3 * 2 / 3)
        assert after["a5"] == pytest.approx(before["a5"] + 0.3 / 2)
        assert str(memory.upkeep.consolidate()) == "nothing to do"
        assert memory.upkeep.importance(["a4", "a5"]) == after
        later = memory.upkeep.importance("a4", as_of=NOW + 30 * DAY)["a4"]
        assert later == pytest.approx(faded(after["a4"], 30))


def test_a_clock_that_goes_backwards_lowers_nothing() -> None:
    clock = [NOW]
    with opened(clock=lambda: clock[0]) as memory:
        memory.add(atoms())
        memory.touch("a4")
        memory.upkeep.consolidate()
        first = memory.upkeep.importance("a4")["a4"]
        clock[0] = NOW - 50 * DAY
        assert memory.upkeep.importance("a4")["a4"] == first
        memory.touch("a4", when=NOW - 50 * DAY)
        memory.upkeep.consolidate()
        assert memory.upkeep.importance("a4")["a4"] >= first


def test_aggregates_add_to_their_members_and_ends_take_away() -> None:
    links = tuple(Link(name, EdgeType.DERIVED_FROM) for name in ("a1", "a4"))
    with remembering(half_life_days=0.0) as memory:
        memory.add(Atom("sum", "Of Porto and a broken violin.", kind="aggregate", edges=links))
        before = memory.upkeep.importance(["a1", "a4", "sum"])
        assert before["a4"] == pytest.approx(begun(4) + 0.1 * before["sum"])
        assert before["a1"] == pytest.approx(begun(1) + 0.1 * before["sum"])
        memory.facts.supersede("a4", "a5")
        assert memory.upkeep.importance("a4")["a4"] == pytest.approx(0.5 * before["a4"])


def test_the_least_important_are_put_aside() -> None:
    with remembering(max_memories=4) as memory:
        memory.pin("a5")
        order = sorted(
            memory.upkeep.importance([f"a{i}" for i in range(5)]).items(), key=lambda x: x[1]
        )
        assert memory.upkeep.consolidate().archived == 2
        away = memory.upkeep.archived()
        assert away is not None and {name for name, _ in order[:2]} == {
            *away.store.known([*dict(order)])
        }
        assert "a5" in memory and len(memory) == 4
        assert str(memory.upkeep.consolidate()) == "nothing to do"
    with remembering(prune_below=0.2, half_life_days=0.0) as memory:
        least = {f"a{i}" for i in range(len(SAID)) if begun(i) < 0.2}
        assert memory.upkeep.consolidate().archived == len(least) > 0
        assert not least & {*memory.store.ids()}


def test_versions_and_deletions_keep_what_was_reinforced(tmp_path: Path) -> None:
    with opened(tmp_path / "m", clock=lambda: NOW) as memory:
        memory.add(atoms())
        memory.touch(["a4", "a1"])
        memory.upkeep.consolidate()
        raised = memory.upkeep.importance("a4")
        memory.update("a4", text="My cello broke.")
        assert memory.upkeep.importance("a4") == raised
        memory.delete("a1")
        memory.add(atoms()[1])
        assert memory.upkeep.importance("a1")["a1"] < 0.1  # as one that was never used
    with opened(tmp_path / "m", mode="r", clock=lambda: NOW) as memory:
        assert memory.upkeep.importance("a4") == raised and memory.check() == []


def test_consolidate_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(tmp_path / "m", embedder="hashing:32") as memory:
        memory.add(atoms())
    store = ["--store", str(tmp_path / "m")]
    command = ["store", "consolidate", *store, "--config.refine.max_memories", "2"]
    command += ["--embedder", "hashing:32"]
    assert main(command) == 0
    assert "4 archived" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    assert '"archived": 0' in capsys.readouterr().out
