"""The parts of the preset weave are taken away one by one, and what was archived is not found."""

from __future__ import annotations

from bench.quality.common.encoder import CachingEmbedder
from bench.quality.common.questions import Conversation, Question
from bench.quality.common.sets import QuestionSet
from bench.quality.weave import measure, variants
from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.text.embedder import HashingEmbedder

DAY = 86_400.0


def test_what_was_archived_is_not_found() -> None:
    atoms = tuple(
        Atom(f"a{i}", f"The {word} is in the hall of {word}.", speaker="Ben", time=1.7e9 + i * DAY)
        for i, word in enumerate(("violin", "canoe", "comet", "bakery"))
    )
    asked = tuple(
        Question(f"Where is the {w}?", 1, (f"a{i}",)) for i, w in enumerate(("violin", "canoe"))
    )
    one = QuestionSet("one", (Conversation("one", atoms, asked),), at=2)
    config = load_config(
        "weave", {"link.concepts": "none", "refine.max_memories": 3, "refine.prune_below": 0.0}
    )
    found = measure(one, config, CachingEmbedder(HashingEmbedder(64)))
    assert found["recall"]["weave"]["all"] == 0.5  # the oldest of equals has gone
    assert found["recall"]["none of them"]["all"] == found["recall"]["no pruning"]["all"] == 1.0
    assert "1 archived" in found["did"]["weave"]
    assert found["did"]["none of them"] == "nothing to do"
    assert found["adds"]["no pruning"]["all"][0] == -0.5
    assert found["adds"]["no reconciling"]["all"] == [0.0, 0.0, 0.0]


def test_each_part_is_a_setting() -> None:
    config = load_config("weave", {"refine.prune_below": 0.1})
    found = variants(config)
    assert len(found) == 5
    assert "no pruning" not in variants(load_config("weave"))
    for name, own in found.items():
        off = (not own.reconcile.automatic, not own.aggregate.build)
        pruning = own.refine.prune_below == 0.0 and own.refine.max_memories == 0
        assert sum((*off, pruning)) == {"weave": 0, "none of them": 3}.get(name, 1)
