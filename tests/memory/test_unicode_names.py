"""Names in several forms of Unicode: found by any; one is never two, and two are never one."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from graphmem_torch.atoms import Atom, Link
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory, Scope
from tests.memories import ids, opened


def nfd(name: str) -> str:
    return unicodedata.normalize("NFD", name)


NAME, SESSION, WHO = "tiến", "été", "José"
FORMS = [NAME, nfd(NAME), "ti\u00ea\u0301n"]  # the last one as keyboards of Vietnamese write it


def atom(id: str, session: str = SESSION, speaker: str = WHO) -> Atom:
    return Atom(id, "Nuts make me ill.", session=session, speaker=speaker, time=1.7e9)


@pytest.mark.parametrize("stored", FORMS)
def test_an_id_is_one_in_all_forms(stored: str) -> None:
    for given in FORMS:
        with opened() as memory:
            memory.add([atom(stored), Atom("other", "A kite.")])
            assert given in memory and memory.get(given).id == stored
            assert [each.id for each in memory.get([given, "other"])] == [stored, "other"]
            assert ids(memory.retrieve("nuts", where={"id": given})) == [stored]
            assert ids(memory.retrieve("nuts kite", scope=Scope(exclude=[given]))) == ["other"]
            assert memory.add([atom(given), atom(given, nfd(SESSION), nfd(WHO))]).new == 0
            with pytest.raises(InputError, match="is stored already with other content"):
                memory.add(Atom(given, "Another text."))
            memory.graph.connect([(given, "other", "supports")])
            assert (
                list(memory.upkeep.types(given)) == list(memory.facts.validity([given])) == [given]
            )
            assert memory.explain("nuts", given).id == stored
            memory.pin(given)
            assert memory.pinned() == [stored]
            assert memory.update(given, text="Nuts are fine.").id == stored
            assert (
                len(memory.facts.versions(given)) == 2 and memory.facts.history(given).id == stored
            )
            assert memory.upkeep.archive(given) == 1 and given not in memory
            assert given in (memory.upkeep.archived() or ()) and memory.upkeep.restore(given) == 1
            assert memory.forget(given).atoms >= 1 and given not in memory
            assert memory.check() == []


def test_speakers_and_sessions_are_one_in_all_forms() -> None:
    with opened() as memory:
        memory.add([atom("a", nfd(SESSION), nfd(WHO)), atom("b"), atom("c", "s", "Ann")])
        for form in (str, nfd):
            assert set(ids(memory.retrieve("nuts", where={"speaker": form(WHO)}))) == {"a", "b"}
            assert set(ids(memory.retrieve("nuts", where={"session": form(SESSION)}))) == {"a", "b"}
            for condition in ({"speaker": form(WHO)}, {"session": form(SESSION)}):
                assert {each.id for each in memory.forget(**condition, dry_run=True)} == {"a", "b"}
        assert memory.get("a").speaker == nfd(WHO), "what was said is not rewritten"
        assert memory.get("b").session == nfd(SESSION), "one session, whose turns follow each other"
        with pytest.raises(InputError, match="speaker: expected one such as"):
            memory.forget(speaker="Josè")


def test_edges_lead_to_ids_in_any_form() -> None:
    with opened() as memory:
        memory.add(Atom(nfd("Köln"), "A town."))
        memory.add(Atom("a", "A note.", edges=(Link("Köln"),)))
        assert memory.get("a").edges[0].target == nfd("Köln")
        assert memory.store.edges().source.numel() > 0 and memory.check() == []
        memory.add(
            [Atom("Ñ", "First."), Atom(nfd("Ñ"), "First."), Atom("b", "b", edges=(Link("Ñ"),))]
        )
        assert len(memory) == 4


def old_store(folder: Path) -> Memory:
    """A store in which names differ in form only, which `add` no longer makes."""
    export = folder / "old.jsonl"
    with opened() as first, opened() as second:
        first.add([Atom("Zürich", "The composed one.", speaker=WHO)])
        second.add([Atom(nfd("Zürich"), "The decomposed one.", speaker=nfd(WHO))])
        memory = opened(folder / "old")
        for each in (first, second):
            each.export(export)
            memory.import_(export)
    return memory


def test_two_old_ids_that_differ_in_form_stay_two(tmp_path: Path) -> None:
    with old_store(tmp_path) as memory:
        memory.export(tmp_path / "both.jsonl")
        with opened() as other:
            other.import_(tmp_path / "both.jsonl")
            for each in (memory, other):
                assert len(each) == 2 and each.check() == []
                for form, text in ((str, "The composed one."), (nfd, "The decomposed one.")):
                    assert each.get(form("Zürich")).text == text
                assert len(each.forget(speaker=WHO, dry_run=True)) == 2
        memory.upkeep.archive("Zürich")
        assert memory.get(nfd("Zürich")).text == "The decomposed one."
        assert memory.upkeep.restore("Zürich") == 1 and len(memory) == 2
        memory.delete(nfd("Zürich"))
        assert memory.get(nfd("Zürich")).text == "The composed one."


def test_another_process_adds_a_form(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as one, opened(tmp_path / "m") as two:
        one.add(atom(nfd(NAME)))
        assert NAME in two and two.add(atom(NAME)).new == 0
        one.add(atom(nfd("später")))
        assert two.get("später").id == nfd("später")


def test_words_with_signs_that_show_nothing_are_found() -> None:
    with opened() as memory:
        memory.add([Atom("a", "The pass\u00adphrase is wal\u200bnut."), Atom("b", "The weather.")])
        for question in ("passphrase", "walnut", "pass\u2060phrase"):
            assert ids(memory.retrieve(question))[0] == "a"


def test_names_in_a_decomposed_text_are_whole() -> None:
    with opened(config=None) as memory:
        text = "Yesterday Renée Zürcher met José in Köln. Renée likes Köln."
        memory.add([Atom("a", text), Atom("b", nfd(text)), Atom("c", "\u2060".join(text))])
        names = set(memory.store.texts(kind="concept"))
        assert names and names == {unicodedata.normalize("NFC", name) for name in names}
        for name in names:
            assert memory.retrieve("who", scope=Scope(seeds=[nfd(name)])).hits
