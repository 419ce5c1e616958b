"""Names by their words and parts, against all names looked at one by one."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.memory.lexicon import Lexicon
from graphmem_torch.text.concepts import names_within, spelled
from graphmem_torch.text.naming import name_parts

WORDS = ["kiln", "kilns", "kïln", "o'brien", "new", "york", "--", "b2"]
NAMES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
STEPS = st.lists(st.tuples(st.booleans(), NAMES, st.integers(0, 5), st.booleans()), max_size=30)


def forms(word: str) -> Collection[str]:
    """Of a word that ends in s also what it is without; a mark is no run of letters."""
    return {spelled(word), spelled(word.removesuffix("s"))}


@given(STEPS, STEPS, st.lists(NAMES, max_size=3))
def test_names_are_found_by_what_a_text_says(
    first: list[tuple[bool, str, int, bool]],
    later: list[tuple[bool, str, int, bool]],
    texts: list[str],
) -> None:
    lexicon, concepts, others = Lexicon(), dict[str, int](), list[str]()
    bodies = [spelled(text) for text in texts]
    words = {word for body in bodies for word in body.split()}
    for steps in (first, later):
        for comes, name, concept, own in steps:
            if comes and name not in concepts:
                lexicon.put(name, concept, own=own)
                concepts[name] = concept
                others += [] if own else [name]
            elif not comes:
                lexicon.drop(name)
                concepts.pop(name, None)
                others = [other for other in others if other != name]
        assert list(lexicon.others) == others
        owners = [(name, own) for name, own in concepts.items() if name not in others]
        assert list(lexicon.owners()) == owners
        for concept in range(6):
            assert lexicon.of(concept) == [n for n, own in concepts.items() if own == concept]
        for name in concepts:
            assert name in lexicon and lexicon[name] == concepts[name]
            alike = [other for other in concepts if name_parts(other) == name_parts(name)]
            assert lexicon.alike(name) == [other for other in alike if other != name]
        near = lexicon.near(words, forms)
        assert len({*near}) == len(near) and {*near} <= {*others}
        for body in bodies:
            assert {*names_within(body, others, forms)} <= {*near}
