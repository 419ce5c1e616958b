"""`GraphMemRetriever` and `GraphMemVectorStore` in the standard suites of LangChain, and alone."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("langchain_tests")
pytest.importorskip("pytest_asyncio")

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_tests.integration_tests import (
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)

from graphmem_torch import Memory
from graphmem_torch.errors import EmbedderError, InputError, StoreError
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
        with GraphMemVectorStore(embedding="hashing", concepts="pattern") as store:
            yield store


class TestVectorStoreWithEmbeddings(VectorStoreIntegrationTests):
    """The same with the suite's own embeddings, and on a disk."""

    pytestmark = _RUN_ASYNC

    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[VectorStore]:
        with GraphMemVectorStore(
            tmp_path / "store", self.get_embeddings(), concepts="pattern"
        ) as s:
            yield s


@pytest.fixture(scope="module")
def filled() -> Iterator[Memory]:
    with Memory.open(embedder="hashing", concepts="pattern") as memory:
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


# Alone.

METADATA: list[dict[str, Any]] = [
    {"page": 1, "tags": ["a", "b"], "source": "x.pdf", "big": 10**30, "n": None},
    {"page": 2, "tags": [], "source": "y.pdf", "deep": {"x": {"y": [1.5, True, "Ü🎻"]}}},
    {"page": 3.5, "tags": ["b"], "-0": -0.0, "small": 5e-324},
    {},
]


@pytest.fixture
def store() -> Iterator[GraphMemVectorStore]:
    names = [f"d{i}" for i in range(4)]
    with GraphMemVectorStore.from_texts(
        TEXTS, "hashing", METADATA, ids=names, concepts="pattern"
    ) as made:
        yield made


def names(documents: list[Document]) -> list[str | None]:
    return [each.id for each in documents]


def test_metadata_come_back_exactly(store: GraphMemVectorStore, tmp_path: Path) -> None:
    documents = store.get_by_ids(["d0", "d1", "d2", "d3", "d0", "none"])
    assert names(documents) == ["d0", "d1", "d2", "d3"]
    assert [repr(each.metadata) for each in documents] == [repr(each) for each in METADATA]
    found = {each.id: each for each in store.similarity_search("Nora", k=4)}
    assert [repr(found[f"d{i}"].metadata) for i in range(4)] == [repr(each) for each in METADATA]
    documents[0].metadata["page"] = 9  # a copy
    assert store.get_by_ids(["d0"])[0].metadata["page"] == 1
    for path in (tmp_path / "s", tmp_path / "s"):  # made, and opened again
        with GraphMemVectorStore(path, "hashing", concepts="pattern") as other:
            other.add_texts(TEXTS, METADATA, ids=["d0", "d1", "d2", "d3"])
            assert other.get_by_ids(["d2"])[0].metadata == METADATA[2]
            assert len(other.memory) == 4


@pytest.mark.parametrize(
    "filter",
    [
        {"page": 1},
        {"page": {"$gte": 2}},
        {"tags": {"$contains": "b"}},
        {"source": {"$in": ["x.pdf", "z.pdf"]}, "page": {"$lt": 3}},
        {"$or": [{"page": 1}, {"deep": {"x.y": {"$contains": True}}}]},
        {"$not": {"source": "x.pdf"}},
        {"page": {"$exists": False}},
        lambda document: "oven" in document.page_content,
        lambda document: False,
        {},
        None,
    ],
)
def test_filters(store: GraphMemVectorStore, filter: Any) -> None:
    expected = {
        0: {"d0"},
        1: {"d1", "d2"},
        2: {"d0", "d2"},
        3: {"d0"},
        4: {"d0", "d1"},
        5: {"d1", "d2", "d3"},
        6: {"d3"},
        7: {"d1"},
        8: set(),
    }
    cases = test_filters.pytestmark[0].args[1]  # type: ignore[attr-defined]
    wanted = expected.get(cases.index(filter), {"d0", "d1", "d2", "d3"})
    vector = store.embeddings.embed_query("Nora")
    assert set(names(store.similarity_search("Nora", k=9, filter=filter))) == wanted
    assert set(names(store.similarity_search_by_vector(vector, k=9, filter=filter))) == wanted
    diverse = store.max_marginal_relevance_search("Nora", k=9, filter=filter)
    assert set(names(diverse)) == wanted
    retriever = store.as_retriever(search_kwargs={"k": 9, "filter": filter})
    assert set(names(retriever.invoke("Nora"))) == wanted


