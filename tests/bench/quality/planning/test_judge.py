"""Projects whose steps need each other, and the judge that asks for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from graphmem_torch.config import load_config
from graphmem_torch.quality.planning.judge import judge
from graphmem_torch.quality.planning.projects import GROUPS, projects
from graphmem_torch.quality.request import Request


def expected(
    group: str, graph: Any, named: Sequence[int], ready: Collection[int]
) -> list[tuple[int, int]]:
    """Return the answer to a question by networkx."""
    if group == "before":
        return [*graph.in_edges(named)]
    if group == "waiting":
        return [*graph.out_edges(named)]
    if group == "next":
        return [*graph.in_edges(ready)]
    (step,) = named
    return [*graph.subgraph({*nx.ancestors(graph, step), step}).edges]


def test_projects_are_what_is_told_of_them() -> None:
    made, atoms, asked = projects(6, 10, seed=2)
    text = {atom.id: atom.text for atom in atoms}
    assert len(made) == 6 and len(text) == len(atoms)
    assert [atom.time for atom in atoms] == sorted(atom.time or 0.0 for atom in atoms)
    groups = dict.fromkeys(GROUPS, 0)
    for project in made:
        graph = nx.DiGraph(project.needs)
        graph.add_nodes_from(range(10))
        assert nx.is_directed_acyclic_graph(graph)
        for a, b in project.needs:
            said = text[f"{project.name}/need{a}-{b}"]
            assert all(part in said for part in (project.name, project.steps[a], project.steps[b]))
        for step in range(10):
            assert project.leading_to(step) == nx.ancestors(graph, step)
        assert all(project.leading_to(step) <= project.done for step in project.done)
        assert project.open() == {
            step
            for step in range(10)
            if step not in project.done and {*graph.predecessors(step)} <= project.done
        }
        for each in (each for each in asked if project.name in each.text):
            groups[each.group] += 1
            told = {
                tuple(map(int, name.partition("/need")[2].split("-"))): name for name in each.gold
            }
            named = [step for step, words in enumerate(project.steps) if words in each.text]
            wanted = expected(each.group, graph, named, project.open())
            assert {*told} == {*wanted} and len(told) == len(each.gold) > 0
    assert sum(groups.values()) == len(asked) and groups["before"] == 18
    assert projects(6, 10, seed=2)[1:] == (atoms, asked)
    assert projects(6, 10, seed=3)[1] != atoms
    with pytest.raises(ValueError, match="count: expected"):
        projects(0, 10, seed=2)


def test_the_judge() -> None:
    config = load_config("default", {"link.concepts": "pattern"})
    request = Request(data=Path(), config=config, embedder="hashing", device="cpu")
    found = judge(request, size=(2, 5), resamples=20)
    systems = found.report["systems"]
    assert list(systems) == ["cosine", "default", "with plans", "with aggregates", "with both"]
    assert found.report["n"]["aggregates"] > 0
    for own in systems.values():
        for measure in ("recall", "in words"):
            assert {*own[measure]} == {*GROUPS, "all"}
            assert all(0 <= each["mean"][0] <= 1 for each in own[measure].values())
    assert systems["default"]["recall"]["all"]["difference"] == [0.0, 0.0, 0.0]
    assert "recall within 200 words" in found.table
