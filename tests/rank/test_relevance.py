"""Relevance against loops over cosines and words."""

import pytest
import torch

from graphmem_torch import Memory
from graphmem_torch.rank.relevance import word_share
from graphmem_torch.text.terms import terms

SAID = (
    "The spare key of the boat house is under the flower pot.",
    "Yes.",
    "I agree.",
    "The boat house needs paint.",
    "Did you lock the boat house?",
    "Sure.",
)
ASKED = ("Where is the spare key of the boat house?", "Who agrees?", "???")


def test_relevance_is_the_larger_of_cosine_and_share_of_words() -> None:
    with Memory.open(None, embedder="hashing") as memory:
        memory.add(
            [{"text": text, "session": "s", "time": 60.0 * i} for i, text in enumerate(SAID)]
        )
        query = memory.tensors.encode(ASKED)
        index = memory.index
        rows = torch.arange(len(SAID)).expand(len(ASKED), -1).contiguous()
        rows[1, 3] = -1
        found = index.relevance(query, rows)
        cosine = query.embedding @ index.embeddings.T
        held = [set(terms(text)) for text in SAID]
        vocabulary = set().union(*held)

        def own(b: int, a: int) -> float:
            known = [t for t in terms(ASKED[b]) if t in vocabulary]
            idf = {t: sum(t in each for each in held) for t in known}
            count = len(SAID)
            idf = {
                t: float(torch.log1p(torch.tensor((count - n + 0.5) / (n + 0.5))))
                for t, n in idf.items()
            }
            total = sum(idf[t] for t in known)
            share = sum(idf[t] for t in known if t in held[a]) / total if total else 0.0
            return min(1.0, max(0.0, float(cosine[b, a]), share))

        for b in range(len(ASKED)):
            for a in range(len(SAID)):
                wanted = own(b, a)
                if a and SAID[a - 1].endswith("?"):
                    wanted = max(wanted, own(b, a - 1))
                wanted = 0.0 if (b, a) == (1, 3) else wanted
                assert float(found[b, a]) == pytest.approx(wanted, abs=1e-5), (b, a)


def test_word_share_counts_words_that_no_memory_has() -> None:
    asked = ("Where is the spare key of the zeppelin?", "Zeppelins and quarks", "???")
    with Memory.open(None, embedder="hashing") as memory:
        memory.add([{"text": text} for text in SAID])
        query = memory.tensors.encode(asked)
        rows = torch.arange(len(SAID)).expand(len(asked), -1).contiguous()
        found = word_share(memory.index.tensors, query, rows)
    held = [set(terms(text)) for text in SAID]
    count = len(SAID)
    for b, question in enumerate(asked):
        own = terms(question)
        # A word of no memory counts as one that a single memory has.
        has = {t: max(1, sum(t in each for each in held)) for t in own}
        idf = {
            t: float(torch.log1p(torch.tensor((count - n + 0.5) / (n + 0.5))))
            for t, n in has.items()
        }
        total = sum(idf[t] for t in own)
        best = max(sum(idf[t] for t in own if t in each) for each in held) / total if total else 0.0
        assert float(found[b]) == pytest.approx(best, abs=1e-5), question
