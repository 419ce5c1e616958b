"""Contexts and documents of a memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphmem_torch.atoms import CONCEPT, Atom
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Added
from tests.memories import WORDS, config_of, opened, turns


@pytest.mark.parametrize("tokenizer", ["cl100k_base", "o200k_base"])
def test_a_context_fits_its_budget(tokenizer: str) -> None:
    import bpe_openai

    encode = bpe_openai.get_encoding(tokenizer).encode_ordinary
    with opened() as memory:
        atoms = turns()
        atoms[3] = replace(atoms[3], text="canoe \u00fc\u2603\U0001f600 " * 40)
        memory.add(atoms)
        order = {atom.id: place for place, atom in enumerate(atoms)}
        sizes = []
        for budget in (0, 1, 20, 45, 90, 333, 5000):
            context = memory.compile("Where is the canoe?", budget=budget, tokenizer=tokenizer)
            assert context.tokens == len(encode(context.text)) <= budget
            places = [order[i] for i in context.sources]
            assert places == sorted(places)
            assert not {*context.sources} & {*context.omitted}
            for i in context.sources:
                assert f"[{i} |" in context.text
                assert atoms[order[i]].rendered in context.text
            sizes.append(len(places))
        assert sizes[0] == 0
        assert sizes == sorted(sizes)
        assert sizes[-1] == 24
        with pytest.raises(InputError, match="budget must be a whole number"):
            memory.compile("canoe", budget=-1)
        with pytest.raises(InputError, match="expected a tokenizer"):
            memory.compile("canoe", budget=10, tokenizer="cl100k")


def test_documents_come_back_whole() -> None:
    text = "\n\n".join(f"Chapter {i}. The {WORDS[i % 8]} stands alone. " * 9 for i in range(12))
    with opened(config=config_of(**{"embedder.max_tokens": 40})) as memory:
        added = memory.add_document(text, name="book", time=5.0)
        assert added.new > 10
        assert memory.add_document(text, name="book", time=5.0) == Added(0, added.new)
        node = memory.store.columns().node.tolist()
        chunks = [a for a in memory.store.atoms(node) if a.kind != CONCEPT]
        assert "".join(a.text for a in chunks) == text
        assert {(a.session, a.time) for a in chunks} == {("book", 5.0)}


def test_a_context_beside_a_text_of_a_million_characters() -> None:
    pytest.importorskip("bpe_openai")
    with opened() as memory:
        memory.add([Atom("huge", ("canoe " * 170_000)[:1_000_000]), Atom("small", "A red canoe.")])
        context = memory.compile("Where is the canoe?", budget=60)
        assert context.sources == ("small",)
        assert context.omitted == ("huge",)
