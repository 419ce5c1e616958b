"""Files of vectors: read as numpy and safetensors read them, and refused by file and row."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from graphmem_torch.errors import InputError, MissingPackageError
from graphmem_torch.readers.vector_files import VectorFile


def unit(count: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def tokens(count: int, width: int = 4, seed: int = 0) -> dict[str, torch.Tensor]:
    draw = np.random.default_rng(seed)
    counts = draw.integers(0, 4, count)
    total = int(counts.sum())
    return {
        "tokens": torch.from_numpy(draw.integers(-127, 128, (total, width)).astype(np.int8)),
        "pieces": torch.from_numpy(draw.integers(0, 99, total).astype(np.int32)),
        "offsets": torch.from_numpy(np.concatenate([[0], np.cumsum(counts)])),
    }


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_kind_is_read_as_torch_reads_it(tmp_path: Path, kind: torch.dtype) -> None:
    rows = torch.from_numpy(unit(40)).to(kind)
    save_file({"embeddings": rows}, tmp_path / "v.safetensors")
    raw = rows.view(torch.int16).numpy().view("V2") if kind == torch.bfloat16 else rows.numpy()
    np.save(tmp_path / "v.npy", raw)
    pick = [3, 39, 0, 3, 4, 5, 38]
    for name in ("v.safetensors", "v.npy"):
        file = VectorFile(tmp_path / name)
        assert (file.count, file.dim, file.token_dim, file.ids) == (40, 8, 0, None)
        assert torch.equal(file.rows(pick).pooled, rows[pick].float())
        assert file.rows(pick).pooled.dtype == torch.float32
        assert file.rows([]).pooled.shape == (0, 8)
        file.close()


def test_numbers_of_another_byte_order_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", unit(5).astype(">f4"))
    assert np.array_equal(VectorFile(tmp_path / "v.npy").rows(range(5)).pooled.numpy(), unit(5))


@settings(max_examples=16, deadline=None)
@given(st.integers(1, 30), st.lists(st.integers(0, 29), max_size=12), st.integers(0, 9))
def test_token_vectors_are_picked_as_a_loop_picks_them(
    tmp_path_factory: pytest.TempPathFactory, count: int, pick: list[int], seed: int
) -> None:
    path = tmp_path_factory.mktemp("v") / "v.safetensors"
    held = tokens(count, seed=seed)
    save_file({"embeddings": torch.from_numpy(unit(count)), **held}, path)
    rows = [row % count for row in pick]
    found = VectorFile(path).rows(rows)
    spans = [held["offsets"][row : row + 2].tolist() for row in rows]
    for name, own in (("tokens", found.tokens), ("pieces", found.pieces)):
        parts = [held[name][a:b] for a, b in spans]
        assert own is not None
        assert torch.equal(own, torch.cat([held[name][:0], *parts]))
    ends = np.cumsum([0, *(b - a for a, b in spans)]).tolist()
    assert found.offsets is not None and found.offsets.tolist() == ends


def test_ids_are_those_of_the_lines_beside_it(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", unit(3))
    (tmp_path / "v.ids.txt").write_text("b\na\nein Schlüssel\n", encoding="utf-8")
    assert VectorFile(tmp_path / "v.npy").ids == {"b": 0, "a": 1, "ein Schlüssel": 2}


def test_lengths_are_normalised_on_request_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", unit(6) * 7)
    with pytest.raises(InputError, match=r"v\.npy, row 0: .*length 7.*5 more rows.*normalise"):
        VectorFile(tmp_path / "v.npy")
    found = VectorFile(tmp_path / "v.npy", normalise=True).rows(range(6)).pooled.numpy()
    assert np.allclose(found, unit(6), atol=1e-6)


def faulty(row: int, value: Any) -> Callable[[np.ndarray], np.ndarray]:
    def change(rows: np.ndarray) -> np.ndarray:
        rows[row] = value
        return rows

    return change


ROWS = {
    "NaN at the end": (faulty(-1, np.nan), 9, "finite"),
    "infinity": (faulty(4, np.inf), 4, "finite"),
    "zeros first": (faulty(0, 0.0), 0, "zeros"),
    "length 2": (faulty(3, [2, 0, 0, 0, 0, 0, 0, 0]), 3, "length 2"),
    "length 1.02": (faulty(3, [1.02, 0, 0, 0, 0, 0, 0, 0]), 3, r"length 1\.02"),
    "tiny": (faulty(5, 1e-30), 5, "length"),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("half", [False, True])
def test_unusable_rows_are_named(tmp_path: Path, name: str, half: bool) -> None:
    change, row, why = ROWS[name]
    rows = change(unit(10)).astype(np.float16 if half else np.float32)
    why = "zeros" if half and name == "tiny" else why
    np.save(tmp_path / "v.npy", rows)
    with pytest.raises(InputError, match=rf"v\.npy, row {row}: expected .*{why}"):
        VectorFile(tmp_path / "v.npy")


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_rows_without_a_direction_are_refused_with_normalise_too(
    tmp_path: Path, value: float
) -> None:
    np.save(tmp_path / "v.npy", faulty(2, value)(unit(4)))
    with pytest.raises(InputError, match="row 2: expected"):
        VectorFile(tmp_path / "v.npy", normalise=True)


def text(name: str, content: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return make


def array(name: str, values: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        np.save(folder / name, values)
        return folder / name

    return make


def tensors(**named: torch.Tensor) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        save_file(named, folder / "v.safetensors")
        return folder / "v.safetensors"

    return make


def header(content: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        data = len(content).to_bytes(8, "little") + content.encode() + bytes(64)
        (folder / "v.safetensors").write_bytes(data)
        return folder / "v.safetensors"

    return make


def cut(make: Callable[[Path], Path], share: float) -> Callable[[Path], Path]:
    def shorter(folder: Path) -> Path:
        path = make(folder)
        data = path.read_bytes()
        path.write_bytes(data[: int(share * len(data))])
        return path

    return shorter


def with_ids(*ids: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "v.ids.txt").write_text("".join(f"{name}\n" for name in ids))
        return array("v.npy", unit(3))(folder)

    return make


ROW = torch.from_numpy(unit(6))
FILES = {
    "codes": (array("v.npy", unit(4).astype(np.int8)), r"expected \[N, d\] of float.*int8"),
    "one row alone": (array("v.npy", unit(4)[0]), r"expected \[N, d\]"),
    "three axes": (array("v.npy", unit(4)[None]), r"expected \[N, d\]"),
    "by columns": (array("v.npy", np.asfortranarray(unit(4))), "Fortran"),
    "objects": (array("v.npy", np.array([[1, "a"]], dtype=object)), "expected"),
    "cut in the header": (cut(array("v.npy", unit(4)), 0.2), "expected an array"),
    "cut in a row": (cut(array("v.npy", unit(40)), 0.9), r"cut in row 3\d"),
    "nothing": (text("v.npy", ""), "expected an array"),
    "text": (text("v.npy", "0.1 0.2"), "expected an array"),
    "another suffix": (text("v.pt", "x"), r"ends in \.npy"),
    "no suffix": (text("v", "x"), r"ends in \.npy"),
    "an archive": (text("v.npz", "x"), r"ends in \.npy"),
    "a folder": (lambda folder: (folder / "a.npy").mkdir() or folder / "a.npy", "expected a file"),
    "missing": (lambda folder: array("vec.npy", unit(1))(folder).with_name("vex.npy"), "did you"),
    "header of tensors": (cut(tensors(embeddings=ROW), 0.1), "expected a safetensors file"),
    "tensors cut": (cut(tensors(embeddings=ROW), 0.9), "cut in row"),
    "two matrices": (tensors(a=ROW, b=ROW + 0), "expected a tensor 'embeddings'"),
    "integers": (tensors(embeddings=torch.ones(3, 4, dtype=torch.int32)), "expected a tensor"),
    "offsets too few": (
        tensors(embeddings=ROW, **{**tokens(6), "offsets": tokens(6)["offsets"][:-1]}),
        r"offsets \[7\]",
    ),
    "offsets descend": (
        tensors(embeddings=ROW, **{**tokens(6), "offsets": tokens(6)["offsets"].flip(0)}),
        "ascending",
    ),
    "tokens without pieces": (tensors(embeddings=ROW, tokens=tokens(6)["tokens"]), "pieces"),
    "wide tokens": (
        tensors(embeddings=ROW, **{**tokens(6), "tokens": tokens(6)["tokens"].float()}),
        r"tokens \[T, m\] int8",
    ),
    "a piece below 0": (
        tensors(embeddings=ROW, **{**tokens(6), "pieces": tokens(6)["pieces"] - 200}),
        r"row \d: pieces: expected numbers",
    ),
    "tokens without numbers": (
        tensors(embeddings=ROW, **{**tokens(6), "tokens": tokens(6)["tokens"][:, :0]}),
        "width 0",
    ),
    "before its beginning": (
        header('{"embeddings": {"dtype": "F32", "shape": [2, 8], "data_offsets": [-128, -64]}}'),
        "sizes that the header says",
    ),
    "an id too few": (with_ids("a", "b"), r"ids\.txt: expected 3 ids, .*got 2"),
    "an id twice": (with_ids("a", "b", "a"), r"ids\.txt, row 2: .*'a' again, which row 0"),
    "an empty id": (with_ids("a", "", "c"), r"ids\.txt, row 1: .*none"),
}


@pytest.mark.parametrize("name", FILES)
def test_unusable_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    make, why = FILES[name]
    path = make(tmp_path)
    with pytest.raises(InputError, match=why) as caught:
        VectorFile(path)
    assert str(tmp_path) in str(caught.value)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.npy"
    np.save(path, unit(50))
    held = VectorFile(path)
    held.rows([0])
    np.save(path, unit(50, seed=1))
    with pytest.raises(InputError, match=r"v\.npy: expected a file that stays as it is"):
        held.rows([1])
    other = VectorFile(path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InputError, match="stays as it is"):
        other.rows([49])


def test_parquet_asks_for_its_package(tmp_path: Path) -> None:
    (tmp_path / "v.parquet").write_bytes(b"PAR1")
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        with pytest.raises(MissingPackageError, match=r"graphmem-torch\[parquet\]"):
            VectorFile(tmp_path / "v.parquet")
    else:
        with pytest.raises(InputError, match="Parquet"):
            VectorFile(tmp_path / "v.parquet")


def test_parquet_is_read_as_pyarrow_reads_it(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows, held = unit(20), tokens(20)
    ends = held["offsets"].tolist()
    spans = list(pairwise(ends))
    columns = {
        "id": [f"m{i}" for i in range(20)],
        "tokens": [held["tokens"][a:b].tolist() for a, b in spans],
        "pieces": [held["pieces"][a:b].tolist() for a, b in spans],
    }
    kinds = {
        "lists": pyarrow.array(list(rows), pyarrow.list_(pyarrow.float32())),
        "fixed": pyarrow.array(list(rows), pyarrow.list_(pyarrow.float32(), 8)),
        "half": pyarrow.array(list(rows.astype(np.float16)), pyarrow.list_(pyarrow.float16())),
    }
    for name, embedding in kinds.items():
        path = tmp_path / f"{name}.parquet"
        parquet.write_table(
            pyarrow.table({"embedding": embedding, **columns}), path, row_group_size=7
        )
        file = VectorFile(path)
        assert file.ids == {f"m{i}": i for i in range(20)}
        found = file.rows([19, 2, 7])
        assert np.allclose(found.pooled.numpy(), rows[[19, 2, 7]], atol=1e-3 * (name == "half"))
        picked = torch.cat([held["tokens"][a:b] for a, b in (spans[i] for i in (19, 2, 7))])
        assert found.tokens is not None and torch.equal(found.tokens, picked)


@pytest.mark.parametrize("alone", ["tokens", "pieces"])
@pytest.mark.parametrize("named", [True, False])
def test_tokens_and_pieces_of_parquet_come_together(
    tmp_path: Path, alone: str, named: bool
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    other = {"tokens": [[[1, 2]], [[3, 4]]], "pieces": [[5], [6]]}[alone]
    columns = {"embedding": unit(2).tolist(), alone: other} | ({"id": ["a", "b"]} if named else {})
    parquet.write_table(pyarrow.table(columns), tmp_path / "v.parquet")
    with pytest.raises(InputError, match=f"'tokens' and 'pieces' together, got '{alone}' alone"):
        VectorFile(tmp_path / "v.parquet")


ONE, TWO = unit(2).tolist()
OWN = [[1, 2], [3, 4]], [[5, 6]]
COLUMNS: dict[str, tuple[dict[str, list[Any]], str]] = {
    "ragged": ({"embedding": [ONE, TWO[:5]]}, "row 1: embedding: expected 8"),
    "missing": ({"embedding": [ONE, None]}, "row 1: embedding: .*got none"),
    "integers": ({"embedding": [[1, 0], [0, 1]]}, "floating-point numbers, got int64"),
    "texts": ({"embedding": ["a", "b"]}, "lists of numbers, got string"),
    "no id": ({"embedding": [ONE, TWO], "id": ["a", None]}, "row 1: id: .*got none"),
    "tokens too large": ({"tokens": [[[1, 2], [3, 4]], [[5, 600]]]}, "row 1: tokens: .*-128 to"),
    "tokens in fractions": (
        {"tokens": [[[0.1, 0.2], [0.3, 0.4]], [[0.5, 0.6]]]},
        "row 0: tokens: expected integers",
    ),
    "tokens of two widths": ({"tokens": [[[1, 2], [3, 4]], [[5, 6, 7]]]}, "row 1: .*width 2"),
    "tokens in one list": ({"tokens": [[1, 2], [5]]}, "tokens: expected lists of numbers"),
    "a piece too few": ({"pieces": [[1], [3]]}, "row 0: tokens: .*each piece"),
    "pieces too large": ({"pieces": [[1, 2], [2**40]]}, "row 1: pieces: expected integers"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_unusable_columns_are_refused_by_row(tmp_path: Path, name: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    given, why = COLUMNS[name]
    whole = {"embedding": [ONE, TWO], "tokens": [*OWN], "pieces": [[1, 2], [3]], **given}
    parquet.write_table(pyarrow.table(whole), tmp_path / "v.parquet")
    with pytest.raises(InputError, match=why):
        VectorFile(tmp_path / "v.parquet")
