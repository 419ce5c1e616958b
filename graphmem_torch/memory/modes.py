"""Modes of a memory: as records, as summaries of a sentence each, and regime switches."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, Atom
from graphmem_torch.config import RegimeConfig, former_section
from graphmem_torch.errors import InputError
from graphmem_torch.index.buffers import modes_by
from graphmem_torch.memory.index_builder import REGIME_KEY, SWITCHED_KEY, Snapshot, last_switch
from graphmem_torch.modes.find import Modes
from graphmem_torch.modes.regime import detector_of
from graphmem_torch.modes.search import align_modes, select_modes
from graphmem_torch.ops.ragged import segment_topk
from graphmem_torch.results import (
    Mode,
    ModeAlignment,
    ModePair,
    ModeSummary,
    RegimeSwitch,
    Statement,
)
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.question import QUESTION_MARKS
from graphmem_torch.text.sentences import split_at_marks
from graphmem_torch.text.words import count_words

__all__ = ["RegimeMonitor", "align_parts", "mode_records", "mode_summaries"]

# Kinds that state which part their atoms play in a summary; for other kinds the form decides.
_CLAIMS = ("claim", "theorem", "definition", "observation", "output")
_EVIDENCE = ("evidence",)
_QUESTIONS = ("question", "task")

_STATED = 4.0  # above any difference of two cosines, so that a stated part comes first
_SPARE = 3  # candidates of each part, in case the first says the same as another part
_BASE64 = "b64:"  # earlier releases wrote base85, which costs a hundred times as much
_TILE = 4096  # nodes read in one batch to catch up
_SAVED = 1024  # atoms after which the state is saved again
_WORDS = 4  # minimum words of a sentence that can stand alone


def mode_records(
    modes: Modes, snapshot: Snapshot, store: MemoryStore, rows: Tensor | None = None
) -> list[Mode]:
    """Return modes as values, the largest first; `rows` [n]: their atoms, None for all."""
    typical = modes.representative.cpu()
    found = typical if rows is None else torch.where(typical >= 0, rows[typical.clamp(min=0)], -1)
    said = _statements(found, snapshot, store)
    size = modes.size if rows is not None else _visible_sizes(modes, snapshot, store)
    columns = (size, modes.variance, modes.latest, modes.energy)
    figures = zip(*(column.tolist() for column in columns), strict=True)
    return [
        Mode(
            number=number,
            size=size,
            variance=variance,
            latest=None if math.isnan(latest) else latest,
            energy=energy,
            typical=tuple(said[row] for row in line if row in said),
        )
        for number, ((size, variance, latest, energy), line) in enumerate(
            zip(figures, found.tolist(), strict=True)
        )
        if size
    ]


def _statements(rows: Tensor, snapshot: Snapshot, store: MemoryStore) -> dict[int, Statement]:
    """Return ids and texts of the atoms in these rows, without what has expired."""
    wanted = rows[rows >= 0].unique().cpu()
    if len(wanted) and (hidden := _hidden_rows(snapshot, store)).numel():
        wanted = wanted[~torch.isin(wanted, hidden)]
    atoms = store.atoms(snapshot.node[wanted].tolist())
    pairs = zip(wanted.tolist(), atoms, strict=True)
    return {row: Statement(atom.id, atom.rendered) for row, atom in pairs}


def _hidden_rows(snapshot: Snapshot, store: MemoryStore) -> Tensor:  # [n] int64
    """Return the rows of what has expired."""
    return snapshot.rows_of(sorted(store.expiry.hidden()))


def _visible_sizes(modes: Modes, snapshot: Snapshot, store: MemoryStore) -> Tensor:  # [M]
    """Return the number of atoms of each mode that have not expired."""
    hidden = _hidden_rows(snapshot, store)
    if not len(hidden):
        return modes.size
    label = modes.label.long().cpu()[hidden]
    return modes.size.cpu() - torch.bincount(label, minlength=len(modes)).to(modes.size.dtype)


def mode_summaries(
    modes: Modes,
    snapshot: Snapshot,
    store: MemoryStore,
    query: Tensor | None,  # [1, d]
    count: int | None,
) -> list[ModeSummary]:
    """Summarize each mode in at most three sentences (`docs/mathematics.md` 1.6).

    Each part goes to the atom of the largest projection on the centroid. Atoms whose kind names
    the part come first (a claim, an observation; evidence; a question, a task). Otherwise any
    statement may be claim or evidence, and a text that ends by asking is a question.

    With a question (`query`), returns only its best modes, the best first, at most `count`.
    """
    if query is None:
        chosen = torch.arange(len(modes))[:count]
        weight: list[float | None] = [None] * len(chosen)
    else:
        own = snapshot.index.config.modes
        wanted = own.modes_searched if count is None else count
        best, value = select_modes(
            modes, query, wanted, half_life_days=own.half_life_days, absolute=own.absolute
        )
        chosen, weight = best[0].cpu(), value[0].tolist()
    hidden = _hidden_rows(snapshot, store)
    parts = torch.stack(_parts(modes, snapshot, hidden)).cpu()[:, chosen]  # [3, C, _SPARE]
    said = _statements(parts, snapshot, store)
    size = _visible_sizes(modes, snapshot, store).tolist()
    variance = modes.variance.tolist()
    summaries = []
    for place, number in enumerate(chosen.tolist()):
        if not size[number]:
            continue
        taken: set[str] = set()
        sentences = []
        for part, asks in zip(parts[:, place].tolist(), (False, False, True), strict=True):
            options = [said[row] for row in part if row in said]
            picked = next((s for s in options if s.text not in taken), None)
            taken.update({picked.text} if picked else ())
            sentences.append(picked and Statement(picked.id, _sentence(picked.text, asks)))
        claim, evidence, question = sentences
        summaries.append(
            ModeSummary(
                number, size[number], variance[number], claim, evidence, question, weight[place]
            )
        )
    return summaries


def _parts(
    modes: Modes,
    snapshot: Snapshot,
    hidden: Tensor,  # [n] rows
) -> list[Tensor]:  # 3 of [M, _SPARE]
    """Return rows for claim, evidence and question of each mode, best first, -1 = none."""
    index = snapshot.index
    label = modes.label.long()
    axis = torch.nn.functional.normalize(modes.centroid.float(), dim=1)
    value = torch.cat(
        [
            (rows.float() * axis[own]).sum(1)
            for rows, own in zip(index.embeddings.split(8192), label.split(8192), strict=True)
        ]
    )
    value[hidden.to(value.device)] = -torch.inf
    claim, evidence, question = (
        _of_kinds(snapshot, names) for names in (_CLAIMS, _EVIDENCE, _QUESTIONS)
    )
    # The members of an aggregate say the same.
    free = ~(claim | evidence | question | _of_kinds(snapshot, (AGGREGATE,)))
    asks = index.is_question > 0.5
    never = torch.full_like(value, -torch.inf)
    neutral = torch.where(free & ~asks, value, never)
    values = (
        torch.where(claim, value + _STATED, neutral),
        torch.where(evidence, value + _STATED, torch.where(claim, value - _STATED, neutral)),
        torch.where(question, value + _STATED, torch.where(free & asks, value, never)),
    )
    size = modes.size.long()
    found = [segment_topk(each, label, size, _SPARE) for each in values]
    return [
        torch.where((rows >= 0) & (each[rows.clamp(min=0)] > -torch.inf), rows, -1)
        for rows, each in zip(found, values, strict=True)
    ]


def _of_kinds(snapshot: Snapshot, names: tuple[str, ...]) -> Tensor:  # [A] bool
    kind = snapshot.index.kind.long()
    codes = [code for code, name in enumerate(snapshot.kinds) if name in names]
    return torch.isin(kind, torch.tensor(codes, dtype=torch.int64, device=kind.device))


def _sentence(text: str, asks: bool) -> str:
    """Return one sentence of a text: its last question, or its first substantial statement."""
    sentences = split_at_marks(text.strip())
    fitting = [s for s in sentences if s.endswith(QUESTION_MARKS) == asks] or sentences
    if asks:
        return fitting[-1]
    return next((s for s in fitting if count_words(s) >= _WORDS), fitting[0])


def align_parts(
    snapshot: Snapshot, store: MemoryStore, first: str, second: str, by: str
) -> ModeAlignment:
    """Match the modes of two parts of a memory; see `modes.align_modes`.

    Raises:
        InputError: An attribute that does not divide a memory, or a part without atoms.
    """
    if by not in ("kind", "type", "speaker", "session"):
        raise InputError(f"by: expected kind, type, speaker or session, got {by!r}")
    columns = store.columns()
    coded = getattr(columns, by)
    atoms = snapshot.node
    codes = coded.codes.long()[torch.searchsorted(columns.node, atoms)]
    codes[_hidden_rows(snapshot, store)] = -1
    found = []
    for name in (first, second):
        code = coded.names.index(name) if name in coded.names else -2
        rows = (codes == code).nonzero().squeeze(1)
        if not len(rows):
            there = sorted({coded.names[c] for c in codes.unique().tolist() if c >= 0})
            raise InputError(
                f"expected a {by} that atoms have ({', '.join(there) or 'none has any'}), "
                f"got {name!r}"
            )
        embeddings = snapshot.index.embeddings
        own = rows.to(embeddings.device)
        modes = modes_by(snapshot.index.config.modes, embeddings[own], snapshot.index.time[own])
        found.append((modes, mode_records(modes, snapshot, store, rows)))
    (one, firsts), (other, seconds) = found
    match = align_modes(one, other)
    pairs = zip(match.first.tolist(), match.second.tolist(), match.similarity.tolist(), strict=True)
    return ModeAlignment(
        angles=tuple(match.angles.rad2deg().tolist()),
        pairs=tuple(ModePair(firsts[a], seconds[b], cosine) for a, b, cosine in pairs),
        only_first=tuple(firsts[a] for a in match.only_first.tolist()),
        only_second=tuple(seconds[b] for b in match.only_second.tolist()),
    )


class RegimeMonitor:
    """Detector of regime switches over the atoms of a store, in the order of adding.

    Aggregates are skipped. The store keeps the switches and the detector's state, from which
    the detector continues. A switch expires modes and structure (`last_switch`) once. It stays
    in the store, where other processes read it, and is reported only once.
    """

    def __init__(self, store: MemoryStore, config: RegimeConfig, dim: int) -> None:
        """Read the state that the store keeps, and no atom since; see `catch_up`.

        Raises:
            InputError: Settings without a detector.
        """
        detector = detector_of(config, dim)
        if detector is None:
            raise InputError(
                "regime.detector: expected 'spectral' or 'published' to tell regime switches, got "
                "'none'; set it in the preset"
            )
        self._store, self._settings = store, former_section("regime", asdict(config)) | {"dim": dim}
        self._detector = detector
        self._seen: list[tuple[int, float, int]] = []  # node, statistic, position
        self._next = self._restored()
        self._kept = self._detector.count

    def behind(self, stop: int) -> int:
        """Return the number of nodes before `stop` that are not read yet."""
        return stop - self._next

    def observe(
        self,
        atoms: Sequence[Atom],
        embeddings: Tensor,  # [n, d]
        first: int,
    ) -> list[RegimeSwitch]:
        """Return the switches in a batch of atoms that was just stored from node `first` on."""
        self.catch_up(first)  # with what other processes stored before it
        self._next = self._store.next_node
        told = torch.tensor([atom.kind != AGGREGATE for atom in atoms], dtype=torch.bool)
        nodes = torch.arange(first, first + len(atoms))
        return self._switches(
            self._read(nodes[told], embeddings[told]), dict(enumerate(atoms, first))
        )

    def switches(self) -> list[RegimeSwitch]:
        """Return every switch seen at an atom that is still stored, in the order of adding."""
        nodes = self._store.columns().node
        there = set(nodes[torch.isin(nodes, torch.tensor([n for n, _, _ in self._seen]))].tolist())
        seen = [each for each in self._seen if each[0] in there]
        atoms = self._store.atoms([node for node, _, _ in seen])
        return self._switches(seen, {s[0]: atom for s, atom in zip(seen, atoms, strict=True)})

    def _switches(
        self, seen: Sequence[tuple[int, float, int]], atoms: Mapping[int, Atom]
    ) -> list[RegimeSwitch]:
        return [
            RegimeSwitch(
                atom=atoms[node].id,
                session=atoms[node].session,
                time=atoms[node].time,
                statistic=statistic,
                threshold=float(self._detector.threshold),
                position=position,
            )
            for node, statistic, position in seen
        ]

    def _read(self, nodes: Tensor, rows: Tensor) -> list[tuple[int, float, int]]:
        """Run the detector on atoms [n] with vectors [n, d]; returns the switches in them."""
        steps = self._detector.update(rows)
        at = steps.alarm
        columns = nodes[at].tolist(), steps.statistic[at].tolist(), steps.position[at].tolist()
        seen = list(zip(*columns, strict=True))
        self._seen += seen
        if seen and not self._store.readonly and seen[-1][0] > last_switch(self._store):
            self._store.meta_set(SWITCHED_KEY, str(seen[-1][0]))
        if self._detector.count - self._kept >= _SAVED:
            self.save()
        return seen

    def catch_up(self, stop: int | None = None) -> None:
        """Run the detector on all atoms stored since its last run, up to node `stop`."""
        if stop is not None and stop <= self._next:
            return
        with self._store.reading():
            columns, rows = self._store.columns(self._next), self._store.embeddings(self._next)
            end = self._store.next_node
        wanted = ~columns.is_concept & ~columns.kind.equals(AGGREGATE)
        if stop is not None:
            wanted &= columns.node < stop
        nodes, rows = columns.node[wanted], rows[wanted]
        for some, part in zip(nodes.split(_TILE), rows.split(_TILE), strict=True):
            if len(some):
                self._next = int(some[-1]) + 1  # a save on the way continues after this node
                self._read(some, part)
        self._next = end

    def save(self, *, min_new: int = 1) -> None:
        """Save the detector's state in the store, if it has read `min_new` atoms since the last."""
        fresh = self._detector.count - self._kept
        if self._store.readonly or self._store.path is None or fresh < min_new:
            return
        from safetensors.torch import save

        state = {name: value.contiguous() for name, value in self._detector.state_dict().items()}
        value = {
            "settings": self._settings,
            "next": self._next,
            "switches": self._seen,
            "state": _BASE64 + base64.b64encode(save(state)).decode("ascii"),
        }
        self._store.meta_set(REGIME_KEY, json.dumps(value))
        self._kept = self._detector.count

    def _restored(self) -> int:
        """Restore the saved state if it fits; returns the node number to continue from."""
        kept = self._store.meta_get(REGIME_KEY)
        if kept is None:
            return 0
        from safetensors.torch import load

        value = json.loads(kept)
        if value["settings"] != self._settings or "switches" not in value:
            return 0
        try:
            coded = value["state"]
            known = coded.startswith(_BASE64)
            data = base64.b64decode(coded[len(_BASE64) :]) if known else base64.b85decode(coded)
            self._detector.load_state_dict(load(data))
        except InputError:  # saved by another version: the detector reads the atoms again
            return 0
        self._seen = [(int(n), float(s), int(p)) for n, s, p in value["switches"]]
        return int(value["next"])
