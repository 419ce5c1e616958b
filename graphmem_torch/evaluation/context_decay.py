"""The decay table (ContextOS, table 2): what memories of each type keep after some days."""

from __future__ import annotations

from dataclasses import replace

from graphmem_torch.atoms import MEMORY_TYPES, Atom
from graphmem_torch.config import Config
from graphmem_torch.memory import Memory

__all__ = ["DAYS", "judge_decay"]

DAYS: tuple[int, ...] = (0, 1, 7)

_DAY = 86_400.0
_BORN = 1_700_000_000.0  # seconds since the epoch


def judge_decay(config: Config) -> dict[str, dict[str, float]]:
    """Strength of one memory of each type, centrality left out, days after it was last used.

    Asked of a real memory, not computed from the half-lives.
    """
    # Alone in its memory every atom is as central as any.
    config = replace(config, decay=replace(config.decay, centrality=0.0))
    atoms = [
        Atom(id=name, text=f"A memory that is {name}.", type=name, time=_BORN)
        for name in MEMORY_TYPES
    ]
    with Memory.open(None, config=config, embedder="hashing", device="cpu") as memory:
        memory.add(atoms)
        kept = {day: memory.strength(list(MEMORY_TYPES), as_of=_BORN + day * _DAY) for day in DAYS}
    return {name: {str(day): kept[day][name] for day in DAYS} for name in MEMORY_TYPES}
