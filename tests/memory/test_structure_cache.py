"""Missing links of a memory: a pattern of stated dependencies is completed."""

from __future__ import annotations

import pytest
import torch

from graphmem_torch import Atom, EdgeType, InputError, Link, Memory


def _library(memory: Memory) -> set[tuple[str, str]]:
    """30 statements on 10 bases of two kinds; returns the pairs left out of the pattern."""
    chance = torch.Generator().manual_seed(0)
    left_out, atoms = set(), []
    for i in range(10):
        atoms.append(Atom(f"base{i}", f"Base number {i}.", kind="axiom"))
    for i in range(30):
        links = []
        for j in range(i % 2, 10, 2):
            if float(torch.rand(1, generator=chance)) < 0.15:
                left_out.add((f"statement{i}", f"base{j}"))
            else:
                links.append(Link(f"base{j}", EdgeType.DEPENDENCY))
        atoms.append(Atom(f"statement{i}", f"Statement {i}.", kind="theorem", edges=tuple(links)))
    memory.add(atoms)
    return left_out


def test_missing_links_name_what_was_left_out() -> None:
    with Memory.open(None, embedder="hashing") as memory:
        left_out = _library(memory)
        found = memory.graph.missing_links(len(left_out), type="dependency")
    named = {(link.source, link.target) for link in found}
    assert len(found) == len(left_out)
    assert len(named & left_out) >= 0.8 * len(left_out)
    assert all(0 <= link.probability <= 1 for link in found)


def test_missing_links_without_a_pattern() -> None:
    with Memory.open(None, embedder="hashing") as memory:
        memory.add([Atom("a", "One."), Atom("b", "Two.")])
        with pytest.raises(InputError, match="at least 2 edges of type supports"):
            memory.graph.missing_links(type=EdgeType.SUPPORTS)
        with pytest.raises(InputError, match="edge type"):
            memory.graph.missing_links(type="nonsense")
