"""Bounds checks for index buffers, so that an untrusted snapshot cannot cause out-of-range reads.

A snapshot is derived data and can be rebuilt. One with inconsistent tensors is refused before use,
even if its checksum is right.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.errors import InputError

__all__ = ["LAYOUT", "WHOLE", "check_buffers"]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_DTYPES = {
    "float": _FLOATS,  # all of one type
    "carried": _FLOATS,
    "index": (torch.int32, torch.int64),
}

WHOLE = 128
"""Offset added to the type of a joint from an atom to a concept that it mentions itself."""

# Type; shape, where a letter is a size shared by all tensors; and bounds of the entries: numbers
# from `low` to `high` - 1, or `to X`, offsets that rise from 0 to X. Without bounds: any value.
LAYOUT = {
    "embeddings": "float A,d",
    "graph_indptr": "index N+1 to E",
    "graph_source": "index E 0 N",
    "graph_target": "index E 0 N",
    "graph_weight": "float E",
    "graph_type": f"uint8 E 0 {max(EdgeType) + 1}",
    "graph_out_indptr": "index N+1 to E",
    "graph_out_edge": "index E 0 E",
    "node": "int32 A 0 N",
    "atom": "int32 N -1 A",
    "named": "uint8 speakers",
    "kind": "int16 A 0 kinds",
    "speaker": "int32 A -1 speakers",
    "session": "int32 A 0 sessions",
    "time_bits": "int64 A",
    "time_order": "int32 A 0 A",
    "told_order": "int32 F 0 A",
    "month": "int8 A -1 12",
    "day": "int8 A -1 31",
    "said": "int32 A",
    "told": "int32 A,2",
    "log_words": "float A",
    "is_question": "float A",
    "tells_time": "float A",
    "role": "int8 A -1 2",
    "asked_key": "int64 A",
    "asked_words": "int16 A",
    "asked_bits": "int64 A",
    "asked_form": "int8 A 0 3",
    "previous": "int32 A -1 A",
    "next": "int32 A -1 A",
    "derived_source": "int32 D 0 A",
    "derived_target": "int32 D 0 A",
    "duplicate": "int32 A 0 A",
    "moment_bits": "int64 d+1,d",
    "bm25_indptr": "index V+1 to P",
    "bm25_docs": "int32 P 0 A",
    "bm25_counts": "int32 P",
    "bm25_norm": "float A",
    "bm25_idf": "float V",
    "session_bm25_indptr": "index V+1 to Q",
    "session_bm25_docs": "int32 Q 0 sessions",
    "session_bm25_counts": "int32 Q",
    "session_bm25_norm": "float sessions",
    "session_bm25_idf": "float V",
    "token_offsets": "int64 A+1 to T",
    "tokens": "int8 T,m",
    "piece_df": "int32 W+1 0 A+1",
    "direction": "float A,c",
    "component": "int32 A",
    "bridge_bonus": "float A",
    "pagerank": "float A",
    "resistance_far": "float A,r",
    "resistance_null": "float A",
    "resistance_scale": "float A",
    "sign_change": "float A",
    "modes_label": "int32 A 0 M",
    "modes_centroid": "float M,d",
    "modes_variance": "float M",
    "modes_size": "int32 M 0 A+1",
    "modes_order": "int32 A 0 A",
    "modes_offsets": "int32 M+1 to A",
    "modes_representative": "int64 M,3 -1 A",
    "modes_latest_bits": "int64 M",
    "modes_values_bits": "int64 K",
    "modes_residual_bits": "int64 K",
    "modes_figures_bits": "int64 8",
    "modes_right": "carried d,K",
    "hop_document": "bool A",
    "hop_title_key": "int64 A",
    "hop_mention_indptr": "index A+1 to H",
    "hop_mention_target": "int32 H 0 A",
    "hop_mention_weight": "float H",
    "hop_entity_indptr": "index A+1 to L",
    "hop_entity": "int32 L 0 C",
    "hop_entity_weight": "float L",
    "hop_bearer_indptr": "index C+1 to L",
    "hop_bearer": "int32 L 0 A",
    "hop_bearer_weight": "float L",
    "hop_entity_key": "int64 C",
    "follow_terms": "int32 O 0 V",
    "follow_pieces": "int32 T 0 W+1",
    "follow_term_offsets": "int64 A+1 to O",
    "follow_title": "int32 A",
    "follow_concept": "int32 B 0 N",
    "follow_lot": "int64 N",
    "follow_session_code": "int32 G -1 sessions",
    "follow_joint_ends": "int32 J,2 0 N",
    "follow_joint_type": f"uint8 J 0 {WHOLE + max(EdgeType) + 1}",
    "follow_arc_indptr": "int64 N+1 to R",
    "follow_arc_target": "int32 R 0 N",
    "follow_arc_type": f"uint8 R 0 {max(EdgeType) + 1}",
    "follow_arc_weight": "float R",
    "follow_rank": "carried N",
    "follow_rank_residual": "carried N",
}
"""Type, shape and bounds of each buffer of `MemoryIndex`, and of the `FOLLOWED` parts, by name."""

_RULES = {name: rule.split() for name, rule in LAYOUT.items()}
# Parts of one prefix come all together or not at all.
_TOGETHER = {
    prefix: {name for name in LAYOUT if name.startswith(prefix)}
    for prefix in ("modes_", "hop_", "token", "asked_")
}


def check_buffers(parts: Mapping[str, Tensor], **sizes: int) -> None:
    """Check the types and shapes of all tensors of an index, and that entries stay in range.

    Args:
        parts: Buffers by name; unknown names are ignored.
        sizes: Known values of the letters in `LAYOUT`.

    Raises:
        InputError: A tensor does not fit; names the first one.
    """
    for prefix, group in _TOGETHER.items():
        lacking = sorted(group - parts.keys())
        if lacking and group & parts.keys():
            raise _wrong(lacking[0], f"it beside other parts of {prefix!r}", "none")
    known = dict(sizes)
    rules = {name: rule for name, rule in _RULES.items() if name in parts}
    floats: torch.dtype | None = None
    for name, (dtype, shape, *_) in rules.items():
        tensor, wanted = parts[name], shape.split(",")
        if tensor.dtype not in _DTYPES.get(dtype, (getattr(torch, dtype, None),)):
            raise _wrong(name, dtype, str(tensor.dtype))
        if dtype == "float":
            floats = floats or tensor.dtype
            if tensor.dtype != floats:  # torch refuses products of two types
                raise _wrong(name, f"{floats}, as other parts", str(tensor.dtype))
        for part, length in zip(wanted, (*tensor.shape, -1, -1), strict=False):
            letter, more, _ = part.partition("+")
            own = int(letter) if letter.isdigit() else max(length - bool(more), 0)
            known.setdefault(letter, own)
            if tensor.ndim != len(wanted) or length != known[letter] + bool(more):
                raise _wrong(name, f"[{shape}] with {letter} = {known[letter]}", [*tensor.shape])
    for name, (_, _, *bounds) in rules.items():
        tensor = parts[name]
        if not bounds or (bounds[0] != "to" and not tensor.numel()):
            continue
        if bounds[0] == "to":
            end = known[bounds[1]]
            if int(tensor[0]) != 0 or int(tensor[-1]) != end or bool((tensor.diff() < 0).any()):
                raise _wrong(name, f"offsets that rise from 0 to {end}", "others")
            continue
        letter, more, _ = bounds[1].partition("+")
        end = int(letter) if letter.isdigit() else known.get(letter, torch.iinfo(tensor.dtype).max)
        low, high = (int(value) for value in tensor.aminmax())
        if low < int(bounds[0]) or high >= end + bool(more):
            raise _wrong(name, f"entries from {bounds[0]} to {end + bool(more) - 1}", (low, high))
    if "node" in parts and "atom" in parts:
        node, atom = parts["node"].long(), parts["atom"]
        if not torch.equal(atom[node], torch.arange(len(node), device=atom.device).to(atom.dtype)):
            raise _wrong("atom", "the inverse of `node`", "another")


def _wrong(name: str, expected: str, got: object) -> InputError:
    return InputError(f"{name}: expected {expected}, got {got}; build the index anew")