def test_vectors_are_searched_as_by_a_plain_loop() -> None:
    embeddings = DeterministicFakeEmbedding(size=12)
    texts = [f"text {i}" for i in range(60)]
    ids = [str(i) for i in range(60)]
    plain = InMemoryVectorStore(embeddings)
    plain.add_texts(texts, ids=ids)
    with GraphMemVectorStore.from_texts(texts, embeddings, ids=ids, concepts="pattern") as store:
        assert store.embeddings is embeddings
        for question in ("text 7", "another"):
            vector = embeddings.embed_query(question)
            own = store.similarity_search_with_score_by_vector(vector, k=20)
            other = plain.similarity_search_with_score_by_vector(vector, k=20)
            assert names([each for each, _ in own]) == names([each for each, _ in other])
            assert [score for _, score in own] == pytest.approx([s for _, s in other], abs=1e-5)
            for weight in (0.0, 0.3, 1.0):
                found = [
                    names(each.max_marginal_relevance_search_by_vector(vector, 5, 30, weight))
                    for each in (store, plain)
                ]
                assert found[0] == found[1]
        assert store.similarity_search("text 7", k=1)[0].id == "7"
        rows = store.memory.store.embeddings()
        made = np.array(embeddings.embed_documents(texts[:1]))[0]
        assert rows[0].numpy() == pytest.approx(made / np.linalg.norm(made), abs=1e-5)


class Asymmetric(Embeddings):
    """Counts calls; questions are encoded otherwise than documents."""

    model = "halves"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[1.0 + len(text), 1.0, 0.0] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [0.0, 1.0, 1.0]


def test_questions_have_their_own_encoding(tmp_path: Path) -> None:
    with GraphMemVectorStore(tmp_path / "store", Asymmetric(), concepts="pattern") as store:
        store.add_texts(["short", "a longer text than the first"], ids=["a", "b"])
        query = store.memory.tensors.encode("anything").embedding[0]
        assert query.tolist() == pytest.approx([0, 0.5**0.5, 0.5**0.5], abs=1e-6)
        assert "Asymmetric:halves" in store.memory.embedder.name
    with pytest.raises(EmbedderError):
        GraphMemVectorStore(tmp_path / "store", DeterministicFakeEmbedding(size=3))
    with GraphMemVectorStore(tmp_path / "store", Asymmetric(), concepts="pattern") as store:
        assert len(store.memory) == 2


def test_documents_are_replaced_by_id_and_deleted(store: GraphMemVectorStore) -> None:
    again = [
        Document(id="d1", page_content="Bertrand sells ovens.", metadata={"page": 7}),
        Document(id="new", page_content="Nora went home."),
        Document(id="new", page_content="Nora came home."),
        Document(page_content="Without a name."),
    ]
    made = store.add_documents(again, batch_size=2)
    assert made[:3] == ["d1", "new", "new"] and again[3].id is None
    assert store.get_by_ids(["d1", "new"]) == [again[0], again[2]]
    assert [each.atom.text for each in store.memory.facts.versions("d1")] == [
        TEXTS[1],
        "Bertrand sells ovens.",
    ]
    store.memory.add({"id": "turn", "speaker": "Ida", "text": "Nora, come here!"})
    assert store.similarity_search("Ida: come here", k=1)[0].page_content == "Ida: Nora, come here!"
    assert store.delete(["d0", "gone", "d0"]) is True
    assert names(store.get_by_ids(["d0", "d1"])) == ["d1"]
    assert store.delete() is True
    assert [atom.id for atom in store.memory] == ["turn"]
    assert store.memory.check() == []


