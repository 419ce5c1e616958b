"""Modes that follow `Memory.add`, against modes found afresh and figures computed row by row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config, load_config
from graphmem_torch.memory import Memory
from graphmem_torch.memory.index_builder import IndexBuilder, ModeCache
from graphmem_torch.modes import Modes, find_modes
from graphmem_torch.results import RegimeSwitch
from graphmem_torch.store import MemoryStore
from tests.memories import config_of, opened

TOPICS = ["canoe harbour sail", "violin cello bow", "comet telescope orbit", "oven flour dough"]


def notes(count: int, start: int = 0) -> list[Atom]:
    return [
        Atom(f"n{i}", f"{TOPICS[i % 4]} number {i % 9}", time=None if i % 5 == 0 else 1e9 + i)
        for i in range(start, start + count)
    ]


def strange(count: int) -> list[Atom]:
    names = ["kiln", "glaze", "wheel", "clay", "goal", "pitch", "referee", "whistle"]
    return [Atom(f"x{i}", f"{names[i % 8]} {names[3 * i % 8]} {i}") for i in range(count)]


def settings(preset: str, **change: object) -> Config:
    own = {"link.concepts": "pattern", "link.batch_atoms": 50, "modes.count": 4, **change}
    return load_config("spectral", own) if preset == "spectral" else config_of(**own)


def counters(memory: Memory) -> tuple[int, int]:
    stats = memory.stats()
    return stats["modes_found"], stats["modes_updated"]


def current(memory: Memory) -> Modes:
    """The modes as tensors, for a preset whose index keeps them."""
    found = memory.index.modes
    assert found is not None
    return found


def kept_share(path: Path) -> float:
    """What the drift is measured from, as the snapshot keeps it."""
    with MemoryStore.open(path, mode="r") as store:
        snapshot = IndexBuilder().load(store, settings("spectral"))
    assert snapshot is not None
    return snapshot.share


def check(modes: Modes, x: Tensor, time: Tensor) -> None:
    """Size, centroid, variance, latest time and eigenvalues, in numpy, row by row."""
    x, time = x.cpu(), time.cpu()
    data, label = x.double().numpy(), modes.label.cpu().numpy()
    error = 0.0
    for k in range(len(modes)):
        own = label == k
        mean = data[own].mean(0)
        spread = ((data[own] - mean) ** 2).sum(1)
        error += spread.sum()
        assert int(modes.size[k]) == own.sum() > 0
        np.testing.assert_allclose(modes.centroid[k].cpu(), mean, atol=1e-5)
        assert float(modes.variance[k]) == pytest.approx(spread.mean(), abs=1e-5)
        known = time.numpy()[own]
        assert float(modes.latest[k]) == known[~np.isnan(known)].max()
    assert modes.centroid_error == pytest.approx(error / len(data), abs=1e-6)
    gram = np.linalg.eigvalsh(data.T @ data / len(data))[::-1]
    kept = modes.spectrum.values.cpu()
    np.testing.assert_allclose(kept, gram[: len(kept)], atol=1e-6)


@pytest.mark.parametrize("preset", ["spectral", "default"])
def test_mode_cache_updates_over_many_small_adds(preset: str) -> None:
    with opened(config=settings(preset)) as memory:
        memory.add(notes(60))
        memory.themes.list()
        assert counters(memory) == (1, 0)
        for turn in range(7):
            memory.add(notes(5, start=60 + 5 * turn))
            assert sum(mode.size for mode in memory.themes.list()) == 65 + 5 * turn
        assert counters(memory) == (1, 7)
        memory.themes.list()
        assert counters(memory) == (1, 7)
        x, time = memory.index.embeddings, memory.index.time
        cache, config = ModeCache(), memory.config.modes
        for size in range(60, len(x) + 1, 5):
            followed = cache.modes(config, x[:size], time[:size], torch.arange(size))
        assert (cache.found, cache.updated) == (1, 7)
        fresh = find_modes(x, count=4, time=time)
        check(followed, x, time)
        energy = float(x.double().square().sum(1).mean())
        assert followed.centroid_error - fresh.centroid_error <= 0.05 * energy
        same = set(zip(followed.label.tolist(), fresh.label.tolist(), strict=True))
        assert len(same) == len(fresh) == len(followed)  # the same partition
        listed = memory.themes.list()
        assert [mode.size for mode in listed] == followed.size.tolist()
        assert all(len(mode.typical) == 3 for mode in listed)


def test_mode_cache_finds_the_same_modes_in_every_run() -> None:
    """So wide are rows whose leading eigenpairs alone are computed, from a random start."""
    rows = torch.randn(400, 1500, generator=torch.Generator().manual_seed(1))
    x, time = torch.nn.functional.normalize(rows, dim=1), torch.full((400,), torch.nan).double()
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(ModeCache().modes(settings("spectral").modes, x, time, torch.arange(400)))
    one, other = found
    assert torch.equal(one.label, other.label) and torch.equal(one.centroid, other.centroid)
    assert torch.equal(one.spectrum.values, other.spectrum.values)


def test_mode_cache_finds_anew_where_modes_drifted() -> None:
    with opened(config=settings("spectral")) as memory:
        memory.add(notes(40))
        memory.themes.list()
        memory.add(strange(80))
        x, time = memory.index.embeddings, memory.index.time
        assert counters(memory) == (2, 0)
        fresh = find_modes(x, count=4, time=time)
        assert torch.equal(current(memory).label, fresh.label)
        # From then on these are followed.
        memory.add(strange(81))
        assert len(current(memory).label) == 121 and counters(memory) == (2, 1)


def test_mode_cache_finds_anew_by_other_settings() -> None:
    with opened(config=settings("default")) as memory:
        memory.add(notes(40))
        assert len(memory.themes.list()) == 4
        memory._state.config = settings("default", **{"modes.count": 2})
        memory.add(notes(4, start=40))
        assert len(memory.themes.list()) == 2 and counters(memory) == (2, 0)


def test_mode_cache_finds_anew_after_a_backup() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(30, 8, generator=g), dim=1)
    time, node = torch.full((30,), torch.nan).double(), torch.arange(30)
    cache, own = ModeCache(), settings("default").modes
    cache.modes(own, x[:20], time[:20], node[:20])
    other = cache.modes(own, x[10:], time[10:], node[10:])  # the first ten are gone
    assert cache.found == 2 and torch.equal(other.label, find_modes(x[10:], count=4).label)
    fewer = cache.modes(own, x[10:15], time[10:15], node[10:15])
    assert cache.found == 3 and len(fewer.label) == 5


def test_snapshot_that_is_stale_gives_its_modes(tmp_path: Path) -> None:
    with opened(tmp_path, config=settings("spectral")) as memory:
        memory.add(notes(60))
    with opened(tmp_path, config=settings("spectral")) as memory:
        memory.add(notes(10, start=60))
        check(current(memory), memory.index.embeddings, memory.index.time)
        assert counters(memory) == (0, 1)
    share = kept_share(tmp_path)
    # The drift goes on from where it was, however often the memory is opened.
    with opened(tmp_path, config=settings("spectral")) as memory:
        assert len(memory.themes.list()) == 4 and counters(memory) == (0, 0)
        memory.add(notes(10, start=70))
        memory.themes.list()
        assert counters(memory) == (0, 1)
    assert kept_share(tmp_path) == share > 0


def test_snapshot_of_other_rows_or_settings_gives_none(tmp_path: Path) -> None:
    for name, atoms in (("one", notes(60)), ("two", strange(60))):
        with opened(tmp_path / name, config=settings("spectral")) as memory:
            memory.add(atoms)
    snapshot = "snapshot.safetensors"
    (tmp_path / "one" / snapshot).write_bytes((tmp_path / "two" / snapshot).read_bytes())
    with opened(tmp_path / "one", config=settings("spectral")) as memory:
        memory.themes.list()
        assert counters(memory) == (1, 0)
    with opened(tmp_path / "two", config=settings("spectral", **{"modes.count": 3})) as memory:
        memory.add(notes(5))
        assert len(memory.themes.list()) == 3 and counters(memory) == (1, 0)


def test_mode_cache_and_structure_expire_before_a_switch_is_told() -> None:
    segments = [Atom(f"t{i}", f"the {TOPICS[(i // 6) % 3]} of {i}") for i in range(190)]
    with opened(config=settings("default", **{"link.batch_atoms": 7})) as memory:
        seen: list[tuple[int, int, int]] = []

        def note(switch: RegimeSwitch) -> None:
            atoms = sum(mode.size for mode in memory.themes.list())
            structure = memory.graph.structure()
            assert structure is not before
            seen.append((atoms, len(structure.community), counters(memory)[0]))

        memory.add(segments[:150])
        before = memory.graph.structure()
        memory.themes.list()
        assert counters(memory) == (1, 0)
        memory.themes.on_switch(note)
        memory.add(segments[150:])
        assert seen
        # All that was stored by then, and found anew once a batch with switches.
        assert all(atoms == nodes > 150 for atoms, nodes, _ in seen)
        batches = sorted({atoms for atoms, _, _ in seen})
        assert [found - 2 for _, _, found in seen] == [batches.index(atoms) for atoms, _, _ in seen]
