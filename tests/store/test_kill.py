"""Killed or interrupted at any instant, the store keeps what it acknowledged and opens clean."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from graphmem_torch.store import Batch, MemoryStore
from tests.processes import Launch

KILLING = Path(__file__).with_name("killing.py")


def test_sigkill_at_random_instants(launch: Launch, tmp_path: Path) -> None:
    command = launch(KILLING, tmp_path / "stores", "--kills", "8")
    assert command.wait() == 0, command.told()
    tally = json.loads(command.out.read_text())
    assert tally["kills"] == 8
    assert tally["acknowledged"] > 0
    bad = {name: tally[name] for name in ("lost", "halved", "unopened", "unsound")}
    assert bad == {"lost": 0, "halved": 0, "unopened": 0, "unsound": 0}, command.told()


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals need the main thread"
)
def test_interrupts_at_random_instants(tmp_path: Path, make_batch: Callable[..., Batch]) -> None:
    """Ctrl-C, raised by a timer anywhere inside `append`, leaves whole batches only."""
    size = 40
    instants = random.Random(0)
    interrupted = 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with MemoryStore.open(tmp_path) as store:
            while interrupted < 20:
                start = store.next_node
                batch = make_batch(size, start)
                with contextlib.suppress(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, instants.uniform(1e-5, 8e-3))
                    store.append(batch)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    assert store.next_node == start + size
                    continue
                interrupted += 1
                # The commit may have gone through just before the interrupt.
                assert store.next_node in (start, start + size)
                assert store.num_nodes == store.next_node
            assert store.check() == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with MemoryStore.open(tmp_path) as store:
        assert store.check() == []


def test_interrupt_in_the_middle_rolls_back(
    tmp_path: Path, make_batch: Callable[..., Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deterministic: after the atoms are in, before the vectors are."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with MemoryStore.open(tmp_path) as store:
        store.append(make_batch(3, 0))
        state = store.state
        with monkeypatch.context() as patch:
            patch.setattr("graphmem_torch.store.store.write_blocks", interrupt)
            with pytest.raises(KeyboardInterrupt):
                store.append(make_batch(3, 3))
        assert store.state == state
        assert store.known(["a3"]) == {}
        store.append(make_batch(3, 3))
        assert store.next_node == 6
        assert store.check() == []
