"""Roomy memory: the tensors of a memory in buffers with room, so that additions keep their place.

A CUDA graph reads the tensors of its recording, at their sizes. So a memory that grows is copied
into larger buffers, whose last entries stand for nothing: atoms that no question finds, nodes that
nothing reaches, a term that nobody asks for. The last row of compressed lists has the unused
entries. What a recording would take from the host is a tensor too: the number of atoms, and the
weight of a term that one atom has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from graphmem_torch.index.buffer_schema import LAYOUT
from graphmem_torch.index.buffers import memory_parts, memory_tensors
from graphmem_torch.ops.growing import RowsOnDevice
from graphmem_torch.rank.anchors import SMALL_WALK
from graphmem_torch.rank.memory_tensors import MemoryTensors, Room, turn_pointers

__all__ = ["RoomyMemory"]

_LEAST, _SHARE = 16, 4  # spare entries of a buffer: at least so many, else one in so many
_GROWN = ("embeddings", "tokens")  # rows that have room on their device already
_ENTRIES = {"A", "N", "E", "sessions", "D", "F", "P", "Q", "V", "H", "L", "C"}
_UNKNOWN = int(torch.tensor(torch.nan, dtype=torch.float64).view(torch.int64))
_FILLING = {"time_bits": _UNKNOWN, "bm25_norm": 1, "session_bm25_norm": 1}
_RULES = {name: rule.split()[1:] for name, rule in LAYOUT.items()}


class RoomyMemory:
    """Buffers with room for a memory that grows.

    Attributes:
        memory: The buffers; they keep their addresses.
    """

    def __init__(self, memory: MemoryTensors, grown: Mapping[str, Tensor]) -> None:
        """Copy a memory; `grown` are its largest buffers with the room that they have."""
        self._grown = grown
        parts = memory_parts(memory)
        self._sizes = {
            letter: count + max(_LEAST, count // _SHARE) if count else 0
            for letter, count in _counts(parts).items()
        } | _counts(grown)
        most = memory.most_derived
        self._most_derived = most and 1 << (most - 1).bit_length()
        self._buffers = self._padded(parts)
        self._computed = self._computed_of(memory)
        self.memory = self._assembled()

    @classmethod
    def of(cls, memory: MemoryTensors, rows: Mapping[str, RowsOnDevice]) -> RoomyMemory | None:
        """Return buffers for a memory whose largest rows have room; None if they have none.

        A memory with modes has none either: modes are computed anew as it grows.
        """
        grown = {name: rows[name].whole for name in _GROWN if name in rows}
        if memory.modes is not None or not _begins(memory, grown):
            return None
        if len(grown["embeddings"]) <= memory.num_atoms:
            return None
        found = cls(memory, grown)
        # Only in a large graph does a walk rank the nodes.
        crosses = memory.graph.num_nodes <= SMALL_WALK < found.memory.graph.num_nodes
        return None if crosses else found

    @property
    def bytes(self) -> int:
        """Size of the buffers, without the rows that had room before."""
        return sum(each.nbytes for each in (*self._buffers.values(), *self._computed.values()))

    def take(self, memory: MemoryTensors) -> bool:
        """Copy another state of the memory; False, without a change, if it does not fit."""
        parts = memory_parts(memory)
        fits = (
            memory.modes is None
            and _begins(memory, self._grown)
            and self._fit(parts)
            and memory.most_derived <= self._most_derived
        )
        if not fits:
            return False
        fresh = {**self._padded(parts), **self._computed_of(memory)}
        own = {**self._buffers, **self._computed}
        if fresh.keys() != own.keys():
            return False
        torch._foreach_copy_([own[name] for name in fresh], [*fresh.values()])
        return True

    def _fit(self, parts: Mapping[str, Tensor]) -> bool:
        """Return whether the parts have the types of the buffers, and leave one entry unused."""
        if {*parts} - {*_GROWN} != self._buffers.keys():
            return False
        for name, buffer in self._buffers.items():
            part, (letter, _, _) = parts[name], _RULES[name][0].split(",")[0].partition("+")
            same = part.shape[1:] == buffer.shape[1:] and part.dtype == buffer.dtype
            if not same or (letter not in self._sizes and part.shape != buffer.shape):
                return False
        return all(
            count < self._sizes[letter] or count == self._sizes[letter] == 0
            for letter, count in _counts(parts).items()
        )

    def _padded(self, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the parts as long as their buffers."""
        return {
            name: self._lengthened(name, part) for name, part in parts.items() if name not in _GROWN
        }

    def _lengthened(self, name: str, part: Tensor) -> Tensor:
        shape, *bounds = _RULES[name]
        letter, more, _ = shape.split(",")[0].partition("+")
        if letter not in self._sizes:
            return part.clone()
        count = self._sizes[letter] + bool(more)
        if bounds[:1] != ["to"]:
            low, high = bounds or ("0", "")
            unused = -1 if low == "-1" else self._sizes.get(high, 1) - 1
            return _longer(part, count, _FILLING.get(name, unused))
        found = torch.cat([part, part[-1:].expand(count - len(part))])
        if name != "token_offsets":  # the last row has the unused entries
            found[-1] = self._sizes[bounds[1]]
        return found

    def _computed_of(self, memory: MemoryTensors) -> dict[str, Tensor]:
        """Return what is computed once from a state, as long as the buffers."""
        size, device = self._sizes, memory.embeddings.device
        count = torch.full((), memory.num_atoms, device=device)
        begin, source = memory.derivations
        found = {
            "count": count,
            "terms": torch.full((), len(memory.bm25.idf), device=device),
            "there": torch.arange(size["A"], device=device) < count,
            "rarest": torch.full((), memory.rarest, dtype=torch.float64, device=device),
            "derived_begin": torch.cat([begin, begin[-1:].expand(size["A"] + 1 - len(begin))]),
            "derived": _longer(source, size["D"]),
            "underived": _longer(memory.underived, size["A"]),
            "turns": turn_pointers(
                *(_longer(each, size["A"], -1) for each in (memory.next, memory.previous))
            )[0],
        }
        for name, entries, lexical in (
            ("bm25", "P", memory.bm25),
            ("session_bm25", "Q", memory.session_bm25),
        ):
            found[f"{name}_scores"] = _longer(lexical.scores, size[entries])
            found[f"{name}_sums"] = _longer(lexical.term_sums, size["V"])
        if memory.asked_key is not None:
            found["questions"] = _longer(memory.list_of_questions, size["A"])
        if memory.hops is not None:
            found["bearers"] = _longer(memory.title_bearers, size["A"])
        if memory.length_trend is not None:
            found["trend"] = memory.length_trend.clone()
        return found

    def _assembled(self) -> MemoryTensors:
        """Return the buffers as a memory, and what is computed from it as known."""
        own = self._computed
        made = memory_tensors({**self._buffers, **self._grown})
        lexical = {
            name: getattr(made, name).knowing(own[f"{name}_scores"], own[f"{name}_sums"])
            for name in ("bm25", "session_bm25")
        }
        begin = torch.tensor([[0], [self._sizes["A"] + 1]], device=made.embeddings.device)
        return replace(
            made, **lexical, room=Room(own["count"], own["there"], own["terms"])
        ).knowing(
            rarest=own["rarest"],
            derivations=(own["derived_begin"], own["derived"]),
            most_derived=self._most_derived,
            underived=own["underived"],
            turns=(own["turns"], begin),
            list_of_questions=own.get("questions"),
            title_bearers=own.get("bearers"),
            length_trend=own.get("trend"),
        )


def _counts(parts: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the numbers of entries of parts, by the letters of their shapes in `LAYOUT`."""
    found: dict[str, int] = {}
    for name, part in parts.items():
        letter, more, _ = _RULES[name][0].split(",")[0].partition("+")
        if letter in _ENTRIES or name == "tokens":
            found.setdefault(letter, len(part) - bool(more))
    return found


def _begins(memory: MemoryTensors, grown: Mapping[str, Tensor]) -> bool:
    """Return whether the largest tensors of a memory begin the given rows."""
    parts = {"embeddings": memory.embeddings, "tokens": memory.tokens}
    there = {name: part for name, part in parts.items() if part is not None}
    return there.keys() == grown.keys() and all(
        part.data_ptr() == grown[name].data_ptr() and len(part) <= len(grown[name])
        for name, part in there.items()
    )


def _longer(part: Tensor, count: int, value: float = 0) -> Tensor:  # [n, ...] -> [count, ...]
    """Return a part with `value` after its end."""
    return torch.cat([part, part.new_full((count - len(part), *part.shape[1:]), value)])
