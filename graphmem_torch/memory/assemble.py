"""From the store to an index: what is stored becomes the columns of `MemoryIndex.build`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphmem_torch.atoms import CONCEPT
from graphmem_torch.config import Config, config_to_dict
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.index.data import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory.following import ModeFollower
from graphmem_torch.modes.find import MODE_PARTS, Modes, modes_from_tensors
from graphmem_torch.rank.routing import ROUTING_PARTS
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.blocks import pick_tokens
from graphmem_torch.text.question import WORD, is_question, tells_time
from graphmem_torch.text.terms import Vocabulary, title_terms

__all__ = ["Assembled", "assemble", "load_assembled", "save_assembled", "to_rows"]

_FORMAT = 4  # of what the snapshot holds
_MODES = ("select", "count", "epsilon", "assign")  # settings by which modes are found


@dataclass(frozen=True, eq=False)
class Assembled:
    """An index and what belongs to it outside the device.

    Attributes:
        index: The index.
        state: Which state of the store it shows.
        node: [N] int64 node number of every row.
        vocabulary: Terms of the lexical index.
        kinds, speakers: Names behind the codes.
        follower: What takes the modes along from state to state.
    """

    index: MemoryIndex
    state: str
    node: Tensor
    vocabulary: Vocabulary
    kinds: list[str]
    speakers: list[str]
    follower: ModeFollower

    @cached_property
    def speaker_words(self) -> dict[str, list[int]]:
        """For each word of the speakers' names, the speakers; to find them in questions."""
        words: dict[str, list[int]] = {}
        for code, name in enumerate(self.speakers):
            for word in WORD.findall(name.lower()):
                words.setdefault(word, []).append(code)
        return words

    @cached_property
    def modes(self) -> Modes | None:
        """The modes of the index, followed or found where it keeps none; None without atoms."""
        kept, index = self.index.modes, self.index
        if kept is not None or index.num_atoms == 0:
            return kept
        node = self.node[: index.num_atoms]
        return self.follower.modes(index.config.modes, index.embeddings, index.time, node)


def assemble(
    store: MemoryStore, config: Config, num_pieces: int, follower: ModeFollower | None = None
) -> Assembled:
    """Builds the index of everything in the store, at one state of it.

    The follower knows the modes of an earlier state; without one they are found anew.
    """
    follower = ModeFollower() if follower is None else follower
    with store.reading():
        state = store.state
        columns = store.columns()
        embeddings = store.embeddings()
        packed = store.tokens()
        edges = store.edges()
        texts = list(store.texts())
    codes = columns.kind.codes.long()
    concept = columns.kind.names.index(CONCEPT) if CONCEPT in columns.kind.names else -1
    is_atom = codes != concept
    atoms = is_atom.nonzero().squeeze(1)
    order = torch.cat([atoms, (~is_atom).nonzero().squeeze(1)])
    bodies = [texts[i] for i in atoms.tolist()]
    vocabulary = Vocabulary()
    terms, offsets = vocabulary.encode(bodies)
    title = torch.tensor([title_terms(text) for text in bodies], dtype=torch.int64)
    names = None
    if bool((title >= 0).any()):
        concepts = (~is_atom).nonzero().squeeze(1).tolist()
        names = vocabulary.encode([texts[i] for i in concepts], grow=False)
    own, time = embeddings[atoms], columns.time[atoms]
    tokens = pieces = token_offsets = modes = duplicate = None
    if config.modes.build and len(atoms):
        if follower.blank:
            _recall(store, config, follower, own, time)
        modes = follower.modes(config.modes, own, time, columns.node[atoms])
        duplicate = _first_equal(bodies, columns.speaker.codes[atoms])
    if packed is not None:
        tokens, pieces, token_offsets = pick_tokens(packed, atoms)
    data = IndexInput(
        embeddings=own,
        terms=terms,
        term_offsets=offsets,
        vocab_size=max(1, len(vocabulary)),
        kind=codes[atoms],
        speaker=columns.speaker.codes[atoms].long(),
        num_speakers=len(columns.speaker.names),
        session=columns.session.codes[atoms].long(),
        time=time,
        log_words=torch.tensor([math.log1p(len(text.split())) for text in bodies]),
        is_question=_flags(is_question(text) for text in bodies),
        tells_time=_flags(tells_time(text) for text in bodies),
        edges=to_rows(edges, columns.node[order]),
        num_nodes=len(order),
        tokens=tokens,
        pieces=pieces,
        token_offsets=token_offsets,
        num_pieces=num_pieces,
        duplicate=duplicate,
        modes=modes,
        title=title,
        name_terms=None if names is None else names[0],
        name_offsets=None if names is None else names[1],
    )
    return Assembled(
        MemoryIndex.build(data, config),
        state,
        columns.node[order],
        vocabulary,
        columns.kind.names,
        columns.speaker.names,
        follower,
    )


