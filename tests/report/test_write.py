from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.cli.main import main
from graphmem_torch.errors import InputError
from tests.memories import opened, turns
from tests.report.pages import Page, page_of, unpacked

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> {{js}} \u2028 & \"'<!--"

KIND = "</script><b onclick=alert(3)>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    with opened() as memory:
        memory.add(turns(80))  # enough for the detector of switches to read some
        memory.graph.connect("a1", "a30", "contradicts")
        return page_of(memory, tmp_path_factory.mktemp("report"))


def test_page_asks_for_nothing(page: Page) -> None:
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert "src" not in attributes and "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    code = "".join(text for _, _, text in page.raw if not text.startswith("{"))
    for word in ("fetch(", "XMLHttpRequest", "import(", "@import", "url(", "http:", "https:"):
        assert word not in code
    (policy,) = [a["content"] for t, a in page.tags if a.get("http-equiv")]
    assert policy is not None and policy.startswith("default-src 'none';")


def test_page_tells_of_everything(page: Page) -> None:
    headings = ("The graph", "Communities", "Bridges", "Frontiers", "Drift and regime switches")
    headings += ("Spectrum of the memory kernel", "Spectrum of the graph", "Modes", "The store")
    for heading in headings:
        assert heading in page.text
    assert not re.search(r"\{\{\w+\}\}", page.source)
    assert not re.search(r"\b(nan|inf|None|NaN)\b", page.text)


def test_page_identifiers_are_unique_and_references_lead_somewhere(page: Page) -> None:
    names = [a["id"] for _, a in page.tags if "id" in a]
    assert len(names) == len(set(names))
    for _, attributes in page.tags:
        for key in ("aria-labelledby", "aria-describedby"):
            assert set((attributes.get(key) or "").split()) <= set(names)
        if (attributes.get("href") or "").startswith("#"):
            assert attributes["href"][1:] in names  # type: ignore[index]
    # Every button that leads to a memory leads to one that is drawn.
    led = [int(a["data-node"] or -1) for _, a in page.tags if "data-node" in a]
    assert led and all(0 <= node < page.data["nodes"] for node in led)


def test_page_charts_have_titles_axes_and_descriptions(page: Page) -> None:
    charts = [a for t, a in page.tags if t == "svg" and a.get("role") == "img"]
    assert len(charts) >= 5
    assert page.source.count('class="middle name"') == 2 * len(charts)
    assert sum(t == "desc" for t, _ in page.tags) == len(charts)


def test_page_texts_cannot_become_markup(tmp_path: Path) -> None:
    with opened() as memory:
        atoms = [Atom(f"x{i}{EVIL}", f"{EVIL} {i}", session=EVIL, kind=KIND) for i in range(12)]
        memory.add(atoms)
        found = page_of(memory, tmp_path)
    # Two scripts, as the template has them, and no element that came from a text.
    assert [t for t, _ in found.tags].count("script") == 2
    assert not [t for t, _ in found.tags if t == "img"]
    assert not any(name.startswith("on") for _, a in found.tags for name in a)
    assert "alert(1)" in found.data["texts"][0] and "{{js}}" in found.data["texts"][0]
    assert found.data["sessions"][0] == EVIL and found.data["kinds"][0] == KIND
    (raw,) = [text for _, a, text in found.raw if a.get("id") == "data"]
    assert not set("<>&\u2028") & set(raw)


def test_page_of_an_empty_store(tmp_path: Path) -> None:
    with opened() as memory:
        found = page_of(memory, tmp_path)
    assert "The store is empty" in found.text
    assert found.data == {"nodes": 0}


@pytest.mark.parametrize("count", [1, 3])
def test_page_of_very_few_memories(tmp_path: Path, count: int) -> None:
    with opened() as memory:
        memory.add([Atom(f"a{i}", f"word{i} thing{i}") for i in range(count)])
        found = page_of(memory, tmp_path)
    assert found.data["nodes"] == count
    assert "too few for the detector" in found.text


def test_page_without_edges_and_times(tmp_path: Path) -> None:
    with opened(config=_bare()) as memory:
        memory.add([Atom(f"a{i}", f"alpha{i} beta{i} gamma{i}") for i in range(9)])
        assert memory.store.stats()["edges"] == 0
        found = page_of(memory, tmp_path)
    assert found.text.count("The memories have no edges yet.") >= 3
    assert "time" not in found.data and found.data["edges"]["count"] == 0
    assert len(found.data["communities"]) == 9


def test_page_of_equal_memories(tmp_path: Path) -> None:
    with opened() as memory:
        memory.add([Atom(f"a{i}", "the same canoe") for i in range(40)])
        found = page_of(memory, tmp_path)
    assert found.data["texts"] == ["the same canoe"]
    assert set(unpacked(found.data["text_of"], "<u4").tolist()) == {0}


def test_page_of_contradictions_only(tmp_path: Path) -> None:
    links = {i: (Link(f"a{(i + 1) % 3}", EdgeType.CONTRADICTS),) for i in range(3)}
    with opened(config=_bare()) as memory:
        memory.add([Atom(f"a{i}", f"claim{i}", edges=links[i]) for i in range(3)])
        found = page_of(memory, tmp_path)
    (kind,) = found.data["edge_types"]
    assert kind["negative"] and kind["name"] == "contradicts"
    assert "Contradictions that no split into two camps resolves" in found.text


def test_write_report_does_not_change_the_memory(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as memory:
        memory.add(turns(12))
    with opened(tmp_path / "store", mode="r") as memory:
        before = memory.store.state
        report = memory.report(tmp_path / "a.html", iterations=10)
        assert memory.store.state == before
    assert Path(report.path).stat().st_size == report.bytes
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".partial"] == []


def test_write_report_keeps_a_link_and_after_a_failure_the_old_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, link = tmp_path / "old.html", tmp_path / "link.html"
    old.write_text("old")
    link.symlink_to(old)
    with opened() as memory:
        memory.add(turns(6))
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", _fails)
            with pytest.raises(OSError, match="No space"):
                memory.report(link, iterations=10)
        assert old.read_text() == "old"
        assert sorted(p.name for p in tmp_path.iterdir()) == ["link.html", "old.html"]
        memory.report(link, iterations=10)
    assert link.is_symlink() and old.read_text().startswith("<!DOCTYPE")


def test_write_report_to_a_device_does_not_replace_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # holds the pipe open at both ends
    try:
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
        with opened() as memory:
            memory.add(turns(3))
            memory.report(pipe, iterations=10)
        assert pipe.is_fifo()
        assert os.read(reader, 15) == b"<!DOCTYPE html>"
    finally:
        os.close(reader)


def _fails(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_page_of_the_same_memory_is_the_same_picture(tmp_path: Path) -> None:
    with opened() as memory:
        memory.add(turns(24))
        first, second = page_of(memory, tmp_path).data, page_of(memory, tmp_path).data
    assert first == second


def test_write_report_refuses_bad_paths_and_limits(tmp_path: Path) -> None:
    with opened() as memory:
        with pytest.raises(InputError, match="got the folder"):
            memory.report(tmp_path)
        with pytest.raises(InputError, match="in a folder that exists"):
            memory.report(tmp_path / "none" / "a.html")
        for limit in (0, -3, True, 1.5, 10**9):
            with pytest.raises(InputError, match="limit: expected"):
                memory.report(tmp_path / "a.html", limit=limit)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_report_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with opened(tmp_path / "store") as memory:
        memory.add(turns(12))
    out = tmp_path / "page.html"
    asked = ["store", "report", "--store", str(tmp_path / "store"), "--out", str(out)]
    assert main([*asked, "--device", "cpu", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == str(out) and told["bytes"] == out.stat().st_size
    assert told["nodes"] == told["drawn_nodes"] == 12
    assert main(asked) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 12 of 12 nodes, ")
    assert main(["store", "report", "--store", str(tmp_path / "no"), "--out", str(out)]) == 2


def test_report_of_questions(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    with opened() as memory:
        memory.add(turns(12))
        memory.report(out, questions=["Where is the canoe?", EVIL, "Где теперь живет Петр?"])
        source = out.read_text(encoding="utf-8")
        assert "Where is the canoe? (confidence 0." in source and "same word: canoe" in source
        assert "scores are rough estimates" in source and "(confidence 0.00, cannot tell)" in source
        assert "<script>alert(1)" not in source and "<img src=x" not in source
        with pytest.raises(InputError, match="question: expected a question"):
            memory.report(out, questions=[" "])


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to read JavaScript")
def test_page_script_is_valid(page: Page, tmp_path: Path) -> None:
    (code,) = [text for t, a, text in page.raw if t == "script" and not a]
    path = tmp_path / "page.js"
    path.write_text(code, encoding="utf-8")
    done = subprocess.run(["node", "--check", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _bare():
    from tests.memories import config_of

    return config_of(**{"link.similarity_k": 0, "link.concepts": "none"})
