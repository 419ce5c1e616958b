"""Vectors from elsewhere: a store filled with them is the one that their encoder fills."""

from __future__ import annotations

import copy
import json
import pickle
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from graphmem_torch import DeferredEmbedder, EmbeddedQuestion, reembed
from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.memory import Memory
from graphmem_torch.readers.jsonl import atom_to_record
from graphmem_torch.store.schema import NAMED_BY
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from tests.memories import QUESTIONS, config_of, interrupted_after, opened, stored, turns

DIM = 32


class Counting(HashingEmbedder):
    """Encoder that keeps the texts that it was asked for."""

    def __init__(self, token_dim: int = 16) -> None:
        super().__init__(DIM, token_dim)
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        self.asked.extend(texts)
        return super().encode(texts)


def config(**change: Any) -> Config:
    return config_of(**{"link.concepts": "none", "embedder.token_dim": 0, **change})


def vectors(atoms: Sequence[Atom], token_dim: int = 16) -> Encoded:
    return HashingEmbedder(DIM, token_dim).encode([atom.rendered for atom in atoms])


def lines(path: Path, atoms: Sequence[Atom], rows: np.ndarray | None = None) -> Path:
    records = [atom_to_record(atom) for atom in atoms]
    for i, record in enumerate(records):
        if rows is not None:
            record["embedding"] = rows[i].tolist()
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def named(path: Path, atoms: Sequence[Atom], rows: np.ndarray) -> Path:
    np.save(path, rows)
    path.with_name(f"{path.stem}.ids.txt").write_text("".join(f"{atom.id}\n" for atom in atoms))
    return path


def contents(memory: Memory) -> tuple[Any, ...]:
    """Atoms, vectors, edges with weights, hits and scores."""
    hits = [
        [(hit.id, round(hit.raw, 5)) for hit in result.hits]
        for result in memory.retrieve(QUESTIONS, k=10)
    ]
    node = memory.store.columns().node.tolist()
    tokens = memory.store.tokens()
    return (
        memory.store.atoms(node),
        memory.store.embeddings().tolist(),
        None if tokens is None else [each.tolist() for each in tokens],
        [(edge, round(weight, 5)) for edge, weight in stored(memory.store)],
        hits,
    )


def by_array(memory: Memory, folder: Path, atoms: list[Atom]) -> None:
    memory.add(atoms, embeddings=vectors(atoms))


def by_mapping(memory: Memory, folder: Path, atoms: list[Atom]) -> None:
    rows = vectors(atoms, 0).pooled.tolist()
    memory.add(iter(atoms), embeddings={a.id: r for a, r in zip(atoms, rows, strict=True)})


def by_record(memory: Memory, folder: Path, atoms: list[Atom]) -> None:
    rows = vectors(atoms, 0).pooled.numpy()
    memory.add(json.loads(line) for line in lines(folder / "a.jsonl", atoms, rows).open())


def by_order(memory: Memory, folder: Path, atoms: list[Atom]) -> None:
    np.save(folder / "v.npy", vectors(atoms, 0).pooled.numpy())
    memory.add_files(lines(folder / "a.jsonl", atoms), embeddings=folder / "v.npy")


def by_id(memory: Memory, folder: Path, atoms: list[Atom]) -> None:
    rows = vectors(atoms, 0).pooled.numpy()
    mixed = np.random.default_rng(0).permutation(len(atoms))
    path = named(folder / "v.npy", [atoms[i] for i in mixed], rows[mixed])
    memory.add_files(lines(folder / "a.jsonl", atoms), embeddings=path)


def by_two_files(memory: Memory, folder: Path, atoms: list[Atom]) -> None:
    rows, half = vectors(atoms, 0).pooled.numpy(), 24  # two batches
    np.save(folder / "v.npy", rows[: half + 4])
    np.save(folder / "w.npy", rows[half + 4 :])
    files = [
        lines(folder / "a.jsonl", atoms[:half]),
        lines(folder / "b.jsonl", atoms[half:]),
    ]
    memory.add_files(files, embeddings=[folder / "v.npy", folder / "w.npy"])


def by_tokens(memory: Memory, folder: Path, atoms: list[Atom]) -> None:
    own = vectors(atoms)
    assert own.tokens is not None and own.pieces is not None and own.offsets is not None
    named_ = {"tokens": own.tokens, "pieces": own.pieces, "offsets": own.offsets}
    save_file({"embeddings": own.pooled, **named_}, folder / "v.safetensors")
    memory.add_files(lines(folder / "a.jsonl", atoms), embeddings=folder / "v.safetensors")


