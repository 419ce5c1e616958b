"""Questions in scripts that an encoder cannot read: the weight that BM25 needs.

`python -m bench.languages [--embedder NAME] [--weights 0 8 20 40] [--json OUT]`

Uses the small memories of `tests/languages.py`, eight languages with eight questions each, and
mixtures: memories beside English ones, questions in an English frame, all languages in one memory,
and English questions about a person whose name is in another script. In the last case, three other
memories share the name, and one contains only the name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from bench.command import command
from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.memory import Memory
from graphmem_torch.quality.common.encoder import CachingEmbedder, caching
from graphmem_torch.quality.common.measure import code_version
from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.sentence_transformer import load_embedder
from tests.languages import LANGUAGES

__all__ = ["Case", "Languages", "cases", "main", "right"]

_SIGNAL = "lexical_unread"
_NAMES = ("小明", "健太", "สมชาย", "रोहन", "خالد", "Катя", "민수")
_SAID = (
    "{} moved to Berlin last week and lives above a bakery.",
    "{} is allergic to peanuts.",
    "{} rides an old red bicycle to the office.",
    "{} teaches mathematics at the village school.",
    "My sister has two cats.",
    "Grandma cooks the best stew.",
    "We take the train to the mountains next summer.",
    "The doctor told mother to drink less coffee.",
    "I borrowed a book about volcanoes.",
    "The budget meeting is on Wednesday.",
    "Anna lives in Madrid.",
    "Peter must not eat shellfish.",
)
_ASKED = (
    "Where does {} live now?",
    "Which food makes {} ill?",
    "How does {} commute?",
    "What subject does {} explain to pupils?",
)
_FRAMES = ("What about {}", "Tell me please: {}", "I forgot, {}")
_BESIDE = (
    *(text.format("Tom") for text in _SAID),
    "What about the question you asked me?",
    "Tell me please when you arrive.",
    "I forgot my umbrella at the office.",
    "Please tell me about it, I forgot.",
    "She asked me a question about the weather.",
    "The office is closed on Sundays.",
)


@dataclass(frozen=True)
class Languages:
    """Measure weights of BM25 for texts that an encoder cannot read.

    Attributes:
        embedder: Name of the encoder.
        weights: Values of `lexical_unread` to try.
        json: File to write the report to; standard output by default.
    """

    embedder: str = "all-MiniLM-L6-v2"
    weights: Annotated[tuple[float, ...], arg(metavar="W")] = (0.0, 4.0, 8.0, 12.0, 20.0, 40.0)
    json: Path | None = None


@dataclass(frozen=True)
class Case:
    """Memory, and questions with the place of the text that answers each.

    Attributes:
        kind: Kind of mixture.
        said: Texts.
        questions: Questions, each with a place in `said`.
    """

    kind: str
    said: Sequence[str]
    questions: Sequence[tuple[str, int]]


def cases() -> Iterator[Case]:
    """Yield all memories with their questions."""
    every: list[str] = []
    shifted: list[tuple[str, int]] = []
    for said, questions in LANGUAGES.values():
        beside = [*said, *_BESIDE]
        yield Case("alone", said, questions)
        yield Case("beside English", beside, questions)
        framed = [
            (_FRAMES[place % len(_FRAMES)].format(question), answer)
            for place, (question, answer) in enumerate(questions)
        ]
        yield Case("in an English frame", beside, framed)
        shifted += [(question, len(every) + answer) for question, answer in questions]
        every += said
    yield Case("all languages in one", [*every, *_BESIDE], shifted)
    for name in _NAMES:
        said = [*(text.format(name) for text in _SAID), name]
        asked = [(question.format(name), place) for place, question in enumerate(_ASKED)]
        yield Case("a name in English", said, asked)


def right(
    embedder: Embedder, weights: Sequence[float], asked: Iterable[Case]
) -> dict[str, dict[str, Any]]:
    """Return the questions of each kind whose answer comes first, by the weight of the signal."""
    config = load_config("default", {"link.concepts": "pattern"})
    cached = CachingEmbedder(embedder)
    found: dict[str, dict[str, Any]] = {}
    with caching([cached]):
        for case in asked:
            line = found.setdefault(case.kind, {"n": 0} | {f"{w:g}": 0 for w in weights})
            line["n"] += len(case.questions)
            with Memory.open(None, config=config, embedder=cached, device="cpu") as memory:
                memory.add([Atom(str(place), text) for place, text in enumerate(case.said)])
                for weight in weights:
                    memory.learning.use_weights({**config.rank.weights, _SIGNAL: weight})
                    results = memory.retrieve([question for question, _ in case.questions], k=1)
                    line[f"{weight:g}"] += sum(
                        bool(result.hits) and result.hits[0].id == str(answer)
                        for result, (_, answer) in zip(results, case.questions, strict=True)
                    )
    return found


def run(options: Languages) -> Mapping[str, Any]:
    """Return the report."""
    embedder = load_embedder(options.embedder, "cpu")
    return {
        "commit": code_version(),
        "encoder": embedder.name,
        "first": right(embedder, options.weights, cases()),
    }


def main(arguments: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Read the options, ask, and report how many answers come first."""
    return command(Languages, run, arguments, __doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
