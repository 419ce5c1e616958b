"""Episodes, facts and entities of Zep and Graphiti, as their clients dump them to JSON.

Layouts of graphiti-core 0.31 (`EpisodicNode`, `EntityNode`, `EntityEdge`) and zep-cloud 4.0
(`Episode`, `Node`, `Edge`), by `model_dump(mode="json")`: an object with lists, or one list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphmem_torch.atoms import EdgeType
from graphmem_torch.readers.moved import EMBEDDING, MovedMemories, StatedEnd

__all__ = ["is_zep", "read_zep"]

_LISTS = {
    "episode": ("episodes", "episodic_nodes"),
    "fact": ("edges", "facts", "entity_edges"),
    "entity": ("nodes", "entities", "entity_nodes"),
}
_BESIDE = ("communities", "community_nodes", "sagas", "hyperedges", "observations")
_VECTORS = ("name_embedding", "fact_embedding")


def is_zep(data: object) -> bool:
    """Return whether parsed JSON holds episodes, facts or entities."""
    every = [each for _, listed in _parts(data) for each in listed]
    return bool(every) and all(_kind_of(each) is not None for each in every)


def _kind_of(each: object) -> str | None:
    """Return whether an object is an episode, a fact or an entity; None for anything else."""
    if not isinstance(each, Mapping) or not ({"uuid", "uuid_"} & each.keys()):
        return None
    if "fact" in each:
        return "fact"
    if "content" in each and ({"source", "source_description", "role"} & each.keys()):
        return "episode"
    return "entity" if "name" in each and ({"summary", "labels"} & each.keys()) else None


def _parts(data: object) -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists of an object, each with the kind that its name says, or one list."""
    if isinstance(data, list):
        yield "", data
    elif isinstance(data, Mapping):
        for kind, names in _LISTS.items():
            for name in names:
                if isinstance(data.get(name), list):
                    yield kind, data[name]


def read_zep(data: Any, found: MovedMemories) -> None:
    """Read facts with their validity, the episodes they are derived from, and entities.

    A fact is valid from `valid_at` to `invalid_at`. Where `expired_at` says when the end became
    known, earlier moments do not know of it.

    Args:
        data: Parsed JSON for which `is_zep` is true.
        found: Collection that receives the memories.
    """
    every = [each for _, listed in _parts(data) for each in listed]
    if isinstance(data, Mapping):
        for name in _BESIDE:
            listed = data.get(name)
            if isinstance(listed, Sequence) and listed:
                found.losses[name.replace("_", " ")] += len(listed)
    kinds = {_uuid(each): _kind_of(each) for each in every}
    there = {name for name, kind in kinds.items() if kind == "episode"}
    there |= {
        _uuid(each)
        for each in every
        if _kind_of(each) == "entity" and str(each.get("summary") or "").strip()
    }
    names = {_uuid(each): each["name"] for each in every if _kind_of(each) == "entity"}
    for each in every:
        found.losses.update({EMBEDDING: sum(each.get(name) is not None for name in _VECTORS)})
        kind = _kind_of(each)
        if kind == "episode":
            _read_episode(each, found)
        elif kind == "fact":
            _read_fact(each, found, there, names)
        elif _uuid(each) in there:
            _read_entity(each, found)
        else:
            found.losses["entity without a summary"] += 1
    found.losses += type(found.losses)()  # without kinds that are not lost


def _uuid(each: Mapping[str, Any]) -> str:
    return str(each.get("uuid") or each.get("uuid_"))


def _meta(each: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return some fields for `meta`, the group or user among them."""
    shared = ("group_id", "graph_uuid", "user_uuid", "labels", "attributes")
    return {name: each[name] for name in (*names, *shared) if each.get(name)}


def _read_episode(each: Mapping[str, Any], found: MovedMemories) -> None:
    said = each.get("role_name") or each.get("role")
    found.add(
        _uuid(each),
        each["content"],
        kind="turn" if each.get("source") == "message" or said else "chunk",
        speaker=said,
        session=each.get("thread_uuid") or each.get("group_id"),
        time=each.get("valid_at") or each.get("reference_time") or each.get("created_at"),
        meta=_meta(each, "source", "source_description", "name", "metadata", "episode_metadata"),
    )


def _read_entity(each: Mapping[str, Any], found: MovedMemories) -> None:
    found.add(
        _uuid(each),
        each["summary"],
        kind="entity",
        title=each["name"],
        time=each.get("created_at"),
        meta=_meta(each),
    )


def _read_fact(
    each: Mapping[str, Any], found: MovedMemories, there: set[str], names: Mapping[str, str]
) -> None:
    """Read a fact; `there` are the episodes and entities in the file, `names` those of entities."""
    episodes = [str(name) for name in each.get("episodes") or each.get("episode_uuids") or ()]
    ends = [str(each.get(f"{end}_node_uuid")) for end in ("source", "target")]
    found.losses["link to an episode that is not in the file"] += len({*episodes} - there)
    links = [(name, EdgeType.DERIVED_FROM) for name in dict.fromkeys(episodes) if name in there]
    links += [(name, EdgeType.RELATED_TO) for name in dict.fromkeys(ends) if name in there]
    stop, known = found.moment(each.get("invalid_at")), found.moment(each.get("expired_at"))
    if stop is None:
        stop = known
    told = {
        "relation": each.get("name"),
        "source": each.get("source_node_name") or names.get(ends[0]),
        "target": each.get("target_node_name") or names.get(ends[1]),
    }
    atom = found.add(
        _uuid(each),
        each["fact"],
        kind="observation",
        time=each.get("created_at"),
        event_time=each.get("valid_at"),
        event_end=stop if known is None else None,
        links=links,
        meta=told | _meta(each),
    )
    if atom is None or stop is None or known is None:
        return
    start = atom.time if atom.event_time is None else atom.event_time
    if start is not None and stop < start:
        found.losses["end of a fact before its beginning"] += 1
    else:
        found.ends.append(StatedEnd(atom.id, stop, known))
