"""Proof graphs read from files: Metamath tables, modules, blueprints, and what is wrong in them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import EdgeType, Link
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from graphmem_torch.readers.proofs import proof_format, read_proofs
from graphmem_torch.readers.read import read_atoms
from graphmem_torch.text.embedder import HashingEmbedder

STATEMENTS = [
    {"id": 0, "label": "wi", "kind": "axiom_or_syntax", "statement": "wff ( ph -> ps )"},
    {"id": 1, "label": "ax-mp", "kind": "axiom_or_syntax", "statement": "|- ps", "comment": None},
    {"id": 2, "label": "df-or", "kind": "axiom_or_syntax", "statement": "|- ( ph \\/ ps )"},
    {
        "id": 7,
        "label": "syl",
        "kind": "theorem",
        "statement": "|- ( ph -> ch )",
        "comment": "Uses ~ ax-mp with ` ph ` . (Contributed by NM, 1-Jan-1993.) (Proof shortened "
        "by O'Cat, 20-Oct-2011.)",
    },
]
BLUEPRINT = {
    "nodes": [
        {"label": "b", "kind": "lemma", "title": "Second", "statement": "ok\n $x = y$", "lean": []},
        {"label": "a", "kind": "definition", "title": "", "statement": "ok A set.", "lean": ["A"]},
    ],
    "edges": [["b", "a", "proof"], ["b", "a", "statement"]],
}


def _library(
    folder: Path,
    *,
    name: str = "tiny",
    nodes: Sequence[Any] = STATEMENTS,
    edges: str = "src_uses\tdst_used\tdst_is_logical\n7\t1\t1\n7\t0\t0\n7\t1\t1\n\n",
) -> Path:
    path = folder / f"{name}_nodes.jsonl"
    path.write_text("".join(json.dumps(node) + "\n" for node in nodes), encoding="utf-8")
    (folder / f"{name}_edges.tsv").write_text(edges, encoding="utf-8")
    return path


def _read(*paths: Path, origins: dict[str, str] | None = None) -> list[Any]:
    tokenizer = HashingEmbedder(8, 4).tokenizer
    return list(read_atoms(list(paths), tokenizer=tokenizer, origins=origins))


def test_library_statements_become_atoms_with_dependencies(tmp_path: Path) -> None:
    path = _library(tmp_path)
    origins: dict[str, str] = {}
    atoms = _read(path, origins=origins)
    assert [atom.id for atom in atoms] == ["wi", "ax-mp", "df-or", "syl"]
    assert [atom.kind for atom in atoms] == ["syntax", "axiom", "definition", "theorem"]
    syl = atoms[3]
    assert syl.text == "syl: |- ( ph -> ch )\nUses ax-mp with ph ."
    assert syl.meta["comment"] == STATEMENTS[3]["comment"]
    assert syl.session == "tiny" and origins["syl"] == f"{path}:4"
    assert syl.edges == (
        Link("ax-mp", EdgeType.DEPENDENCY, 1.0),
        Link("wi", EdgeType.DEPENDENCY, 1.0),
    )


def test_library_modules_may_use_what_comes_later(tmp_path: Path) -> None:
    nodes = tmp_path / "lib_modules.jsonl"
    records = [
        {"id": 0, "module": "algebra.basic", "doc": "# Rings", "n_lines": 9},
        {"id": 1, "module": "logic", "doc": None},
    ]
    nodes.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    (tmp_path / "lib_import_edges.tsv").write_text("src_module\tdst_imported\n0\t1\n", "utf-8")
    algebra, logic = _read(nodes)
    assert (algebra.id, algebra.kind, algebra.text) == (
        "algebra.basic",
        "module",
        "algebra.basic\n# Rings",
    )
    assert algebra.edges[0].target == "logic" and logic.text == "logic"
    assert algebra.meta == {"n_lines": 9}


def test_blueprint_atoms(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(BLUEPRINT), encoding="utf-8")
    second, first = _read(path)
    assert second.text == "Second\n$x = y$" and second.kind == "lemma"
    assert second.edges == (Link("a", EdgeType.DEPENDENCY, 1.0),)
    assert first.text == "a\nA set." and first.meta == {"lean": ["A"]}
    assert list(read_proofs(path)) == [second, first]


def test_read_atoms_of_several_sets_names_the_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _library(tmp_path, name="one")
    _library(tmp_path, name="two")
    (tmp_path / "plan.json").write_text(json.dumps(BLUEPRINT), encoding="utf-8")
    atoms = _read(tmp_path)
    assert {"one:syl", "two:syl", "plan:b"} <= {atom.id for atom in atoms}
    assert {link.target for atom in atoms for link in atom.edges} == {
        "one:wi",
        "one:ax-mp",
        "two:wi",
        "two:ax-mp",
        "plan:a",
    }
    assert not caplog.records  # the tables are read along, so nothing was left out


def test_read_atoms_tells_of_a_stray_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other_edges.tsv").write_text("0\t1\n", encoding="utf-8")
    (tmp_path / "note.txt").write_text("Something.", encoding="utf-8")
    _read(tmp_path)
    assert "other_edges.tsv" in caplog.text


def test_proof_format_goes_by_content(tmp_path: Path) -> None:
    plain = tmp_path / "x_nodes.jsonl"
    plain.write_text('{"id": 1, "label": "a", "statement": "b", "text": "A memory."}\n', "utf-8")
    assert proof_format(plain) is None
    assert _read(plain)[0].text == "A memory."
    other = _library(tmp_path, name="anything")
    renamed = other.rename(tmp_path / "anything_theorems.jsonl")
    assert proof_format(renamed) == "library" and len(_read(renamed)) == 4


def test_proof_edges_stand_in_the_store(tmp_path: Path) -> None:
    with Memory.open(None, embedder="hashing") as memory:
        memory.add(_read(_library(tmp_path)))
        graph = memory.index.graph
        ends = graph.edge_index[:, graph.type == int(EdgeType.DEPENDENCY)]
    assert {(3, 0), (3, 1)} <= set(map(tuple, ends.T.tolist()))


def _no_table(path: Path) -> None:
    path.with_name("tiny_edges.tsv").unlink()


@pytest.mark.parametrize(
    ("nodes", "edges", "break_it", "message"),
    [
        (STATEMENTS, "7\n", None, "tiny_edges.tsv:1: .*two statements with a tab"),
        (STATEMENTS, "a\tb\n7\t1\n7\t9\n", None, "tiny_edges.tsv:3: .*a statement, got 9"),
        (STATEMENTS, "7\t1\n7\tone\n", None, "tiny_edges.tsv:2: .*numbers of two statements"),
        (STATEMENTS, "7\t7\n", None, "tiny_edges.tsv:1: expected two statements, got 'syl' twice"),
        (STATEMENTS, "7\t1\n1\t2\n2\t7\n", None, r"tiny_edges.tsv:\d: .*circle"),
        (STATEMENTS, "", _no_table, "tiny_nodes.jsonl: .*tiny_edges.tsv, got none"),
        ([*STATEMENTS, STATEMENTS[0]], "7\t1\n", None, "tiny_nodes.jsonl:5: .*second time"),
        ([STATEMENTS[0], {"id": 1}], "", None, "tiny_nodes.jsonl:2: .*expected a statement"),
        ([STATEMENTS[0], "text"], "", None, "tiny_nodes.jsonl:2: .*expected a statement"),
        (
            [STATEMENTS[0], {"id": 1, "label": "x", "statement": 3}],
            "",
            None,
            "tiny_nodes.jsonl:2: statement: expected a string",
        ),
    ],
)
def test_library_says_what_is_wrong_with_its_line(
    tmp_path: Path,
    nodes: Sequence[Any],
    edges: str,
    break_it: Callable[[Path], None] | None,
    message: str,
) -> None:
    path = _library(tmp_path, nodes=nodes, edges=edges)
    if break_it is not None:
        break_it(path)
    with pytest.raises(InputError) as caught:
        _read(path)
    assert re.search(message, str(caught.value))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([["b", "zz"]], "expected the label of a node, got 'zz'"),
        ([["b"]], "edge 0: expected"),
        ([["b", "a"], ["a", "b"]], "circle"),
        ([["a", "a"]], "expected two nodes, got 'a' twice"),
    ],
)
def test_blueprint_says_what_is_wrong(tmp_path: Path, edges: list[list[str]], message: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(BLUEPRINT | {"edges": edges}), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        _read(path)


@pytest.mark.parametrize("label", [None, " ", ["a"], 3])
def test_blueprint_of_a_node_without_a_label(tmp_path: Path, label: object) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"nodes": [{"label": label}], "edges": []}), encoding="utf-8")
    with pytest.raises(InputError, match="node 0: expected a label"):
        _read(path)


def test_set_names_refuses_two_of_one_name(tmp_path: Path) -> None:
    paths = [tmp_path / name / "plan.json" for name in "xy"]
    for path in paths:
        path.parent.mkdir()
        path.write_text(json.dumps(BLUEPRINT), encoding="utf-8")
    with pytest.raises(InputError, match="got 'plan', which is also that of"):
        _read(tmp_path)
    # A plan shares no first part of its name with a table.
    plan = paths[0].rename(tmp_path / "tiny_plan.json")
    atoms = _read(_library(tmp_path), plan)
    assert {"tiny:syl", "tiny_plan:b"} <= {atom.id for atom in atoms}


def test_edges_beside_refuses_two_tables(tmp_path: Path) -> None:
    path = _library(tmp_path)
    (tmp_path / "tiny_edges.tsv").rename(tmp_path / "tiny_a_edges.tsv")
    (tmp_path / "tiny_b_edges.tsv").write_text("7\t1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"tiny_a_edges.tsv, tiny_b_edges.tsv"):
        _read(path)