def test_scores_are_probabilities(store: GraphMemVectorStore) -> None:
    found = store.similarity_search_with_score("Who restores ovens?", k=4)
    scores = [score for _, score in found]
    assert found[0][0].id == "d1" and scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    relevance = store.similarity_search_with_relevance_scores("Who restores ovens?", k=4)
    assert [score for _, score in relevance] == scores
    few = store.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"score_threshold": scores[1]}
    )
    assert names(few.invoke("Who restores ovens?")) == names([each for each, _ in found[:2]])


def test_async_twins(store: GraphMemVectorStore) -> None:
    async def run() -> None:
        question = "Who restores ovens?"
        assert await store.asimilarity_search(question) == store.similarity_search(question)
        scored = await store.asimilarity_search_with_score(question, k=2)
        assert scored == store.similarity_search_with_score(question, k=2)
        vector = store.embeddings.embed_query(question)
        near = await store.asimilarity_search_by_vector(vector, k=2)
        assert near == store.similarity_search_by_vector(vector, k=2)
        diverse = await store.amax_marginal_relevance_search(question, k=2)
        assert diverse == store.max_marginal_relevance_search(question, k=2)
        assert await store.aadd_texts(["One."], ids=["one"]) == ["one"]
        assert names(await store.aget_by_ids(["one"])) == ["one"]
        assert await store.adelete(["one"]) is True
        made = await GraphMemVectorStore.afrom_texts(
            ["One."], "hashing", ids=["one"], concepts="pattern"
        )
        assert names(await made.asimilarity_search("one", k=3)) == ["one"]
        made.close()

    asyncio.run(run())


def test_retriever_says_what_is_known_of_a_memory(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "store", embedder="hashing", concepts="pattern") as memory:
        memory.add(
            [
                {"id": "a", "speaker": "Theo", "time": 86400, "text": "The comet is near."},
                {"id": "b", "text": "A comet.", "meta": {"score": "own", "page": 1}},
            ]
        )
    with GraphMemRetriever(tmp_path / "store", k=2) as retriever:
        found = {each.id: each for each in retriever.invoke("Where is the comet?")}
        assert found["a"].page_content == "Theo: The comet is near."
        assert found["a"].metadata["speaker"] == "Theo" and found["a"].metadata["time"] == 86400
        assert 0 <= found["a"].metadata["score"] <= 1
        assert found["b"].metadata == {"score": "own", "page": 1, "kind": "chunk"}
        (only,) = asyncio.run(retriever.ainvoke("Where is the comet?", k=1))
        assert only.id in found
        chained = retriever | (lambda documents: len(documents))
        assert chained.invoke("comet") == 2
    with pytest.raises(StoreError, match="closed"):
        retriever.invoke("comet")
    with Memory.open(tmp_path / "store") as memory:
        theo = GraphMemRetriever(memory=memory, where={"speaker": "Theo"})
        assert names(theo.invoke("comet")) == ["a"]
        theo.close()
        assert len(memory) == 2  # still open


