"""An index that followed its store against one that is built from the store at once."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.histories import differences
from graphmem_torch.atoms import Atom, EdgeType
from graphmem_torch.config import load_config
from graphmem_torch.memory import Memory
from graphmem_torch.memory.index_builder import IndexBuilder
from tests.memories import QUESTIONS, config_of, opened, turns

TEXTS = ["A kiln of clay", "Canoe Club\nIt rows on the lake with Ada Lovelace", "Is it so?", "kiln"]


def atom(i: int) -> Atom:
    speaker, session = (None, "Ada", "Zoë")[i % 3], (None, f"t{i % 4}", f"u{i % 4}")[i % 3]
    text = f"{TEXTS[i % 4]} {'' if i % 5 == 0 else f'number {i} of May 2023'}"
    return Atom(f"n{i}", text, speaker=speaker, session=session, time=[None, 1.6e9 + i][i % 2])


def check(memory: Memory) -> None:
    """Every tensor and every name is that of an index which nobody followed."""
    assert differences(memory) == []
    assert memory._state.builder.rank_error < 1e-2


def follower(folder: str) -> Memory:
    """Of few dense candidates, with a PageRank that is carried along."""
    ranked = {**load_config("default").rank.weights, "pagerank": 0.1}
    config = config_of(**{"rank.exhaustive_up_to": 5, "rank.weights": ranked})
    return opened(Path(folder), config=config)


KINDS = ["one", "many", "late", "connect", "disconnect", "cut", "delete"]
KINDS += ["ask", "reopen", "die", "nothing"]
steps = st.lists(st.sampled_from(KINDS), max_size=12)


@settings(max_examples=settings.default.max_examples // 4)
@given(steps, st.booleans())
def test_columns_follow_every_history(history: list[str], starts_empty: bool) -> None:
    with TemporaryDirectory() as folder:
        memory = follower(folder)
        if not starts_empty:
            memory.add(turns(6))
        count = 0
        for step in history:
            if step == "one":
                memory.add(atom(count))
                count += 1
            elif step == "many":
                memory.add([atom(i) for i in range(count, count + 9)])
                count += 9
            elif step == "late":  # turns that come between stored ones
                early = [replace(atom(i), time=1.6e9 + i / 2) for i in range(count, count + 2)]
                memory.add(early)
                count += 2
            elif step == "connect" and count > 1:
                if {f"n{count - 1}", "n0"} <= set(memory.store.ids()):
                    memory.graph.connect([(f"n{count - 1}", "n0", EdgeType.SUPPORTS)])
            elif step == "disconnect" and count > 1:
                if {f"n{count - 1}", "n0"} <= set(memory.store.ids()):
                    memory.graph.disconnect(f"n{count - 1}", "n0")
            elif step == "cut":  # edges of all kinds, old ones and new ones
                memory.store.remove_edges(
                    lambda e, n=count: (3 * e.source + e.target) % 11 != n % 11
                )
            elif step == "delete":
                listed = [name for name in memory.store.ids() if ":" not in name]
                memory.delete(listed[count % 3 :: 5])
            elif step in ("reopen", "die"):  # with a new snapshot, if it is worth one, or without
                (memory if step == "reopen" else memory.store).close()
                memory = follower(folder)
            elif step == "ask":
                memory.retrieve(QUESTIONS)
            if step != "nothing":  # else several changes are followed at once
                check(memory)
        check(memory)
        memory.close()


def test_columns_go_on_after_reopening(tmp_path: Path) -> None:
    for part in range(3):
        with opened(tmp_path) as memory:
            memory.retrieve(QUESTIONS)
            for i in range(3):
                memory.add(atom(3 * part + i))
                check(memory)


def test_columns_of_an_earlier_state_stay() -> None:
    """Whoever holds an index asks it on while others are made."""
    with opened() as memory:
        memory.add(turns())
        memory.retrieve("kiln")
        memory.add(map(atom, range(20)))  # what comes next is written behind these
        index, query = memory.index, memory.tensors.encode(QUESTIONS)
        before = {name: tensor.clone() for name, tensor in index.state_dict().items()}
        answers = index(query)
        direction = index.embeddings.new_zeros(32).requires_grad_()
        loss = (index.embeddings @ direction).sum()
        for i in range(20, 200, 60):  # the buffers are filled, and those of tokens grow meanwhile
            memory.add(map(atom, range(i, i + 60)))
            memory.retrieve("kiln")
        loss.backward()  # nothing that it needs counts as changed
        for name, tensor in index.state_dict().items():
            kept = before[name].cpu().numpy()
            np.testing.assert_array_equal(tensor.cpu().numpy(), kept, err_msg=name)
        assert torch.equal(index(query).rows, answers.rows)


def test_columns_made_in_inference_mode_are_followed() -> None:
    with opened() as memory:
        memory.add(turns(3))
        with torch.inference_mode():
            memory.retrieve(QUESTIONS)
        memory.add(atom(0))
        memory.retrieve(QUESTIONS)
        check(memory)


@pytest.mark.parametrize("call", range(0, 60, 7))
def test_columns_start_anew_after_an_interrupt(call: int) -> None:
    """Ctrl-C at some line of the reading leaves no columns of different lengths."""
    with opened() as memory:
        memory.add(turns(6))
        memory.retrieve("kiln")
        memory.add([atom(i) for i in range(5)])
        lines = iter(range(call, -1, -1))

        def trace(frame, event, argument):
            if not frame.f_code.co_filename.endswith("columns.py"):
                return None
            if event == "line" and next(lines, 0) == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            memory.retrieve("kiln")
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        check(memory)


def test_columns_are_asked_by_many_threads_while_others_add() -> None:
    with opened() as memory:
        memory.add(turns())
        errors: list[Exception] = []

        def work(add: int | None) -> None:
            try:
                for i in range(4):
                    if add is None:
                        assert all(result.hits for result in memory.retrieve(QUESTIONS))
                    else:
                        memory.add(atom(100 * add + i))
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(add,)) for add in (None, 0, None, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        check(memory)


def test_columns_of_a_store_that_lost_atoms_start_anew() -> None:
    """As one that was put back from a backup."""
    assemble = IndexBuilder()
    for count in (5, 3):
        with opened() as memory:
            memory.add([atom(i + count) for i in range(count)])
            found = assemble(memory.store, memory.config, memory.embedder.num_pieces)
            assert torch.equal(found.node, memory._state.current().node)
            assert found.index.num_atoms == count


def test_old_and_new_mentions_have_the_same_chance_to_conduct() -> None:
    """Of edges as strong as each other no age is preferred, whatever else was stored before."""
    atoms = [Atom(f"a{i}", f"Story {i} tells of Vienna.", time=1e9 + i) for i in range(120)]
    config = config_of(**{"spread.max_edges": 40, "link.batch_atoms": 200, "link.similarity_k": 0})
    kept: list[set[str]] = []
    for some in (atoms, atoms[40:]):
        with opened(config=config) as memory:
            memory.add(some)
            graph, node = memory.index.graph, memory.index.node.long()
            vienna = memory.store.concepts(["vienna"])["vienna"]
            led = graph.target[graph.source == vienna].long()
            row = torch.searchsorted(node, led).tolist()
            kept.append({some[i].id for i in row if i < len(some)})
    newer = sum(int(name[1:]) >= 60 for name in kept[0])
    assert len(kept[0]) == 40
    assert 8 <= newer <= 32  # near four deviations of a fair draw
    assert {name for name in kept[0] if int(name[1:]) >= 40} <= kept[1]
