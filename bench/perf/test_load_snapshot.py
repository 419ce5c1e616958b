"""Opening a matrix of embeddings from disk beside other formats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.perf.contest import Call, Race, Size, peer, sizes
from bench.perf.inputs import unit_rows
from graphmem_torch.store.snapshot import load_snapshot, save_snapshot


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for the files; pytest's own keeps the last three, which are large here."""
    with TemporaryDirectory(prefix="graphmem-bench-") as name:
        yield Path(name)


@pytest.mark.parametrize("verify", [False, True], ids=["mapped", "verified"])
@pytest.mark.parametrize("size", sizes("load_snapshot"), ids=str)
def test_load_snapshot(race: Race, size: Size, folder: Path, verify: bool) -> None:
    """Embeddings from the snapshot, mapped or read whole and verified."""
    x = unit_rows(size["n"], size["d"])
    save_snapshot(folder, {"x": x}, {}, 1)
    np.save(folder / "x.npy", x.numpy())
    torch.save(x, folder / "x.pt")

    def ours() -> Tensor:
        found = load_snapshot(folder, 1, verify=verify)
        assert found is not None
        return found[0]["x"]

    def read_whole() -> int:
        return len((folder / "x.npy").read_bytes())

    peers: dict[str, Call | str] = {
        "numpy mmap": lambda: torch.from_numpy(np.load(folder / "x.npy", mmap_mode="c")),
        "torch.load": lambda: torch.load(folder / "x.pt", weights_only=True),
        "parquet": "not installed",
    }
    if arrow := peer("pyarrow"):
        parquet = peer("pyarrow.parquet")
        column = arrow.FixedSizeListArray.from_arrays(arrow.array(x.numpy().ravel()), size["d"])
        parquet.write_table(arrow.table({"x": column}), folder / "x.parquet")

        def by_parquet() -> Tensor:
            read = parquet.read_table(folder / "x.parquet").column("x").combine_chunks()
            return torch.from_numpy(read.flatten().to_numpy().reshape(-1, size["d"]).copy())

        peers["parquet"] = by_parquet
    race(
        ours=ours,
        peers=peers,
        floors={"reading the bytes": read_whole},
        accuracy=lambda result: float((result - x).abs().max()),
        measure="largest error",
        at_most=0.0,
        against="reading the bytes" if verify else "parquet",
        target=None if verify else 0.01,
    )
