"""Concepts that several shards know, in any spelling: hops and activation through them."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.store.shard_folder import shard_of
from tests.memories import WORDS
from tests.memory.test_shards import S, folder_of, one_of, opened

NAMES = [
    "Amber Valley District",
    "Cobalt River Union",
    "Old Stone Ferry",
    "North Copper Mill",
    "Silver Birch Abbey",
    "Green Lantern Guild",
    "Iron Gate Market",
    "White Harbour Light",
]


def documents() -> list[Atom]:
    """Two documents about each name, one of which spells it with an article."""
    said = "It was built near the {} by a mason.", "Painters of {} lived here in 18{:02d}."
    return [
        Atom(
            f"{'xy'[half]}{i}",
            said[half].format(name, i),
            title=f"{WORDS[(i + 3 * half) % 8].title()} {('Manor', 'Tower')[half]}",
            kind="passage",
        )
        for i, name in enumerate(NAMES)
        for half in (0, 1)
    ]


ASKED = [f"When was the {WORDS[i].title()} Manor painted?" for i in range(8)]
APART = [i for i in range(8) if len({shard_of(Atom(f"{x}{i}", ""), S) for x in "xy"}) > 1]


def test_hops_lead_through_names_in_any_spelling(tmp_path: Path) -> None:
    atoms, cut = documents(), {"spread.min_nodes": 10_000}
    folder_of(tmp_path / "m", atoms, **cut)
    assert len(APART) >= 4
    with one_of(atoms, **cut) as one, opened(tmp_path / "m", "r", **cut) as many:
        pairs = zip(one.retrieve(ASKED, k=16), many.retrieve(ASKED, k=16), strict=True)
        for i, (own, other) in enumerate(pairs):
            wanted, found = ({h.id: h.signals["hop"] for h in r.hits} for r in (own, other))
            assert found == pytest.approx(wanted, abs=2e-3)
            assert wanted[f"y{i}"] > 1, "the test would pass with zeros"


def test_activation_passes_through_concepts_of_other_shards(tmp_path: Path) -> None:
    """Along edges between memories and concepts alone, all shards are one store."""
    along = {"abstraction": 1.0, "similarity": 0.0, "temporal": 0.0, "association": 0.0}
    atoms, cut = documents(), {"spread.edges": along, "spread.reverse": along}
    folder_of(tmp_path / "m", atoms, **cut)
    with one_of(atoms, **cut) as one, opened(tmp_path / "m", "r", **cut) as many:
        spread = 0
        for own, other in zip(one.retrieve(ASKED, k=16), many.retrieve(ASKED, k=16), strict=True):
            wanted, found = (
                {h.id: h.signals["activation"] for h in result.hits} for result in (own, other)
            )
            assert found == pytest.approx(wanted, abs=2e-3)
            spread += len({round(value, 3) for value in wanted.values()}) > 4
        assert spread, "the test would pass with zeros"