def by_line(memory: Memory, folder: Path, atoms: list[Atom]) -> None:
    memory.add_files(lines(folder / "a.jsonl", atoms, vectors(atoms, 0).pooled.numpy()))


WAYS = [by_array, by_mapping, by_record, by_order, by_id, by_two_files, by_tokens, by_line]


@pytest.mark.parametrize("give", WAYS)
@pytest.mark.parametrize("concepts", ["none", "pattern"])
def test_a_store_is_as_its_encoder_fills_it(
    tmp_path: Path, give: Callable[[Memory, Path, list[Atom]], None], concepts: str
) -> None:
    atoms, width = turns(40), 16 if give in (by_array, by_tokens) else 0
    own = {"config": config(**{"link.concepts": concepts})}
    with opened(tmp_path / "one", embedder=HashingEmbedder(DIM, width), **own) as memory:
        memory.add_files(lines(tmp_path / "all.jsonl", atoms))
        wanted = contents(memory)
    encoder = Counting(width)
    with opened(tmp_path / "two", embedder=encoder, **own) as memory:
        give(memory, tmp_path, atoms)
        texts = {atom.rendered for atom in atoms}
        sampled = give in (by_order, by_id, by_two_files, by_tokens)
        assert len(texts.intersection(encoder.asked)) <= 16 * sampled
        assert contents(memory) == wanted
        assert memory.check() == []
    with Memory.open(tmp_path / "two", embedder=HashingEmbedder(DIM, width), **own) as memory:
        assert contents(memory) == wanted


def test_a_vector_is_of_the_atom_and_not_of_its_text(tmp_path: Path) -> None:
    """Vectors in the form in which an encoder returns those of one text among others."""
    rows = torch.nn.functional.normalize(torch.randn(3, DIM, generator=seeded()), dim=1)
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        memory.add(["Yes.", "Yes.", "Yes."], embeddings=rows)
        assert torch.equal(memory.store.embeddings(), rows)
        memory.add("Yes.")
        assert memory.store.embeddings()[3].tolist() in rows.tolist()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_memories_with_and_without_vectors_of_their_own(tmp_path: Path) -> None:
    atoms = turns(30)
    rows = vectors(atoms).pooled
    with opened(tmp_path / "one", config=config(), embedder=HashingEmbedder(DIM, 16)) as memory:
        given = [
            {**atom_to_record(atom), **({"embedding": rows[i].tolist()} if i % 3 else {})}
            for i, atom in enumerate(atoms)
        ]
        memory.add(given)
        held = memory.store.tokens()
        assert torch.equal(memory.store.embeddings(), rows)
        assert held is not None
        counts = held.offsets.diff()
        assert all(bool(counts[i]) == (i % 3 == 0) for i in range(30))
        assert memory.check() == []


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    atoms = turns(60)
    np.save(tmp_path / "v.npy", vectors(atoms, 0).pooled.numpy())
    file = lines(tmp_path / "a.jsonl", atoms)
    own = {"config": config(), "embedder": DeferredEmbedder("elsewhere", DIM)}
    with opened(tmp_path / "one", **own) as memory:
        memory.add_files(file, embeddings=tmp_path / "v.npy")
        wanted = stored(memory.store), memory.store.embeddings().tolist()
    for writes in (3, 6, 9, 12):
        folder = tmp_path / f"two{writes}"
        with interrupted_after(writes), opened(folder, **own) as memory:
            memory.add_files(file, embeddings=tmp_path / "v.npy")
        with opened(folder, **own) as memory:
            memory.add_files(file, embeddings=tmp_path / "v.npy")
            assert (stored(memory.store), memory.store.embeddings().tolist()) == wanted
            assert memory.check() == []


def test_threads_give_vectors_at_once(tmp_path: Path) -> None:
    atoms = [Atom(f"t{i}", f"thread text {i % 7}") for i in range(80)]
    rows = torch.nn.functional.normalize(torch.randn(80, DIM, generator=seeded()), dim=1)
    failed: list[BaseException] = []
    with opened(tmp_path, config=config(), embedder=DeferredEmbedder("e", DIM)) as memory:

        def work(part: int) -> None:
            try:
                for start in range(part * 20, part * 20 + 20, 5):
                    memory.add(atoms[start : start + 5], embeddings=rows[start : start + 5])
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        row = dict(zip(memory.store.ids(), memory.store.embeddings(), strict=True))
        assert all(torch.equal(row[atom.id], rows[i]) for i, atom in enumerate(atoms))
        assert memory.check() == []


