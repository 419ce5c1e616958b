"""Encoders that are functions or servers, and the stores that are bound to them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmem_torch import Memory, OpenAIClient, reembed
from graphmem_torch.cli.main import main
from graphmem_torch.errors import EmbedderError
from graphmem_torch.text.embedder import HashingEmbedder
from graphmem_torch.text.embedding_server import ServerEmbedder, server_embedder
from graphmem_torch.text.probed import function_embedder
from graphmem_torch.text.sentence_transformer import load_embedder
from tests.oracle.server import Act, Exchange, ScriptedServer

pytest.importorskip("openai", reason="pip install 'graphmem-torch[openai]'")

TEXTS = ["Nora restored the oven.", "The canoe is red.", "Omar sold the bicycle in May."]


def hashed(texts: list[str], dim: int = 32) -> np.ndarray:
    return HashingEmbedder(dim, 0).encode(texts).pooled.numpy()


def words(texts: list[str]) -> np.ndarray:
    return hashed(texts)


def serving(
    encode: Callable[[list[str]], np.ndarray] = hashed, noise: float = 0.0
) -> Callable[[Exchange], None]:
    """A server of this model; `noise`: of another machine."""
    drawn = np.random.default_rng(0)

    def act(exchange: Exchange) -> None:
        rows = encode(exchange.texts)
        rows = rows + noise * drawn.standard_normal(rows.shape) / rows.shape[1] ** 0.5
        exchange.embed(rows.tolist())

    return act


def another(texts: list[str]) -> np.ndarray:
    """A model of the same width."""
    return hashed([" ".join(word[::-1] for word in text.split()) for text in texts])


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ScriptedServer]]:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_DIR", os.devnull)
    with ExitStack() as stack:

        def begin(*acts: Act) -> ScriptedServer:
            server = ScriptedServer(*acts)
            stack.callback(server.close)
            return server

        yield begin


def quick(server: ScriptedServer, **options: Any) -> ServerEmbedder:
    """An embedder that gives up at once."""
    client = OpenAIClient("m", base_url=server.url, retries=0, cache=False)
    return ServerEmbedder(client, **options)


def test_function_as_an_encoder(tmp_path: Path) -> None:
    with Memory.open(tmp_path, embedder=words) as memory:
        memory.add(TEXTS)
        assert memory.retrieve("Who restored the oven?").hits[0].text == TEXTS[0]
        assert memory.embedder.name == "words" and memory.embedder.dim == 32
    with Memory.open(tmp_path, embedder=words) as memory:
        assert memory.retrieve("canoe").hits[0].text == TEXTS[1]
        assert memory.check() == []
    with Memory.open(tmp_path, mode="r", embedder=words) as memory:
        assert memory.retrieve("canoe").hits[0].text == TEXTS[1]

    def renamed(texts: list[str]) -> np.ndarray:
        return hashed(texts)

    for other in (renamed, "hashing", functools.wraps(words)(another)):
        with pytest.raises(EmbedderError, match=r"expected the embedder that filled .*function:w"):
            Memory.open(tmp_path, embedder=other)
    assert reembed(tmp_path, renamed) > 0
    with Memory.open(tmp_path, embedder=renamed) as memory:
        assert memory.retrieve("canoe").hits[0].text == TEXTS[1]


class Model:
    """A callable object with a name of its own."""

    name = "model-7"

    def __call__(self, texts: list[str]) -> list[list[float]]:
        return hashed(texts).tolist()


def test_functions_give_arrays_tensors_or_lists() -> None:
    for make in (
        np.asarray,
        torch.tensor,
        list,
        lambda rows: [list(row) for row in rows],
        lambda rows: [torch.tensor(row, requires_grad=True) for row in rows],
        lambda rows: tuple(torch.tensor(rows, dtype=torch.float64)),
    ):

        def made(texts: list[str], make: Any = make) -> Any:
            return make(2 * hashed(texts))

        found = load_embedder(made)
        assert np.allclose(found.encode(TEXTS).pooled, hashed(TEXTS), atol=1e-6)
    assert load_embedder(Model()).name == "model-7"
    part = functools.partial(hashed, dim=16)
    part.name = "narrow"  # type: ignore[attr-defined]
    assert load_embedder(part).dim == 16


def test_function_with_prompts() -> None:
    seen: list[str] = []

    def listens(texts: list[str]) -> np.ndarray:
        seen.extend(texts)
        return hashed(texts)

    plain = load_embedder(listens)
    found = load_embedder(listens, query_prompt="ask: ", document_prompt="text: ")
    assert found.fingerprint != plain.fingerprint
    del seen[:]
    found.encode(["a"])
    found.encode_query(["b"])  # type: ignore[attr-defined]
    assert seen == ["text: a", "ask: b"]


def _ragged(texts: list[str]) -> Any:
    return [[1.0] * (1 + i) for i in range(len(texts))]


def _fails(texts: list[str]) -> Any:
    raise KeyError("no model\nis loaded")


def _drops(texts: list[str]) -> Any:
    return torch.nn.functional.dropout(torch.from_numpy(hashed(texts)), 0.5)


async def _waits(texts: list[str]) -> Any:
    return hashed(texts)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda texts: hashed(texts), "a function with a name"),
        (functools.partial(hashed, dim=8), "a function with a name"),
        (_waits, "an async one"),
        (_drops, "expected the same vectors for the same texts"),
        (_fails, "KeyError"),
        (_ragged, "an array of 3 vectors"),
        (HashingEmbedder, "a SentenceTransformer"),
        (print, "NoneType|TypeError"),
        (len, r"the shape \[\]"),
        (np.zeros, "TypeError"),
        (sorted, "ValueError|TypeError"),
    ],
)
def test_functions_that_are_no_encoders(function: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=message) as error:
        Memory.open(tmp_path / "new", embedder=function)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda rows: rows[:-1], "an array of 2 vectors, got one of the shape"),
        (lambda rows: rows[:, :-1], "vectors of 32 values, got 31"),
        (lambda rows: rows[0], "the shape"),
        (lambda rows: rows * np.nan, "finite"),
        (lambda rows: rows.astype(str), "TypeError"),
        (lambda rows: rows * 1j, "complex numbers"),
        (lambda rows: None, "RuntimeError|TypeError"),
        (lambda rows: rows[:1], "the shape"),
    ],
)
def test_function_that_breaks_later_stores_nothing(bad: Any, message: str) -> None:
    broken = False

    def breaks(texts: list[str]) -> Any:
        rows = hashed(texts)
        return bad(rows) if broken else rows

    with Memory.open(embedder=breaks) as memory:
        memory.add(TEXTS[0])
        broken = True
        with pytest.raises(EmbedderError, match=message) as error:
            memory.add(TEXTS[1:])
        assert "\n" not in str(error.value) and len(memory) == 1
        broken = False
        memory.add(TEXTS[1:])
        assert len(memory) == 3 and memory.check() == []


def test_server_as_an_encoder(start: Callable[..., ScriptedServer], tmp_path: Path) -> None:
    server = start(serving())
    spec = f"{server.url}#m"
    with Memory.open(tmp_path, embedder=spec) as memory:
        memory.add(TEXTS)
        assert memory.retrieve("Who restored the oven?").hits[0].text == TEXTS[0]
        assert memory.embedder.name == spec
    for mode in ("w", "r"):  # the store names it
        with Memory.open(tmp_path, mode=mode) as memory:  # type: ignore[arg-type]
            assert memory.retrieve("canoe").hits[0].text == TEXTS[1]
            assert memory.embedder.name == spec
    assert {request["model"] for request in server.requests} == {"m"}
    asked = len(server.requests)
    with Memory.open(tmp_path) as memory:
        memory.retrieve("canoe")
    assert len(server.requests) == asked + 3, "probes, the question, and unrelated texts"


def test_server_by_settings_and_command_line(
    start: Callable[..., ScriptedServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start(serving())
    preset = tmp_path / "mine.yaml"
    preset.write_text(
        f"extends: default\nembedder: {{name: '{server.url}#m', query_prompt: 'ask: '}}\n"
    )
    with Memory.open(tmp_path / "a", preset=str(preset)) as memory:
        memory.add(TEXTS)
        assert memory.retrieve("canoe").hits[0].text == TEXTS[1]
    assert server.requests[-1]["input"][0].startswith("ask: ")
    notes = tmp_path / "notes.txt"
    notes.write_text("\n\n".join(TEXTS))
    store = str(tmp_path / "b")
    index = ["index", str(notes), "--store", store, "--embedder", f"{server.url}#m"]
    assert main(index) == 0
    assert main(["query", "canoe", "--store", store]) == 0
    assert "canoe" in capsys.readouterr().out
    nothing = ["index", str(notes), "--store", str(tmp_path / "c"), "--embedder", server.url]
    assert main(nothing) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "c").exists()


def test_another_model_of_the_same_name_is_refused(
    start: Callable[..., ScriptedServer], tmp_path: Path
) -> None:
    server = start(serving())
    with Memory.open(tmp_path, embedder=quick(server)) as memory:
        memory.add(TEXTS)
        own = memory.embedder.fingerprint
    near = quick(start(serving(noise=0.01)))
    assert near.fingerprint != own
    with Memory.open(tmp_path, embedder=near) as memory:  # the same model on another machine
        assert memory.embedder.fingerprint == own
        assert memory.add("A fourth memory.").new == 1
    with Memory.open(tmp_path, mode="r", embedder=near) as memory:
        assert memory.retrieve("canoe").hits[0].text == TEXTS[1]
    for other in (another, functools.partial(hashed, dim=16)):
        with pytest.raises(EmbedderError, match="expected the embedder that filled this store"):
            Memory.open(tmp_path, embedder=quick(start(serving(other))))
    with Memory.open(tmp_path, embedder=near) as memory:
        assert len(memory) == 4 and memory.check() == []


def test_likeness_of_sketches() -> None:
    """Models that differ by chance, or by a little, or by rotation, are told apart."""
    draw = np.random.default_rng(1)
    base = draw.standard_normal((3, 48))

    def sketched(rows: np.ndarray) -> Any:
        def model(texts: list[str]) -> np.ndarray:
            return rows

        return function_embedder(model)

    own = sketched(base)
    for seed in range(50):
        other = np.random.default_rng(seed + 2)
        small = sketched(base * (1 + 0.01 * other.standard_normal(base.shape)))
        assert small.like(own.fingerprint).fingerprint == own.fingerprint
        for rows in (
            other.standard_normal(base.shape),
            base + 0.5 * other.standard_normal(base.shape),
            -base,
            base[:, ::-1].copy(),
        ):
            found = sketched(rows)
            assert found.like(own.fingerprint) is found
    for wrong in (
        None,
        "",
        "function:model:48::",
        "function:model:48::***",
        "function:model:48::AA==",
    ):
        assert own.like(wrong) is own


def test_prompts_of_a_family(start: Callable[..., ScriptedServer]) -> None:
    server = start(serving())
    found = server_embedder(f"{server.url}#nomic-embed-text:latest")
    found.encode(["a"])
    found.encode_query(["b"])
    assert server.requests[-2]["input"] == ["search_document: a"]
    assert server.requests[-1]["input"] == ["search_query: b"]
    bare = server_embedder(f"{server.url}#nomic-embed-text", "", "")
    bare.encode_query(["b"])
    assert server.requests[-1]["input"] == ["b"] and not bare.asymmetric


def test_server_that_is_down(start: Callable[..., ScriptedServer], tmp_path: Path) -> None:
    server = start(serving())
    client = OpenAIClient("m", base_url=server.url, retries=1, backoff=0.001, cache=False)
    with Memory.open(tmp_path / "there", embedder=ServerEmbedder(client)) as memory:
        memory.add(TEXTS[:1])
        server.close()
        client.close()  # no connection stays
        with pytest.raises(EmbedderError, match="gave no usable answer") as error:
            memory.add(TEXTS[1:])
        assert "\n" not in str(error.value) and server.url in str(error.value)
        assert len(memory) == 1 and memory.get(next(iter(memory)).id).text == TEXTS[0]
        assert memory.check() == []
    with pytest.raises(EmbedderError, match="gave no usable answer"):
        quick(server)


def test_server_that_changes_its_width(start: Callable[..., ScriptedServer]) -> None:
    server = start(serving(), serving(), serving(functools.partial(hashed, dim=16)))
    with Memory.open(embedder=quick(server)) as memory:
        with pytest.raises(EmbedderError, match="vectors of 32 values, got 16"):
            for text in TEXTS:
                memory.add(text)
        assert memory.check() == []


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_key_is_not_stored_nor_sent_to_an_address_of_the_store(
    start: Callable[..., ScriptedServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checks(exchange: Exchange) -> None:
        good = exchange.handler.headers["Authorization"] == "Bearer sk-secret-7"
        serving()(exchange) if good else exchange.fail(401)

    server = start(checks)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-7")
    spec = f"{server.url}#m"
    with Memory.open(tmp_path, embedder=spec) as memory:
        memory.add(TEXTS)
        assert b"sk-secret-7" not in bytes_of(tmp_path)
    assert b"sk-secret-7" not in bytes_of(tmp_path)
    for mode in ("w", "r"):
        with (
            pytest.raises(EmbedderError, match="OPENAI_API_KEY is not sent to an address") as error,
            Memory.open(tmp_path, mode=mode) as memory,
        ):  # type: ignore[arg-type]
            memory.retrieve("canoe")
        assert "sk-secret-7" not in str(error.value)
    with Memory.open(tmp_path, embedder=spec) as memory:
        assert memory.retrieve("canoe").hits[0].text == TEXTS[1]
    monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/")
    with Memory.open(tmp_path) as memory:
        assert memory.retrieve("canoe").hits[0].text == TEXTS[1]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("http://localhost:8000/v1", "the address of a server and a model"),
        ("http://localhost:8000/v1#", "the address of a server and a model"),
        ("HTTP://#m", "the address of a server and a model"),
        ("http://#m", "the address of a server and a model"),
        ("http://localhost:99999/v1#m", "the address of a server and a model"),
        ("http://[::1/v1#m", "the address of a server and a model"),
        ("http://me:sk-7@localhost/v1#m", "an address without a key"),
        ("http://localhost/v1?key=sk-7#m", "an address without a key"),
        ("https://sk-7@localhost/v1#m", "an address without a key"),
    ],
)
def test_addresses_that_are_none(spec: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=message) as error:
        Memory.open(tmp_path / "new", embedder=spec)
    assert "sk-7" not in str(error.value)
    assert not (tmp_path / "new").exists()


def test_a_server_that_moved(start: Callable[..., ScriptedServer], tmp_path: Path) -> None:
    first, second = start(serving()), start(serving(noise=0.005))
    with Memory.open(tmp_path, embedder=f"{first.url}#org/model:7b-q8_0") as memory:
        memory.add(TEXTS)
        memory.namespaces.create("nora").add("Nora keeps bees.")
    with Memory.open(tmp_path, embedder=f"{second.url}#org/model:7b-q8_0") as memory:
        assert memory.retrieve("canoe").hits[0].text == TEXTS[1]
        assert memory.namespaces["nora"].retrieve("bees").hits[0].text == "Nora keeps bees."
        memory.namespaces["nora"].add("Nora keeps goats.")
    first.close()
    with Memory.open(tmp_path) as memory:  # at the new address
        assert len(memory.namespaces["nora"]) == 2 and memory.check() == []


def test_reembedding_and_exports(start: Callable[..., ScriptedServer], tmp_path: Path) -> None:
    server = start(serving())
    with Memory.open(tmp_path / "a", embedder="hashing:32") as memory:
        memory.add(TEXTS)
    spec = f"{server.url}#m"
    assert main(["store", "reembed", "--store", str(tmp_path / "a"), "--embedder", spec]) == 0
    with Memory.open(tmp_path / "a") as memory:
        assert memory.embedder.name == spec
        memory.export(tmp_path / "out.jsonl")
    asked = len(server.requests)
    with Memory.open(tmp_path / "b", embedder=spec) as memory:
        assert memory.import_(tmp_path / "out.jsonl").new == 3
        assert memory.retrieve("canoe").hits[0].text == TEXTS[1]
        sent = [text for request in server.requests[asked:] for text in request["input"]]
        assert memory.check() == [] and len(sent) < 100


def test_threads_and_a_running_event_loop(start: Callable[..., ScriptedServer]) -> None:
    embedder = quick(start(serving()))
    texts = [f"text {i}" for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        parts = [texts[i::8] for i in range(8)]
        found = list(pool.map(lambda part: embedder.encode(part).pooled, parts))
    for part, pooled in zip(parts, found, strict=True):
        assert np.allclose(pooled, hashed(part), atol=1e-6)

    async def inside() -> int:
        with Memory.open(embedder=embedder) as memory:
            await memory.aio.add(TEXTS[:1])
            return memory.add(TEXTS[1:]).new

    assert asyncio.run(inside()) == 2


def test_two_machines_begin_a_store_at_once(
    start: Callable[..., ScriptedServer], tmp_path: Path
) -> None:
    one, other = quick(start(serving())), quick(start(serving(noise=0.01)))
    with Memory.open(tmp_path, embedder=one) as memory:
        with Memory.open(tmp_path, embedder=other) as second:
            second.add(TEXTS[0])
        with contextlib.suppress(EmbedderError):
            memory.add(TEXTS[1])
    with Memory.open(tmp_path, embedder=one) as memory:
        assert memory.check() == [] and len(memory) in (1, 2)