def test_bad_input_is_one_clear_line(store: GraphMemVectorStore, tmp_path: Path) -> None:
    before = [*store.memory]
    bad: list[tuple[Any, str]] = [
        (lambda: store.add_texts([" "]), "expected text"),
        (lambda: store.add_texts(["a"], [{"t": dt.datetime(2024, 1, 1)}]), "what JSON can hold"),
        (lambda: store.add_texts(["a"], [{"t": {1: "x"}}]), r"names: .* got 1 \(int\)"),
        (lambda: store.add_texts(["a"], [{"t": float("nan")}]), "what JSON can hold, got nan"),
        (lambda: store.add_texts(["a"], [{"t": "\ud800"}]), "half of a surrogate pair"),
        (lambda: store.add_texts(["a", "b"], ids=["1"]), "ids: expected one for each of"),
        (lambda: store.add_texts(["a", "b"], [{}]), "metadatas: expected one for each of"),
        (lambda: store.add_texts(["a"], ids=["concept:a"]), "concept"),
        (lambda: store.similarity_search(""), "question"),
        (lambda: store.similarity_search("a", k=0), "k: expected"),
        (lambda: store.similarity_search("a", filter=[1]), "filter: expected conditions"),
        (lambda: store.similarity_search("a", filter={"p": {"$near": 1}}), "near"),
        (lambda: store.similarity_search_by_vector([1.0]), "vector: expected 64 finite numbers"),
        (lambda: store.similarity_search_by_vector([float("nan")] * 64), "vector: expected"),
        (lambda: store.similarity_search_by_vector("x"), "vector: expected numbers, got 'x'"),  # type: ignore[arg-type]
        (lambda: store.similarity_search_by_vector(None), "vector: expected numbers, got None"),  # type: ignore[arg-type]
        (lambda: GraphMemVectorStore(store.memory, "hashing"), "embedder: expected no options"),
        (lambda: GraphMemVectorStore(7), "memory: expected a path or a `Memory`"),  # type: ignore[arg-type]
        (lambda: GraphMemRetriever(memory=store.memory, k=0), "greater than or equal to 1"),
        (lambda: GraphMemRetriever(memory=7), "expected a path or a `Memory`"),
        (lambda: GraphMemRetriever(store.memory, wher={"page": 1}), "did you mean 'where'"),
        (lambda: GraphMemRetriever(embeder="hashing"), "did you mean 'options.embedder'"),
        (lambda: store.delete("d0"), "ids: expected a list of ids, got 'd0'"),
        (lambda: store.get_by_ids("d0"), "ids: expected a list of ids, got 'd0'"),
        (lambda: store.add_texts(["a", "b"], ids="12"), "ids: expected a list of ids, got '12'"),
        (lambda: store.add_texts(["a"], ids=["\ud800"]), "ids: .*half of a surrogate pair"),
        (lambda: store.add_texts([5]), "texts: expected strings, got 5"),  # type: ignore[list-item]
        (lambda: store.add_documents(["a"]), "documents: expected a list of `Document`"),  # type: ignore[list-item]
        (lambda: store.similarity_search("a", filter={"$and": [5]}), "filter: .* got 5"),
    ]
    for call, said in bad:
        with pytest.raises(ValueError, match=said) as caught:
            call()
        if isinstance(caught.value, InputError):
            assert "\n" not in str(caught.value)
    assert [*store.memory] == before
    GraphMemVectorStore(tmp_path / "s", "hashing").close()
    with GraphMemVectorStore(tmp_path / "s", mode="r") as read:
        assert read.similarity_search("a") == []
        for write in (lambda: read.add_texts(["a"]), lambda: read.delete()):
            with pytest.raises(StoreError, match="read"):
                write()


def test_one_id_as_a_string_deletes_no_documents_of_its_letters(store: GraphMemVectorStore) -> None:
    store.add_texts(["One.", "Two.", "Twelve."], ids=["1", "2", "12"])
    with pytest.raises(InputError, match=r"write \['12'\]"):
        store.delete("12")
    assert names(store.get_by_ids(["1", "2", "12"])) == ["1", "2", "12"]
    assert store.delete(["12"]) and names(store.get_by_ids(["1", "2", "12"])) == ["1", "2"]


def test_a_store_of_texts_that_are_refused_is_closed(tmp_path: Path) -> None:
    made: list[GraphMemVectorStore] = []

    class Kept(GraphMemVectorStore):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    with pytest.raises(InputError, match="expected text"):
        Kept.from_texts(["One.", " "], "hashing", memory=tmp_path / "s", concepts="pattern")
    with pytest.raises(StoreError, match="closed"):
        made[0].similarity_search("one")


def test_metadatas_may_be_missing_for_some_texts(store: GraphMemVectorStore) -> None:
    given: Any = [None, {"page": 2}]
    ids = store.add_texts(["One.", "Two."], given)
    assert [each.metadata for each in store.get_by_ids(ids)] == [{}, {"page": 2}]
