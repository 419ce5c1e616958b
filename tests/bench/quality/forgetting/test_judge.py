"""The judge of forgetting, and remains left on purpose that it must find."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from graphmem_torch.quality.forgetting.judge import found_in, judge
from tests.bench.quality.made import of_sizes


def test_judge_of_a_small_memory(texts: Path) -> None:
    found = judge(of_sizes(texts, 40), groups=((1, 2), (3, 1), (30, 1)), session=4, questions=3)
    json.dumps(found.report, allow_nan=False)
    (part,) = found.report["sizes"]
    assert part["atoms"] == 40 and part["forgotten"] == 2 + 3 + 4 and part["problems"] == 0
    assert list(part["cpu_ms_per_atom"]) == ["1", "3", "session"]
    traces = part["traces"]
    assert {kind: each["found"] for kind, each in traces.items()} == dict.fromkeys(traces, 0)
    asked = {kind: each["asked"] for kind, each in traces.items()}
    assert (asked["id"], asked["speaker"], asked["note"], asked["session"]) == (9, 9, 5, 1)
    assert min(asked[kind] for kind in ("text", "embedding", "token vector")) > 0
    assert part["scores"]["worst"] < 1e-3
    assert part["receipts"] == {
        "verified": {"n": 4, "right": 4},
        "refused": {"n": 44, "right": 44},
    }
    assert "by session" in found.table and "44 of 44 false ones" in found.table


def test_judge_finds_what_is_left(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget = Memory.forget

    def leaving(memory: Memory, ids: str | None = None, **named: str) -> object:
        atoms = memory.get([ids] if isinstance(ids, str) else list(ids or ()))
        vectors = memory.store.vectors([n for n, _ in memory.store.known(ids or ()).values()])
        assert memory.store.path is not None
        left = memory.store.path / "left"
        with left.open("ab") as file:
            for atom, row in zip(atoms, vectors.embeddings, strict=True):
                file.write(f"{atom.id} {atom.text}".encode() + row.numpy().tobytes())
        return forget(memory, ids, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Memory, "forget", leaving)
    (part,) = judge(of_sizes(texts, 24), groups=((2, 1),), session=4, questions=1).report["sizes"]
    found = {kind: each["found"] for kind, each in part["traces"].items()}
    assert found["id"] == found["embedding"] == 2 and found["speaker"] == found["note"] == 0


def test_found_in_against_a_plain_search(tmp_path: Path) -> None:
    data = np.random.default_rng(3).integers(0, 3, 1000, dtype=np.uint8).tobytes()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(data)
    (tmp_path / "empty").touch()
    (tmp_path / "short").write_bytes(b"abc")
    needles = [data[i : i + n] for i in range(0, 990, 9) for n in (8, 17, 60)]
    needles += [bytes([2, 1]) * n for n in range(4, 9)] + [data[-8:], data[:8]]
    found = found_in(tmp_path, {"one": needles, "none": []}, tile=32)
    assert found == {"one": {n for n in needles if n in data}, "none": set()}


def test_sizes_that_are_too_small(texts: Path) -> None:
    with pytest.raises(
        InputError, match="sizes: expected numbers of atoms from 200 on, got 1000 50"
    ):
        judge(of_sizes(texts, 1000, 50))