def test_changed_files_bring_new_vectors(tmp_path: Path) -> None:
    atoms = turns(20)
    file = lines(tmp_path / "a.jsonl", atoms)
    with opened(tmp_path / "s", config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        path = named(tmp_path / "v.npy", atoms, vectors(atoms, 0).pooled.numpy())
        memory.add_files(file, embeddings=path)
        atoms[4] = Atom("a4", "Something else is said about the observatory", session="s0")
        atoms = [*atoms[:11], *atoms[12:], Atom("new", "A kettle whistles", session="s9")]
        lines(file, atoms)
        rows = vectors(atoms, 0).pooled.numpy()
        done = memory.add_files(file, embeddings=named(tmp_path / "w.npy", atoms, rows))
        assert (done.new, done.replaced, done.deleted) == (1, 1, 1)
        found = dict(zip(memory.store.ids(), memory.store.embeddings().numpy(), strict=True))
        assert all(np.array_equal(found[atom.id], rows[i]) for i, atom in enumerate(atoms))
        assert memory.add_files(file, embeddings=tmp_path / "w.npy").unchanged == 1


# Refused by file and row, before anything of that file is stored.


def shifted(rows: np.ndarray) -> np.ndarray:
    return np.roll(rows, 1, axis=0)


WRONG: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "a row too few": (lambda v: v[:-1], r"v\.npy: expected 40 rows, .*got 39"),
    "a row too many": (lambda v: np.concatenate([v, v[:1]]), "expected 40 rows, .*got 41"),
    "no row": (lambda v: v[:0], "expected 40 rows, .*got 0"),
    "width": (lambda v: v[:, :16] / np.linalg.norm(v[:, :16], axis=1)[:, None], "width 16"),
    "NaN": (lambda v: np.where(np.arange(40)[:, None] == 39, np.nan, v), r"v\.npy, row 39"),
    "zeros": (lambda v: v * (np.arange(40)[:, None] != 7), r"v\.npy, row 7"),
    "lengths": (lambda v: v * 3, r"v\.npy, row 0: .*length 3.*39 more"),
    "shifted": (shifted, r"v\.npy, row \d+: expected the vector of memory"),
    "backwards": (lambda v: v[::-1], r"v\.npy, row \d+: expected the vector of memory"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("skip_bad", [False, True])
def test_vectors_that_do_not_fit_store_nothing(tmp_path: Path, name: str, skip_bad: bool) -> None:
    change, why = WRONG[name]
    atoms = [Atom(f"a{i}", f"{word} {word}s of {i}") for i, word in enumerate(words(40))]
    np.save(tmp_path / "v.npy", change(vectors(atoms, 0).pooled.numpy()))
    file = lines(tmp_path / "a.jsonl", atoms)
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        try:
            done = memory.add_files(file, embeddings=tmp_path / "v.npy", skip_bad=skip_bad)
        except InputError as error:
            said = str(error)
        else:
            (said,) = done.skipped
        assert len(memory) == 0
    assert re.search(why, said), said


def test_a_piece_beyond_the_vocabulary_stores_nothing(tmp_path: Path) -> None:
    atoms = turns(20)
    made = vectors(atoms, 4)
    pieces = made.pieces.clone()
    pieces[-1] = 10**6
    parts = {"tokens": made.tokens, "pieces": pieces, "offsets": made.offsets}
    save_file({"embeddings": made.pooled, **parts}, tmp_path / "v.safetensors")
    file = lines(tmp_path / "a.jsonl", atoms)
    encoder = DeferredEmbedder("e", DIM, token_dim=4, num_pieces=10**6)
    with opened(config=config(), embedder=encoder) as memory:
        with pytest.raises(InputError, match=r"v\.safetensors, row 19: pieces: .*below 1,000,000"):
            memory.add_files(file, embeddings=tmp_path / "v.safetensors")
        assert len(memory) == 0


def test_a_file_of_vectors_is_given_once(tmp_path: Path) -> None:
    atoms = turns(20)
    np.save(tmp_path / "v.npy", vectors(atoms[:10], 0).pooled.numpy())
    (tmp_path / "w.npy").symlink_to("v.npy")
    file = lines(tmp_path / "a.jsonl", atoms)
    with opened(config=config(), embedder=DeferredEmbedder("e", DIM)) as memory:
        with pytest.raises(InputError, match=r"w\.npy: expected each file of vectors once"):
            memory.add_files(file, embeddings=[tmp_path / "v.npy", tmp_path / "w.npy"])
        assert len(memory) == 0


class Meddling(HashingEmbedder):
    """Encoder that turns the lines of a file around when its vectors are compared with texts."""

    def __init__(self, file: Path) -> None:
        super().__init__(DIM, 0)
        self.file, self.armed = file, False

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        if self.armed and texts:
            self.armed = False
            turned = reversed(self.file.read_text().splitlines(keepends=True))
            self.file.write_text("".join(["\n", *turned]))
        return super().encode(texts)


@pytest.mark.parametrize("held", [0, 20])
def test_lines_that_move_while_they_are_read_get_no_vector_of_others(
    tmp_path: Path, held: int
) -> None:
    atoms = turns(40)
    rows = vectors(atoms, 0).pooled.numpy()
    np.save(tmp_path / "few.npy", rows[:held])
    np.save(tmp_path / "v.npy", rows)
    file = tmp_path / "a.jsonl"
    encoder = Meddling(file)
    with opened(tmp_path / "s", config=config(), embedder=encoder) as memory:
        if held:
            memory.add_files(lines(file, atoms[:held]), embeddings=tmp_path / "few.npy")
        lines(file, atoms)
        encoder.armed = True
        with pytest.raises(InputError, match=r"a\.jsonl: expected a file that stays as it is"):
            memory.add_files(file, embeddings=tmp_path / "v.npy")
        assert len(memory) == held
        lines(file, atoms)
        memory.add_files(file, embeddings=tmp_path / "v.npy")
        found = dict(zip(memory.store.ids(), memory.store.embeddings().numpy(), strict=True))
        assert all(np.array_equal(found[atom.id], rows[i]) for i, atom in enumerate(atoms))


@pytest.mark.parametrize("way", ["rows", "array", "lines"])
def test_of_equal_memories_the_first_has_its_vector(tmp_path: Path, way: str) -> None:
    atoms = [*turns(3), turns(3)[0]]
    rows = vectors(turns(4), 0).pooled.numpy()
    with opened(config=config(), embedder=DeferredEmbedder("e", DIM)) as memory:
        if way == "array":
            memory.add(atoms, embeddings=rows)
        elif way == "rows":
            np.save(tmp_path / "v.npy", rows)
            memory.add_files(lines(tmp_path / "a.jsonl", atoms), embeddings=tmp_path / "v.npy")
        else:
            lines(tmp_path / "a.jsonl", atoms, rows)
            memory.add_files(tmp_path / "a.jsonl")
        found = dict(zip(memory.store.ids(), memory.store.embeddings().numpy(), strict=True))
        assert np.array_equal(found[atoms[0].id], rows[0])


def words(count: int) -> list[str]:
    """Return words that share no stem."""
    return ["".join(chr(97 + (i * 7 + j * (i + 3)) % 26) for j in range(7)) for i in range(count)]


def test_ids_are_missed_on_either_side(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    atoms = turns(20)
    rows = vectors(atoms, 0).pooled.numpy()
    file = lines(tmp_path / "a.jsonl", atoms)
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        few = named(tmp_path / "few.npy", atoms[:5] + atoms[7:], np.delete(rows, [5, 6], 0))
        with pytest.raises(InputError, match=r"a\.jsonl:6: .*none for 'a5' \(and for 1 more\)"):
            memory.add_files(file, embeddings=few)
        assert len(memory) == 0
        more = [*atoms, Atom("z", "of no line")]
        extra = np.concatenate([rows, rows[:1]])
        done = memory.add_files(file, embeddings=named(tmp_path / "more.npy", more, extra))
        assert done.new == 20
    assert "1 row" in caplog.text and "'z'" in caplog.text


def test_files_that_fit_are_stored_beside_one_that_does_not(tmp_path: Path) -> None:
    atoms = turns(20)
    good, bad = lines(tmp_path / "a.jsonl", atoms[:10]), lines(tmp_path / "b.jsonl", atoms[10:])
    path = named(tmp_path / "v.npy", atoms[:15], vectors(atoms[:15], 0).pooled.numpy())
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        done = memory.add_files([good, bad], embeddings=path, skip_bad=True)
        assert done.new == 10 and "none for 'a15'" in done.skipped[0]


def test_rows_in_order_need_every_line(tmp_path: Path) -> None:
    atoms = turns(6)
    file = lines(tmp_path / "a.jsonl", atoms)
    file.write_text(file.read_text().replace('"text": "The canoe', '"txt": "The canoe'))
    np.save(tmp_path / "v.npy", vectors(atoms, 0).pooled.numpy())
    path = named(tmp_path / "w.npy", atoms, vectors(atoms, 0).pooled.numpy())
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        with pytest.raises(InputError, match=r"a\.jsonl:1: text: expected"):
            memory.add_files(file, embeddings=tmp_path / "v.npy", skip_bad=True)
        assert len(memory) == 0
        done = memory.add_files(file, embeddings=path, skip_bad=True)
        assert done.new == 5 and len(done.skipped) == 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["a", "b"], "expected a list of numbers"),
        ([[0.1], [0.2]], "expected a list of numbers"),
        ([], "expected a list of numbers"),
        ([True, False], "expected a list of numbers"),
        (0.5, "expected a list of numbers"),
        ([1.0] + [0.0] * 15, "width 32"),
        ([10**400] + [0] * 31, "expected a list of numbers"),
        ([0.0] * 32, "zeros"),
        ([2.0] + [0.0] * 31, "length 2"),
        ([None] * 32, "expected a list of numbers|finite"),
    ],
)
def test_bad_vectors_of_lines_are_refused(tmp_path: Path, given: Any, why: str) -> None:
    first = {"id": "a", "text": "one", "embedding": [1.0] + [0.0] * 31}
    file = tmp_path / "a.jsonl"
    file.write_text(f"{json.dumps(first)}\n{json.dumps({'text': 'two', 'embedding': given})}\n")
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        with pytest.raises(InputError, match=why) as caught:
            memory.add({"text": "two", "embedding": given})
        assert len(memory) == 0 and "normalise" not in str(caught.value)
        with pytest.raises(InputError, match=why):
            memory.add_files(file)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_a_record_may_bring_a_tensor(kind: torch.dtype) -> None:
    row = vectors(turns(1), 0).pooled[0].to(kind).requires_grad_()
    with opened(config=config(), embedder=DeferredEmbedder("e", DIM)) as memory:
        memory.add({"text": "one", "embedding": row})
        assert torch.equal(memory.store.embeddings()[0], row.detach().float())
        memory.add(["two", "three"], embeddings=[row, [1.0] + [0.0] * (DIM - 1)])
        assert len(memory) == 3


