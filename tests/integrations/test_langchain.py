"""`GraphMemRetriever` and `GraphMemVectorStore` in the standard suites of LangChain, and alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("langchain_tests")

from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import (
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)

from graphmem_torch import Memory
from graphmem_torch.integrations.langchain import GraphMemRetriever, GraphMemVectorStore

# A mark of the whole class, as the suites do not mark their async tests themselves.
_RUN_ASYNC = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("ignore:The test .* is marked with '@pytest.mark.asyncio'"),
]

TEXTS = [
    "Nora packed a red coat for Lisbon.",
    "Bertrand restores old ovens.",
    "The comet is seen in May.",
    "Nora plays the cello on Sundays.",
]


class TestVectorStore(VectorStoreIntegrationTests):
    pytestmark = _RUN_ASYNC

    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:
        with GraphMemVectorStore(embedding="hashing") as store:
            yield store


class TestVectorStoreWithEmbeddings(VectorStoreIntegrationTests):
    """The same with the suite's own embeddings, and on a disk."""

    pytestmark = _RUN_ASYNC

    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[VectorStore]:
        with GraphMemVectorStore(tmp_path / "store", self.get_embeddings()) as store:
            yield store


@pytest.fixture(scope="module")
def filled() -> Iterator[Memory]:
    with Memory.open(embedder="hashing") as memory:
        memory.add([{"id": f"m{i}", "text": text} for i, text in enumerate(TEXTS)])
        yield memory


class TestRetriever(RetrieversIntegrationTests):
    pytestmark = _RUN_ASYNC
    filled: Memory

    @pytest.fixture(autouse=True)
    def _given(self, filled: Memory) -> None:
        type(self).filled = filled

    @property
    def retriever_constructor(self) -> type[GraphMemRetriever]:
        return GraphMemRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"memory": self.filled}

    @property
    def retriever_query_example(self) -> str:
        return "Where is Nora?"
