"""`Themes.on_switch`: who is called, when, and what survives."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load, save

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from graphmem_torch.memory.index_builder import NEVER, SWITCHED_KEY, last_switch
from graphmem_torch.results import RegimeSwitch
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from tests import memories
from tests.memories import config_of

TOPICS = ["canoe harbour sail rudder", "violin cello bow concert", "comet telescope orbit planet"]


def opened(path: Path | None = None, **change: Any) -> Memory:
    """In batches of five segments of `talk`."""
    return memories.opened(path, **{"config": config_of(**{"link.batch_atoms": 30}), **change})


def talk(segments: int, length: int = 6, start: int = 0) -> list[Atom]:
    """Turns that stay with the words of a topic for `length` turns."""
    return [
        Atom(
            id=f"t{i}",
            text=f"the {TOPICS[(i // length) % 3]} of {i}",
            session=f"s{i // 50}",
            time=1.7e9 + 60.0 * i,
        )
        for i in range(start, start + segments * length)
    ]


def test_switches_are_told_after_the_atoms_are_stored() -> None:
    with opened() as memory:
        told: list[RegimeSwitch] = []

        @memory.themes.on_switch
        def note(switch: RegimeSwitch) -> None:
            assert switch.atom in memory.store.known([switch.atom])
            told.append(switch)

        assert callable(note)
        atoms = talk(30)
        memory.add(atoms)
        # The detector has to learn first; from then on it finds them.
        late = [switch for switch in told if int(switch.atom[1:]) >= 90]
        assert len(late) >= 8
        for switch in told:
            number = int(switch.atom[1:])
            assert switch.session == f"s{number // 50}" and switch.time == 1.7e9 + 60.0 * number
            assert switch.statistic > switch.threshold
            assert number - 1 <= switch.position <= number
        assert sum(int(s.atom[1:]) % 6 <= 1 for s in late) >= 0.8 * len(late)
        # What is known already is not read again.
        count = len(told)
        memory.add(atoms)
        assert len(told) == count


def test_switches_told_to_a_callback_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    with opened() as memory:
        told = []

        def bad(switch: RegimeSwitch) -> None:
            raise RuntimeError("no room")

        memory.themes.on_switch(bad)
        memory.themes.on_switch(told.append)
        with caplog.at_level(logging.ERROR):
            done = memory.add(talk(30))
        assert done.new == 180 and len(memory.tensors.rows([f"t{i}" for i in range(180)])) == 180
        assert told and "no room" in caplog.text and repr(told[0].atom) in caplog.text


def test_monitor_survives_reopening(tmp_path: Path) -> None:
    whole, parts = [], []
    with opened(tmp_path / "whole") as memory:
        memory.themes.on_switch(whole.append)
        memory.add(talk(40))
    path = tmp_path / "parts"
    with opened(path) as memory:
        memory.themes.on_switch(parts.append)
        memory.add(talk(20))
    with opened(path) as memory:  # nobody listens: the detector catches up later
        memory.add(talk(5, start=120))
    with opened(path) as memory:
        memory.themes.on_switch(parts.append)
        memory.add(talk(15, start=150))
    missed = {switch.atom for switch in whole} - {switch.atom for switch in parts}
    assert all(120 <= int(atom[1:]) < 150 for atom in missed)
    heard = [switch for switch in whole if switch.atom not in missed]
    assert [switch.atom for switch in parts] == [switch.atom for switch in heard]
    assert [switch.position for switch in parts] == [switch.position for switch in heard]
    statistic = pytest.approx([switch.statistic for switch in heard], abs=1e-3)
    assert [switch.statistic for switch in parts] == statistic


def test_monitor_of_other_settings_starts_from_the_stored_atoms(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.themes.on_switch(print)
        memory.add(talk(20))
    changed = config_of(**{"regime.detector": "published"})
    told: list[RegimeSwitch] = []
    with opened(tmp_path, config=changed) as memory:
        memory.themes.on_switch(told.append)
        memory.add(talk(10, start=120))
    assert all(switch.threshold == 3.0 and switch.position >= 119 for switch in told)


def test_switches_have_the_structure_analysed_anew() -> None:
    with opened() as memory:
        memory.add(talk(20))
        before = memory.graph.structure()
        told: list[RegimeSwitch] = []
        memory.themes.on_switch(told.append)
        memory.add(talk(10, start=120))
        assert told
        assert memory.graph.structure() is not before


def test_monitor_of_another_version_learns_again(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.themes.on_switch(print)
        memory.add(talk(20))
    with MemoryStore.open(tmp_path) as store:
        kept = json.loads(store.meta_get("regime") or "")
        state = load(base64.b64decode(kept["state"].removeprefix("b64:")))
        del state["axis"]
        kept["state"] = base64.b85encode(save(state)).decode("ascii")
        store.meta_set("regime", json.dumps(kept))
    told: list[RegimeSwitch] = []
    with opened(tmp_path) as memory:
        memory.themes.on_switch(told.append)
        memory.add(talk(10, start=120))
    assert told


def test_state_in_the_form_of_earlier_releases_is_read(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.themes.on_switch(print)
        memory.add(talk(20))
        switches = memory.themes.switches()
    with MemoryStore.open(tmp_path) as store:
        kept = json.loads(store.meta_get("regime") or "")
        data = base64.b64decode(kept["state"].removeprefix("b64:"))
        kept["state"] = base64.b85encode(data).decode("ascii")
        store.meta_set("regime", json.dumps(kept))
    with opened(tmp_path) as memory:
        assert memory.themes.switches() == switches
        memory.add(talk(10, start=120))
        later = memory.themes.switches()
    with opened() as memory:
        memory.add(talk(20))
        memory.add(talk(10, start=120))
        assert memory.themes.switches() == later


def test_switches_told_to_a_callback_that_adds(tmp_path: Path) -> None:
    with opened() as memory:
        summaries: list[str] = []

        @memory.themes.on_switch
        def summarise(switch: RegimeSwitch) -> None:
            if len(summaries) < 3:
                summaries.append(f"summary before {switch.atom}")
                memory.add(Atom(id=f"m{len(summaries)}", text=summaries[-1]))

        assert memory.add(talk(30)).new == 180
        assert len(summaries) == 3 and len(memory.tensors.rows(["m1", "m2", "m3", "t179"])) == 4


def test_on_regime_switch_says_what_is_wrong(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(talk(1))
        with pytest.raises(InputError, match="can be called"):
            memory.themes.on_switch(None)  # type: ignore[arg-type]
    with opened(tmp_path, mode="r") as memory, pytest.raises(InputError, match="mode='w'"):
        memory.themes.on_switch(print)
    silent = config_of(**{"regime.detector": "none"})
    with opened(config=silent) as memory, pytest.raises(InputError, match="'none'"):
        memory.themes.on_switch(print)


def test_switches_in_short_streams_are_none() -> None:
    with opened() as memory:
        told: list[RegimeSwitch] = []
        memory.themes.on_switch(told.append)
        memory.add([])
        memory.add(talk(1, length=3))
        assert told == []


def test_switches_are_listed_without_a_callback(tmp_path: Path) -> None:
    told: list[RegimeSwitch] = []
    with opened(tmp_path / "told") as memory:
        memory.themes.on_switch(told.append)
        memory.add(talk(30))
        assert told and memory.themes.switches() == told
    with opened(tmp_path / "told", mode="r") as memory:
        assert memory.themes.switches() == told
    with opened(tmp_path / "quiet") as memory:
        assert memory.themes.switches() == []
        memory.add(talk(17))
        early = memory.themes.switches()
    with opened(tmp_path / "quiet") as memory:  # goes on from what it kept
        memory.add(talk(13, start=102))
        listed = memory.themes.switches()
    assert listed[: len(early)] == early
    assert [(s.atom, s.position) for s in listed] == [(s.atom, s.position) for s in told]
    assert [s.statistic for s in listed] == pytest.approx([s.statistic for s in told], abs=1e-3)


def test_switches_of_what_is_gone_are_not_listed(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(talk(30))
        listed = memory.themes.switches()
        memory.delete(listed[0].atom)
        assert memory.themes.switches() == listed[1:]
        memory.forget(ids=[listed[1].atom])
        again = [switch.atom for switch in memory.themes.switches()]
        assert again and listed[0].atom not in again and listed[1].atom not in again


def test_forgetting_leaves_no_switch_behind(tmp_path: Path) -> None:
    """The last switch that is kept is that of a store that never held what was forgotten."""
    with opened(tmp_path / "m") as memory, opened(tmp_path / "n") as never:
        memory.add(talk(30))
        assert memory.themes.switches() and last_switch(memory.store) != NEVER
        memory.forget(ids=[f"t{number}" for number in range(12, 180)])
        never.add(talk(2))
        assert memory.store.meta_get(SWITCHED_KEY) is None
        assert never.themes.switches() == memory.themes.switches()
        assert last_switch(memory.store) == last_switch(never.store) == NEVER
        memory.add(talk(30, start=180))
        assert memory.themes.switches() and last_switch(memory.store) != NEVER


def test_switches_of_an_older_store_are_found(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(talk(30))
        listed = memory.themes.switches()
        kept = json.loads(memory.store.meta_get("regime") or "")
        del kept["switches"]  # as before they were kept
        memory.store.meta_set("regime", json.dumps(kept))
        assert memory.themes.switches() == listed


QUIET = {"regime.detector": "none"}


def modes_of(memory: Memory) -> list[tuple[int, float, list[str]]]:
    return [
        (mode.size, pytest.approx(mode.variance, abs=1e-4), [one.id for one in mode.typical])
        for mode in memory.themes.list()
    ]


def from_nothing(atoms: list[Atom], **change: Any) -> list[tuple[int, float, list[str]]]:
    """The modes of who has never found any before."""
    with opened(config=config_of(**QUIET, **change)) as memory:
        memory.add(atoms)
        return modes_of(memory)


def found(memory: Memory) -> int:
    return memory.stats()["modes_found"]


@pytest.mark.parametrize("use", ["none", "kept"])
def test_adding_expires_modes_and_structure_without_a_callback(use: str) -> None:
    with opened(config=config_of(**{"modes.use": use})) as memory:
        memory.add(talk(20))
        memory.themes.list()
        before, structure = found(memory), memory.graph.structure()
        memory.add(talk(1, length=2, start=120))  # goes on: there is no switch
        memory.themes.list()
        assert found(memory) == before
        memory.add(talk(10, start=122))
        assert modes_of(memory) == from_nothing(talk(20) + talk(1, 2, 120) + talk(10, start=122))
        assert found(memory) == before + 1 and memory.graph.structure() is not structure
        again = memory.graph.structure()
        memory.retrieve("canoe")
        memory.themes.switches()
        memory.upkeep.consolidate()
        # Once.
        assert memory.graph.structure() is again
        memory.themes.list()
        assert found(memory) == before + 1


@pytest.mark.parametrize("ask", ["themes.switches", "upkeep.consolidate"])
@pytest.mark.parametrize("use", ["none", "kept"])
def test_asking_expires_what_another_process_holds(tmp_path: Path, ask: str, use: str) -> None:
    change = {"modes.use": use}
    atoms = talk(30)
    with (
        opened(tmp_path / "m", config=config_of(**QUIET, **change)) as unseen,
        opened(tmp_path / "m", config=config_of(**change)) as memory,
        opened(tmp_path / "m", mode="r", config=config_of(**change)) as reader,
    ):
        unseen.add(atoms[:96])
        for each in (unseen, memory, reader):
            each.themes.list()
        unseen.add(atoms[96:])
        counts = [(each.themes.list(), found(each))[1] for each in (unseen, memory, reader)]
        structure = reader.graph.structure()
        attrgetter(ask)(memory)()
        expected = from_nothing(atoms, **change)
        for each, count in zip((unseen, memory, reader), counts, strict=True):
            assert modes_of(each) == expected and found(each) == count + 1
        assert reader.graph.structure() is not structure
        attrgetter(ask)(memory)()
        assert [
            (each.themes.list(), found(each))[1] - 1 for each in (unseen, memory, reader)
        ] == counts
    with opened(tmp_path / "m", config=config_of(**change)) as memory:
        assert modes_of(memory) == expected


def test_a_snapshot_from_before_a_switch_is_not_asked_for_modes(tmp_path: Path) -> None:
    change = {"modes.use": "kept"}
    atoms = talk(30)
    with opened(tmp_path / "m", config=config_of(**QUIET, **change)) as memory:
        memory.add(atoms[:96])
        memory.themes.list()
        memory.add(atoms[96:])
        drifted = modes_of(memory)
    with opened(tmp_path / "m", config=config_of(**QUIET, **change)) as memory:
        assert modes_of(memory) == drifted and found(memory) == 0  # they were kept
    with (
        pytest.raises(KeyboardInterrupt),
        opened(tmp_path / "m", config=config_of(**change)) as memory,
    ):
        assert memory.themes.switches()
        raise KeyboardInterrupt  # who is killed keeps no snapshot
    expected = from_nothing(atoms, **change)
    assert expected != drifted
    for times in (1, 0):  # found anew once, and kept again
        with opened(tmp_path / "m", config=config_of(**change)) as memory:
            assert modes_of(memory) == expected and found(memory) == times
            memory.retrieve("canoe")


def test_aggregates_are_no_part_of_the_stream() -> None:
    with opened() as plain, opened() as memory:
        plain.add(talk(30))
        for start in range(0, 180, 12):
            memory.add(talk(2, start=start))
            links = (Link(f"t{start}", EdgeType.DERIVED_FROM),)
            memory.add(Atom(f"sum{start}", "a bakery and rye", kind="aggregate", edges=links))
        expected = [(each.atom, each.position) for each in plain.themes.switches()]
        assert (
            expected
            and [(each.atom, each.position) for each in memory.themes.switches()] == expected
        )


def test_what_was_undone_is_no_part_of_the_stream(tmp_path: Path) -> None:
    class Failing(HashingEmbedder):
        def encode(self, texts: Sequence[str], *arguments: Any, **options: Any) -> Encoded:
            if any(text.endswith(" of 209") for text in texts):
                raise RuntimeError("the server is gone")
            return super().encode(texts, *arguments, **options)

    def lines(atoms: list[Atom]) -> str:
        rows = [{"id": a.id, "text": a.text, "session": a.session, "time": a.time} for a in atoms]
        return "".join(f"{json.dumps(row)}\n" for row in rows)

    file = tmp_path / "talk.jsonl"
    with opened(tmp_path / "m", embedder=Failing(32)) as memory, opened() as plain:
        file.write_text(lines(talk(20)))
        memory.add_files(file)
        file.write_text(lines(talk(20)[:60]) + lines(talk(5, start=180)))
        with pytest.raises(RuntimeError, match="the server is gone"):
            memory.add_files(file)
        file.write_text(lines(talk(20)) + lines(talk(10, start=120)))
        memory.add_files(file)
        plain.add(memory.get([f"t{i}" for i in range(180)]))
        assert [each.atom for each in memory.themes.switches()] == [
            s.atom for s in plain.themes.switches()
        ]


def test_switches_need_a_detector() -> None:
    with (
        opened(config=config_of(**{"regime.detector": "none"})) as memory,
        pytest.raises(InputError, match=r"regime\.detector"),
    ):
        memory.themes.switches()
