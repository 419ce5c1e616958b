"""Encodings on disk: the same vectors, made once, whatever happens to the file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from graphmem_torch.quality.common.encoder import CachingEmbedder, load_encoder
from graphmem_torch.quality.common.encodings import Encodings
from graphmem_torch.quality.request import Request
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from graphmem_torch.text.models import cache_folder
from tests.processes import Launch

TEXTS = ["the red boat", "a comet", "of the", "Pippo ran away", "half a pair \ud800"]


class _Counting(HashingEmbedder):
    """An encoder that tells what it was asked for."""

    def __init__(self, token_dim: int = 8) -> None:
        super().__init__(16, token_dim)
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        self.seen += texts
        return super().encode(texts, progress=progress)


def _encode(folder: Path, texts: Sequence[str], token_dim: int = 8) -> tuple[Encoded, list[str]]:
    """Return the encodings of a run, and the texts it had to encode."""
    inner = _Counting(token_dim)
    embedder = CachingEmbedder(inner, Encodings(folder, inner))
    with embedder.caching():
        return embedder.encode(texts), inner.seen


def _file(folder: Path) -> Path:
    (path,) = folder.glob("*.sqlite")
    return path


def _same(got: Encoded, token_dim: int = 8) -> bool:
    expected = HashingEmbedder(16, token_dim).encode(TEXTS)
    parts = ("pooled", "tokens", "pieces", "offsets") if token_dim else ("pooled",)
    return all(torch.equal(getattr(got, name), getattr(expected, name)) for name in parts)


@pytest.mark.parametrize("token_dim", [0, 8])
def test_a_later_run_finds_what_an_earlier_one_encoded(tmp_path: Path, token_dim: int) -> None:
    first, seen = _encode(tmp_path / "deep" / "er", TEXTS, token_dim)
    assert _same(first, token_dim) and sorted(seen) == sorted(TEXTS)
    again, seen = _encode(tmp_path / "deep" / "er", [*TEXTS], token_dim)
    assert _same(again, token_dim) and seen == []
    _, seen = _encode(tmp_path / "deep" / "er", [TEXTS[0], "a new one"], token_dim)
    assert seen == ["a new one"]


def test_encoders_of_other_fingerprints_do_not_share(tmp_path: Path) -> None:
    _encode(tmp_path, TEXTS)
    _, seen = _encode(tmp_path, TEXTS, token_dim=4)
    assert len(seen) == len(TEXTS) and len(list(tmp_path.glob("*.sqlite"))) == 2


@pytest.mark.parametrize("damage", ["nonsense", "cut", "empty", "inside"])
def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: str) -> None:
    _encode(tmp_path, TEXTS)
    path = _file(tmp_path)
    content = path.read_bytes()
    where = content.index(HashingEmbedder(16, 8).encode(TEXTS[:1]).pooled.numpy().tobytes())
    broken = {
        "nonsense": b"what is this" * 500,
        "cut": content[: len(content) // 2],
        "empty": b"",
        "inside": content[:where] + b"\1\2\3" + content[where + 3 :],
    }
    path.write_bytes(broken[damage])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _same(_encode(tmp_path, TEXTS)[0])
        again, seen = _encode(tmp_path, TEXTS)
    assert _same(again) and seen == []


def test_a_folder_that_cannot_be_used_costs_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="expected a file for encodings"):
        got, seen = _encode(tmp_path / "file", TEXTS)
    assert _same(got) and len(seen) == len(TEXTS)


_FILL = """
import sys
from pathlib import Path
from graphmem_torch.quality.common.encoder import CachingEmbedder
from graphmem_torch.quality.common.encodings import Encodings
from graphmem_torch.text.models import cache_folder
from graphmem_torch.text.embedder import HashingEmbedder

folder, part = Path(sys.argv[1]), sys.argv[2]
for turn in range(10):
    inner = HashingEmbedder(16, 8)
    embedder = CachingEmbedder(inner, Encodings(folder, inner))
    with embedder.caching():
        embedder.encode([f"text {part} {turn} {i}" for i in range(20)])
"""


def test_two_processes_share_a_folder(tmp_path: Path, launch: Launch) -> None:
    program = tmp_path / "fill.py"
    program.write_text(_FILL)
    fillers = [launch(program, tmp_path / "cache", str(part)) for part in range(2)]
    assert [filler.wait() for filler in fillers] == [0, 0], fillers[0].told()
    asked = [
        f"text {part} {turn} {i}" for part in range(2) for turn in range(10) for i in range(20)
    ]
    assert _encode(tmp_path / "cache", asked)[1] == []


def test_cache_folder_is_named_by_option_variable_or_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.delenv("GRAPHMEM_CACHE", raising=False)
    assert cache_folder() == tmp_path / "user" / "graphmem"
    monkeypatch.setenv("GRAPHMEM_CACHE", str(tmp_path / "named"))
    assert cache_folder() == tmp_path / "named"
    for cache, folder in ((None, "named"), (tmp_path / "given", "given")):
        encoder = load_encoder(Request(data=tmp_path, embedder=_Other(16, 8), cache=cache))
        with encoder.caching():
            encoder.encode(TEXTS)
        assert _file(tmp_path / folder).name.startswith("other-")
    quick = load_encoder(Request(data=tmp_path, embedder="hashing", cache=tmp_path / "none"))
    with quick.caching():
        quick.encode(TEXTS)
    assert not (tmp_path / "none").exists()


class _Other:
    """An encoder of somebody else's."""

    def __init__(self, dim: int, token_dim: int) -> None:
        self._inner = HashingEmbedder(dim, token_dim)
        self.name, self.fingerprint = "other", "other:1"
        self.dim, self.token_dim = dim, token_dim
        self.num_pieces, self.window = self._inner.num_pieces, self._inner.window
        self.tokenizer = self._inner.tokenizer

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        return self._inner.encode(texts, progress=progress)