def test_a_vector_of_a_whole_session_is_refused() -> None:
    row = [1.0] + [0.0] * 31
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        with pytest.raises(InputError, match="one for the session; put them into the turns"):
            memory.add({"session": "s", "embedding": row, "turns": ["one", "two"]})
        turn = {"text": "one", "embedding": row}
        assert memory.add({"session": "s", "turns": [turn, "two"]}).new == 2


@pytest.mark.parametrize(
    ("count", "give", "why"),
    [
        (2, lambda v: v[:1], "expected 2 rows, .*got 1"),
        (2, lambda v: v[:3], "expected 2 rows, .*got 3"),
        (1, lambda v: v[0], "the shape"),
        (1, lambda v: "v.npy", "got str"),
        (1, lambda v: 7, "got int"),
        (2, lambda v: [["a"], ["b"]], "got list"),
        (2, lambda v: [[1.0], [1.0, 2.0]], "got list"),
        (2, lambda v: v[:2].to("meta"), "got Tensor"),
        (2, lambda v: v[:2] * 2, "row 0: .*length 2"),
        (2, lambda v: torch.stack([v[0], v[0] * torch.nan]), "row 1: .*finite"),
        (2, lambda v: {"m0": v[0]}, "'m1': embeddings: expected a vector for each atom"),
        (2, lambda v: v[:2, :8] / v[:2, :8].norm(dim=1)[:, None], "width 32.*got 8"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_vectors_of_calls_are_refused(
    count: int, give: Callable[[torch.Tensor], Any], why: str, stream: bool
) -> None:
    atoms = [Atom(f"m{i}", f"text {i}") for i in range(count)]
    rows = torch.nn.functional.normalize(torch.randn(4, DIM, generator=seeded()), dim=1)
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        with pytest.raises(InputError, match=why):
            memory.add(iter(atoms) if stream else atoms, embeddings=give(rows))
        assert stream or len(memory) == 0


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_vectors_of_calls_may_be_of_any_kind(kind: torch.dtype) -> None:
    rows = torch.nn.functional.normalize(torch.randn(2, DIM, generator=seeded()), dim=1).to(kind)
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        memory.add(["one", "two"], embeddings=rows.requires_grad_())
        assert torch.equal(memory.store.embeddings(), rows.detach().float())


# Without the encoder.


def test_an_encoder_is_loaded_at_the_first_question(tmp_path: Path) -> None:
    atoms, loads = turns(20), list[int]()

    def load() -> HashingEmbedder:
        loads.append(1)
        return HashingEmbedder(DIM, 0)

    own = DeferredEmbedder("hashing-v2:32:0", DIM, load=load)
    with opened(tmp_path, config=config(), embedder=own) as memory:
        memory.add(atoms, embeddings=vectors(atoms, 0).pooled)
        memory.graph.connect([("a0", "a5", "supports")])
        assert memory.get("a3").id == "a3" and len(memory.list()) == 20
        assert memory.delete("a7") == 1
        memory.forget("a8")
        assert not loads
        assert memory.retrieve(QUESTIONS[0]).hits and loads == [1]
        memory.add("and now a text alone")
        assert loads == [1]


def test_a_store_remembers_what_loads_its_encoder(tmp_path: Path) -> None:
    atoms = turns(20)
    own = DeferredEmbedder("hashing-v2:32:0", DIM, spec="hashing:32")
    with opened(tmp_path / "s", config=config(), embedder=own) as memory:
        memory.add(atoms, embeddings=vectors(atoms, 0).pooled)
    for mode in ("r", "w"):
        with Memory.open(tmp_path / "s", config=config(), mode=mode) as memory:
            assert memory.embedder.name == "hashing:32"
            assert memory.retrieve(QUESTIONS[0]).hits
    with Memory.open(tmp_path / "s", config=config()) as memory:
        space = memory.namespaces.create("alice")
        space.add("one", embeddings=[[1.0] + [0.0] * 31])
        assert len(space) == 1


def test_what_needs_the_encoder_names_it(tmp_path: Path) -> None:
    atoms = turns(20)
    rows = vectors(atoms, 0).pooled
    own = config(**{"link.concepts": "pattern"})
    with opened(tmp_path / "s", config=own, embedder=DeferredEmbedder("mine", DIM)) as memory:
        memory.add(atoms, embeddings=rows)
    for mode in ("w", "r"):
        with Memory.open(tmp_path / "s", config=own, mode=mode) as memory:
            with pytest.raises(EmbedderError, match="the encoder 'mine' to encode a text"):
                memory.retrieve(QUESTIONS[0])
            question = EmbeddedQuestion(
                QUESTIONS[0], HashingEmbedder(DIM, 0).encode(QUESTIONS[:1]).pooled[0]
            )
            found = memory.retrieve(question, k=5)
            assert [hit.id for hit in found.hits] and all(
                "canoe" in hit.text for hit in found.hits[:3]
            )
            assert memory.compile(question, budget=200).text
            assert memory.explain(question).id
    with Memory.open(tmp_path / "s", config=own) as memory:
        with pytest.raises(EmbedderError, match="the encoder 'mine'"):
            memory.add("without a vector")
        with pytest.raises(EmbedderError, match="the encoder 'mine'"):
            memory.update("a3", text="something else")
        assert memory.get("a3").text == atoms[3].text
        assert memory.check() == []
    with pytest.raises(EmbedderError, match="mine"):
        Memory.open(tmp_path / "s", config=own, embedder="hashing:32").retrieve("canoe?")
    with pytest.raises(EmbedderError, match="filled this store"):
        Memory.open(tmp_path / "s", config=own, embedder=DeferredEmbedder("other", DIM))


def test_an_embedded_question_is_asked_as_the_encoder_asks_it(tmp_path: Path) -> None:
    encoder = Counting()
    with opened(tmp_path, config=config(**{"embedder.token_dim": 16}), embedder=encoder) as memory:
        memory.add(turns(30))
        rows = HashingEmbedder(DIM, 16).encode(QUESTIONS).pooled
        plain = memory.retrieve(QUESTIONS, k=5)
        encoder.asked.clear()
        mixed = [EmbeddedQuestion(QUESTIONS[0], rows[0]), QUESTIONS[1]]
        found = memory.retrieve(mixed, k=5)
        assert QUESTIONS[0] not in encoder.asked and QUESTIONS[1] in encoder.asked
        assert [h.id for h in found[1].hits] == [h.id for h in plain[1].hits]
        assert [h.raw for h in found[1].hits] == pytest.approx([h.raw for h in plain[1].hits])
        with pytest.raises(InputError, match=r"width 32.*got 3"):
            memory.retrieve(EmbeddedQuestion("x?", [1.0, 0.0, 0.0]))
    for wrong in ([], [[1.0]], [0.0, 0.0], ["a"], [3.0], [float("nan")], None):
        with pytest.raises(InputError, match="embedding: expected"):
            EmbeddedQuestion("x?", wrong)


def test_an_embedded_question_is_copied_and_sent_with_its_vector() -> None:
    question = EmbeddedQuestion("Who?", torch.tensor([0.6, 0.8]))
    for same in (copy.deepcopy(question), pickle.loads(pickle.dumps(question))):
        assert same == "Who?" and torch.equal(same.embedding, question.embedding)
    with pytest.raises(InputError, match="embedding: expected a vector"):
        EmbeddedQuestion("Who?", [10**400, 0])


def _breaks() -> Any:
    raise ZeroDivisionError("no model\nhere")


@pytest.mark.parametrize(
    ("load", "why"),
    [
        ("hashing:32", "load: expected a function that returns the encoder, got 'hashing:32'"),
        (_breaks, "load: .*ZeroDivisionError: no model; mend"),
        (lambda: None, "load: .*got NoneType"),
        (lambda: vectors, "load: .*got function"),
    ],
)
def test_a_function_that_loads_no_encoder_is_told(load: Any, why: str) -> None:
    with pytest.raises(EmbedderError, match=why) as caught:
        DeferredEmbedder("e", DIM, load=load).encode(["text"])
    assert "\n" not in str(caught.value)


def test_a_deferred_store_is_exported_and_gets_another_encoder(tmp_path: Path) -> None:
    atoms = turns(20)
    rows = vectors(atoms, 0).pooled
    own = config(**{"link.concepts": "pattern"})
    with opened(tmp_path / "s", config=own, embedder=DeferredEmbedder("mine", DIM)) as memory:
        memory.add(atoms, embeddings=rows)
        wanted = stored(memory.store), memory.store.embeddings().tolist()
        memory.export(tmp_path / "e.jsonl", vectors=True)
    with opened(tmp_path / "t", config=own, embedder=DeferredEmbedder("mine", DIM)) as memory:
        assert memory.import_(tmp_path / "e.jsonl").new == 20
        assert (stored(memory.store), memory.store.embeddings().tolist()) == wanted
    assert reembed(tmp_path / "s", "hashing:32", config=own) > 0
    with Memory.open(tmp_path / "s", config=own) as memory:
        assert memory.retrieve(QUESTIONS[0]).hits and memory.check() == []
        memory.add("a text alone")


def test_names_of_concepts_stay_in_the_vectors_that_they_have(tmp_path: Path) -> None:
    atoms = [Atom(f"a{i}", f"Nora meets Bertrand Lemaire in Lisbon {i}") for i in range(6)]
    own = config(**{"link.concepts": "pattern"})
    real = HashingEmbedder(DIM, 0)
    with opened(tmp_path / "s", config=own, embedder=real) as memory:
        memory.store.meta_set(NAMED_BY, "encoder")  # as older releases have them
        memory.add(atoms[:3])
    later = DeferredEmbedder(real.fingerprint, DIM)
    with opened(tmp_path / "s", config=own, embedder=later) as memory:
        with pytest.raises(EmbedderError, match="to encode a text"):
            memory.add(Atom("b", "Zelda sees Tromsø"), embeddings=[[1.0] + [0.0] * 31])
        assert len(memory) == 3 and memory.check() == []


def test_vectors_of_another_width_for_memories_that_are_there(tmp_path: Path) -> None:
    atoms = turns(10)
    file = lines(tmp_path / "a.jsonl", atoms)
    np.save(tmp_path / "v.npy", np.eye(10, 48, dtype=np.float32))
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        memory.add_files(file)
        with pytest.raises(InputError, match=r"expected vectors of width 32.*got width 48"):
            memory.add_files(file, embeddings=tmp_path / "v.npy")
        assert len(memory) == 10


def test_a_dry_run_checks_vectors_and_stores_nothing(tmp_path: Path) -> None:
    atoms = turns(10)
    file = lines(tmp_path / "a.jsonl", atoms)
    np.save(tmp_path / "v.npy", vectors(atoms, 0).pooled.numpy())
    np.save(tmp_path / "w.npy", vectors(atoms[:9], 0).pooled.numpy())
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        assert memory.add_files(file, embeddings=tmp_path / "v.npy", dry_run=True).new == 10
        with pytest.raises(InputError, match="expected 10 rows"):
            memory.add_files(file, embeddings=tmp_path / "w.npy", dry_run=True)
        assert len(memory) == 0


def test_chunks_of_documents_are_matched_in_order_and_by_id(tmp_path: Path) -> None:
    text = "\n\n".join(f"The {word} stands here. It is old." for word in words(40))
    (tmp_path / "a.md").write_text(text)
    own = config(**{"embedder.max_tokens": 12})
    with opened(config=own, embedder=HashingEmbedder(DIM, 0)) as memory:
        memory.add_files(tmp_path / "a.md")
        wanted = stored(memory.store)
        atoms = memory.list().atoms
    rows = vectors(atoms, 0).pooled.numpy()
    np.save(tmp_path / "v.npy", rows)
    for path in (tmp_path / "v.npy", named(tmp_path / "w.npy", atoms, rows)):
        with opened(config=own, embedder=DeferredEmbedder("mine", DIM)) as memory:
            assert memory.add_files(tmp_path / "a.md", embeddings=path).new == len(atoms)
            assert stored(memory.store) == wanted


@pytest.mark.parametrize("length", [3.0, 0.5, 1.02, 1e-3, 1e3])
def test_vectors_of_lines_are_divided_by_their_lengths_if_asked(
    tmp_path: Path, length: float
) -> None:
    atoms = turns(6)
    rows = vectors(atoms, 0).pooled.numpy()
    file = lines(tmp_path / "a.jsonl", atoms, rows * np.float32(length))
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        with pytest.raises(InputError, match=r"a\.jsonl:1: .*length .* --normalise"):
            memory.add_files(file)
        assert len(memory) == 0
        assert memory.add_files(file, normalise=True).new == 6
        kept = memory.store.embeddings().numpy()
        assert np.abs(kept - rows).max() < 2e-3


@pytest.mark.parametrize("given", [[0.0] * DIM, [float("nan")] * DIM, [float("inf")] * DIM])
def test_vectors_of_lines_without_a_direction_are_refused_all_the_same(
    tmp_path: Path, given: list[float]
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "one", "embedding": given}) + "\n")
    with (
        opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory,
        pytest.raises(InputError, match="expected"),
    ):
        memory.add_files(tmp_path / "a.jsonl", normalise=True)


@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_other_vectors_for_the_same_texts_are_counted(
    tmp_path: Path, by_id: bool, kind: type
) -> None:
    atoms = turns(9)
    rows = vectors(atoms, 0).pooled.numpy()
    other = rows.copy()
    other[[2, 5, 6, 8]] += 0.05 * np.roll(other[[2, 5, 6, 8]], 1, axis=1)
    other /= np.linalg.norm(other, axis=1, keepdims=True)

    def file(name: str, values: np.ndarray) -> Path:
        own = values.astype(kind)
        if by_id:
            return named(tmp_path / name, atoms[: len(own)], own)
        np.save(tmp_path / name, own)
        return tmp_path / name

    one, two = file("v.npy", rows), file("w.npy", other)
    texts = lines(tmp_path / "a.jsonl", atoms)
    with opened(config=config(), embedder=HashingEmbedder(DIM, 0)) as memory:
        first = memory.add_files(texts, embeddings=one)
        assert (first.new, first.kept_vectors) == (9, 0)
        before = memory.store.embeddings()
        again = memory.add_files(texts, embeddings=one)
        assert (again.known, again.unchanged, again.kept_vectors) == (9, 1, 0)
        assert memory.add_files(texts, embeddings=two, dry_run=True).kept_vectors == 4
        done = memory.add_files(texts, embeddings=two)
        assert (done.new, done.known, done.kept_vectors) == (0, 9, 4)
        assert torch.equal(memory.store.embeddings(), before)
        atoms = turns(11)  # two more: the file has changed
        lines(texts, atoms)
        more = np.concatenate([other, vectors(atoms, 0).pooled.numpy()[9:]])
        done = memory.add_files(texts, embeddings=file("x.npy", more))
        assert (done.new, done.known, done.kept_vectors) == (2, 9, 4)
        assert torch.equal(memory.store.embeddings()[:9], before)
