"""Feedback: which memories helped with a question, as a caller or an answer says."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from graphmem_torch.errors import InputError
from graphmem_torch.memory.state import State
from graphmem_torch.results import Answer

__all__ = ["note_cited", "record_feedback"]


Named = tuple[Sequence[str], Sequence[int]]
"""Ids of atoms of one store, and their nodes."""


def record_feedback(
    states: Sequence[State], question: str, used: Sequence[Named], not_used: Sequence[Named]
) -> None:
    """Record which memories helped with a question; in the turn of all stores.

    Args:
        states: The stores; each records its own memories.
        question: The question.
        used: Memories of each store that helped.
        not_used: Memories of each store that did not.

    Raises:
        InputError: No memory at all, or one that is both used and not.
    """
    ours, theirs = ([name for names, _ in each for name in names] for each in (used, not_used))
    if not ours and not theirs:
        raise InputError(
            "used, not_used: expected ids of memories that helped or did not, got none of either; "
            "name at least one"
        )
    both = next((name for name in ours if name in set(theirs)), None)
    if both is not None:
        raise InputError(
            f"used, not_used: expected different memories, got {both!r:.80} in both; name it once"
        )
    now = states[0].clock()
    for state, (_, yes), (_, no) in zip(states, used, not_used, strict=True):
        if yes or no:
            state.store.learned.give(question, yes, no, now)


def note_cited(states: Sequence[State], answers: Sequence[Answer]) -> None:
    """Record cited memories as used, and as feedback against the other memories of the answer.

    Each store records its own memories; those of one answer have one time.

    Args:
        states: The stores of the memories.
        answers: Answers that cite some.
    """
    if states[0].store.readonly:
        return
    given, now = {name for answer in answers for name in answer.context.sources}, states[0].clock()
    # Cited memories may have been deleted while the model answered.
    stored = [
        {name: number for name, (number, _) in state.store.known([*given]).items()}
        for state in states
    ]
    for state, node in zip(states, stored, strict=True):
        state.note_uses([node[n] for answer in answers for n in answer.cited if n in node])
    there = {name for node in stored for name in node}
    pinned = {name for state in states for name in state.store.life.pinned()}
    for answer in answers:
        used = [name for name in answer.cited if name in there]
        # Pinned memories are in every context, so ignoring one says nothing about the question.
        left = ({*answer.context.sources} & there) - {*answer.cited} - pinned
        for state, node in zip(states, stored, strict=True) if used and left else ():
            ours = [node[name] for name in used if name in node]
            theirs = [node[name] for name in left if name in node]
            if ours or theirs:
                record = state.store.learned.add_feedback
                state.store.uses.write_behind(partial(record, answer.question, ours, theirs, now))
