"""A store is bound to the extractor of its concepts and to its encoder."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from graphmem_torch import Memory
from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import EmbedderConfig
from graphmem_torch.errors import ConfigError, InputError
from graphmem_torch.memory.compatibility import (
    bind_concepts,
    bound_concepts,
    bound_embedder,
    embedder_meta,
)
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.concepts import PatternConcepts, load_concepts
from graphmem_torch.text.embedder import Embedder, HashingEmbedder
from tests.memories import config_of, opened, turns


def test_concepts_are_bound_by_the_first_add(tmp_path: Path) -> None:
    auto = config_of(**{"link.concepts": "auto"})
    with opened(tmp_path) as memory:  # "pattern"
        assert memory.stats()["concepts"] is None
        memory.add(turns(6))
        assert memory.stats()["concepts"] == "pattern-v1"
        edges = len(memory.store.edges())
    with opened(tmp_path, config=auto) as memory:
        memory.add(turns(12))
        assert memory.stats()["concepts"] == "pattern-v1"
        assert len(memory.store.edges()) > edges
    with opened() as whole:
        whole.add(turns(12))
        with opened(tmp_path, mode="r") as memory:
            assert sorted(memory.store.ids()) == sorted(whole.store.ids())


def test_concepts_of_another_extractor_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(turns(6))
    with opened(tmp_path, config=config_of(**{"link.concepts": "none"})) as memory:
        with pytest.raises(ConfigError, match=r"expected 'pattern-v1'.*got 'none'.*'auto'"):
            memory.add(turns(12))
        assert len(memory) == 6 and memory.retrieve("canoe").hits
        assert memory.add(turns(6)).known == 6, "what is known needs no extractor"


def test_concepts_of_auto_are_resolved_once() -> None:
    with MemoryStore.open(None) as store:
        found = bind_concepts(store, "auto")
        assert found is not None and found.name == load_concepts("auto").name
        assert bound_concepts(store) == found.name
        bind_concepts(store, "none")
        assert bound_concepts(store) == "none", "an empty store takes any"


def test_concepts_of_a_pipeline_that_is_gone(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(turns(6))
        memory.store.meta_set("concepts", "pattern-v0")
    with (
        opened(tmp_path, config=config_of(**{"link.concepts": "auto"})) as memory,
        pytest.raises(ConfigError, match=r"'pattern-v0'.*'pattern-v1'; install that version"),
    ):
        memory.add("new")


def test_concepts_of_a_store_from_before_are_bound_by_its_next_add(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(turns(6))
    connection = sqlite3.connect(next(tmp_path.glob("*.sqlite*")))
    with connection:
        connection.execute("DELETE FROM meta WHERE key = 'concepts'")
    connection.close()
    with opened(tmp_path) as memory:
        assert memory.stats()["concepts"] is None
        memory.add(turns(8))
        assert memory.stats()["concepts"] == "pattern-v1"


class _Colours(PatternConcepts):
    """An extractor of somebody else's."""

    name = "colours-v1"

    def extract(self, texts: Sequence[str]) -> list[list[str]]:
        return [[word for word in ("red", "blue") if word in text] for text in texts]


def test_concepts_of_an_extractor_of_ones_own(tmp_path: Path) -> None:
    with Memory.open(tmp_path, embedder="hashing", concepts=_Colours()) as memory:
        memory.add(["a red boat", "a blue boat", "red and blue"])
        assert memory.stats()["concepts"] == "colours-v1"
        # Each concept is tied to the two texts that say it.
        assert memory.store.num_nodes == 5
        assert sum(kind == EdgeType.ABSTRACTION for kind in memory.store.edges().type) == 4
    with Memory.open(tmp_path, embedder="hashing") as memory:
        assert memory.retrieve("boat").hits
        with pytest.raises(ConfigError, match=r"'colours-v1'.*no such extractor; give it to"):
            memory.add("a green boat")
    with Memory.open(tmp_path, embedder="hashing", concepts=_Colours()) as memory:
        assert memory.add("a red car").new == 1
    with (
        Memory.open(None, embedder="hashing", concepts=7) as memory,  # type: ignore[arg-type]
        pytest.raises(InputError, match="expected an extractor or its name, got int"),
    ):
        memory.add("a green boat")


def test_concepts_that_are_not_given_for_each_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Colours, "extract", lambda self, texts: [])
    with (
        Memory.open(None, embedder="hashing", concepts=_Colours()) as memory,
        pytest.raises(InputError, match=r"each of 1 texts, got 0 from 'colours-v1'"),
    ):
        memory.add("a red boat")


def test_prompts_bind_a_store_as_its_encoder_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def load(spec: str, device: str, **how: object) -> Embedder:
        seen.append((spec, how))
        return HashingEmbedder()

    monkeypatch.setattr("graphmem_torch.memory.compatibility.load_embedder", load)
    how = EmbedderConfig("named", token_dim=7, query_prompt="q: ", document_prompt="auto")
    half = EmbedderConfig("named", dtype="bfloat16")
    with MemoryStore.open(tmp_path) as store:
        for given in (how, half, EmbedderConfig("named")):
            for key, value in embedder_meta("named", given).items():
                store.meta_set(key, str(value))
            seen.clear()
            bound_embedder(store, EmbedderConfig("other"), "cpu")
            rest = {
                "token_dim": given.token_dim,
                "query_prompt": given.query_prompt,
                "document_prompt": given.document_prompt,
                "dtype": given.dtype,
                "from_store": True,
            }
            assert seen == [("named", rest)]
        assert store.meta_get("embedder") == '["named", 128]'  # as earlier releases read it


def test_what_passes_attributes_on_is_what_it_stands_for() -> None:
    class Passing:
        def __init__(self, inner: object) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    embedder, concepts = Passing(HashingEmbedder(32)), Passing(PatternConcepts())
    with Memory.open(config=config_of(), embedder=embedder, concepts=concepts) as memory:
        memory.add(turns(3))
        assert memory.retrieve("canoe").hits