def save_assembled(store: MemoryStore, assembled: Assembled) -> None:
    """Writes the snapshot from which `load_assembled` opens at once."""
    index = assembled.index
    tensors = {k: v.contiguous() for k, v in index.state_dict().items() if k != "weights"}
    tensors["node"] = assembled.node
    words = assembled.vocabulary.to_bytes()
    tensors["vocabulary"] = torch.frombuffer(bytearray(words or b"\n"), dtype=torch.uint8)
    meta = {
        "built": _signature(index.config),
        "kinds": json.dumps(assembled.kinds),
        "speakers": json.dumps(assembled.speakers),
        "terms": str(len(assembled.vocabulary)),
        "share": repr(assembled.follower.share),
    }
    store.save_snapshot(tensors, meta, state=assembled.state)


def load_assembled(
    store: MemoryStore, config: Config, follower: ModeFollower | None = None
) -> Assembled | None:
    """The snapshot as an index; None where it is missing, stale, damaged or set up otherwise.

    The follower goes on from its modes.
    """
    state = store.state
    # Verified whole: a flipped bit would be a wrong answer or a crash. 350 MB take 0.2 s.
    kept = store.load_snapshot(verify=True)
    if kept is None or kept[1].get("built") != _signature(config):
        return None
    tensors, meta = dict(kept[0]), kept[1]
    node = tensors.pop("node")
    words = tensors.pop("vocabulary").numpy().tobytes()
    vocabulary = Vocabulary.from_bytes(words) if int(meta["terms"]) else Vocabulary()
    index = MemoryIndex.from_state_dict(tensors, config)
    follower = ModeFollower() if follower is None else follower
    if (modes := index.modes) is not None:
        share = float(meta["share"])
        follower.take(modes, config.modes, node[: index.num_atoms], share)
    return Assembled(
        index,
        state,
        node,
        vocabulary,
        json.loads(meta["kinds"]),
        json.loads(meta["speakers"]),
        follower,
    )


def _recall(
    store: MemoryStore,
    config: Config,
    follower: ModeFollower,
    embeddings: Tensor,  # [A, d]
    time: Tensor,  # [A] float64
) -> None:
    """Has the follower go on from a stale snapshot, if it is of the first ones of these atoms."""
    kept = store.load_snapshot(verify=True, stale=True)
    if kept is None or kept[1].get("built") != _signature(config):
        return
    tensors, meta = kept
    count = len(tensors["embeddings"])
    # A store that was put back from a backup gives the numbers of atoms to others.
    same = torch.equal(tensors["embeddings"], embeddings[:count])
    if count and same and torch.equal(tensors["time_bits"], time[:count].view(torch.int64)):
        modes = modes_from_tensors({name: tensors[f"modes_{name}"] for name in MODE_PARTS})
        follower.take(modes, config.modes, tensors["node"][:count], float(meta["share"]))


def _signature(config: Config) -> str:
    """The settings that are baked into the tensors of an index."""
    settings = config_to_dict(config)
    own = settings["modes"]
    # Presets without modes share a snapshot; how a question uses modes is not baked in.
    modes = {name: own[name] for name in _MODES} if own["build"] else None
    # So that what routing reads is kept beside them and not derived at each opening.
    routing = sorted(ROUTING_PARTS.keys() & settings["rank"]["weights"].keys())
    return json.dumps([_FORMAT, settings["spread"], modes, routing], sort_keys=True)


def _first_equal(texts: Sequence[str], speaker: Tensor) -> Tensor:  # [A] -> [A] int64
    """For each atom the first one of the same text and speaker."""
    first: dict[tuple[str, int], int] = {}
    keys = zip(texts, speaker.tolist(), strict=True)
    return torch.tensor([first.setdefault(key, i) for i, key in enumerate(keys)])


def _flags(values: Iterable[bool]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.bool)


def to_rows(edges: EdgeBlock, node: Tensor) -> EdgeBlock:  # node [N]: number of every row
    """Edges between rows instead of node numbers; edges of deleted nodes are dropped."""
    if not len(edges):
        return edges
    size = max(int(edges.source.max()), int(edges.target.max()), int(node.max())) + 1
    row = torch.full((size,), -1, dtype=torch.int64)
    row[node] = torch.arange(len(node))
    source, target = row[edges.source], row[edges.target]
    keep = (source >= 0) & (target >= 0)
    return EdgeBlock(source[keep], target[keep], edges.type[keep], edges.weight[keep])
