"""Make up projects of interdependent steps, told over many sessions, with questions about them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from graphmem_torch.atoms import Atom

from ..temporal.wording import listed

__all__ = ["GROUPS", "Asked", "Project", "projects"]

GROUPS = ("before", "waiting", "chain", "next")
"""Questions: what a step needs, what waits for it, its whole chain, and possible next steps."""

_BEGIN, _HOUR = 1704067200.0, 3600.0  # 2024-01-01, UTC
_TURNS = 6  # turns of a session
_DONE = 0.4  # share of the steps that are done
_TALK, _REMARKS = 8, 4  # turns of a project about no step, and about steps without a need
_ASKED = {"before": 3, "waiting": 3, "chain": 2, "next": 1}  # questions on a project

_NAMES = listed(
    "Marlin Falcon Comet Basalt Heron Onyx Tundra Saffron Orchid Lynx Quartz Ember Willow Nimbus "
    "Raven Coral Birch Cedar Drift Flint Grove Haven Jade Lotus Maple Nectar Opal Quill Reef Slate "
    "Thistle Umbra Violet Wharf Yarrow Zephyr Alder Bramble Dune Fjord Garnet Hazel Indigo Kelp "
    "Lagoon Mesa Nettle Osprey"
)
_GOALS = (
    "open a bakery by the river",
    "build a boathouse",
    "run a film festival",
    "renovate the school gym",
    "launch a repair shop",
    "plant a city orchard",
    "publish a cookbook",
    "move the library",
)
_THINGS = listed(
    "budget|floor plan|permit|kitchen|roof|website|ticket sale|lighting|insurance|delivery van|"
    "menu|sound check|fire inspection|signboard|drainage|guest list|contract|survey|tool order|"
    "training|photo shoot|paint job|wiring|warehouse|newsletter"
)
_PARTS = ("draft", "approval", "review", "final version", "rehearsal", "purchase", "clean-up")
_PEOPLE = listed("Nora Milo Ada Ivo Lena Omar Tess Hugo Mara Emil")
_NEEDS = (
    "In {p} the {b} can only start after the {a}.",
    "The {a} has to be finished before the {b}, that is how {p} goes.",
    "The {b} depends on the {a} in project {p}.",
    "For {p}: first the {a}, then the {b}.",
    "We need the {a} for the {b} of {p}.",
    "Without the {a} nobody can begin with the {b} in {p}.",
    "The {b} of {p} is blocked until the {a} is there.",
)
_FINISHED = (
    "The {a} of {p} is done.",
    "I finished the {a} for {p} today.",
    "Good news on {p}: the {a} is complete.",
)
_ON_STEPS = (
    "I like how the {a} of {p} was presented.",
    "Somebody asked me about the {a} of {p} at lunch.",
    "The {a} for {p} was mentioned in the paper.",
)
_ASIDES = (
    "The meeting on {p} was moved to Tuesday.",
    "I lost my notes about {p} on the train.",
    "The coffee at the {p} office is terrible.",
    "We got a new intern for {p}.",
    "The name {p} was not my idea.",
    "My cousin would love to join {p}.",
)
_QUESTIONS = {
    "before": ("What must be done before the {x} of {p}?", "What does the {x} need in {p}?"),
    "waiting": ("What is blocked by the {x} in {p}?", "Which steps of {p} wait for the {x}?"),
    "chain": ("Which steps lead up to the {x} in {p}, from the very first one on?",),
    "next": ("Which step of {p} can be started next?", "What is the next open step of {p}?"),
}


@dataclass(frozen=True)
class Asked:
    """Question about a project.

    Attributes:
        group: One of `GROUPS`.
        text: Wording.
        gold: Ids of the turns with the answer.
    """

    group: str
    text: str
    gold: tuple[str, ...]


@dataclass(frozen=True)
class Project:
    """Project of steps, some of which need earlier ones.

    Attributes:
        name: Name of the project.
        steps: Names of the steps.
        needs: Pairs of numbers: a step that must be done before another.
        done: Numbers of the steps that are done.
    """

    name: str
    steps: tuple[str, ...]
    needs: tuple[tuple[int, int], ...]
    done: frozenset[int]

    def leading_to(self, step: int) -> set[int]:
        """Return all steps that must be done before a step."""
        found: set[int] = set()
        front = {step}
        while front:
            front = {a for a, b in self.needs if b in front} - found
            found |= front
        return found

    def open(self) -> set[int]:
        """Return the undone steps whose needs are all done."""
        held = {b for a, b in self.needs if a not in self.done}
        return {*range(len(self.steps))} - self.done - held


def projects(count: int, steps: int, *, seed: int) -> tuple[list[Project], list[Atom], list[Asked]]:
    """Return projects, all turns about them in order of time, and questions.

    Args:
        count: Number of projects, with different names.
        steps: Steps of each.
        seed: Seed of all random draws.
    """
    if not 0 < count <= len(_NAMES):
        raise ValueError(f"count: expected 1 to {len(_NAMES)} projects, got {count}; ask for fewer")
    dice = random.Random(seed)
    made: list[Project] = []
    said: list[tuple[str, str, str]] = []  # id, speaker, text
    asked: list[Asked] = []
    for name in dice.sample(_NAMES, count):
        project = _project(name, steps, dice)
        made.append(project)
        said += [(key, dice.choice(_PEOPLE), text) for key, text in _told(project, dice)]
        asked += _asked(project, dice)
    dice.shuffle(said)
    atoms = [
        Atom(
            key,
            text,
            speaker=who,
            session=f"day {i // _TURNS}",
            time=_BEGIN + 24 * _HOUR * (i // _TURNS) + 60.0 * (i % _TURNS),
        )
        for i, (key, who, text) in enumerate(said)
    ]
    return made, atoms, asked


def _project(name: str, count: int, dice: random.Random) -> Project:
    every = [f"{thing} {part}" for thing in _THINGS for part in _PARTS]
    needs = {
        (before, step)
        for step in range(1, count)
        for before in dice.sample(range(max(0, step - 4), step), min(step, dice.choice((1, 1, 2))))
    }
    done = frozenset(range(round(_DONE * count)))  # steps are numbered in a possible order
    return Project(name, tuple(dice.sample(every, count)), tuple(sorted(needs)), done)


def _told(project: Project, dice: random.Random) -> list[tuple[str, str]]:
    """Return ids and texts of turns, in no order."""
    name, steps = project.name, project.steps

    def worded(forms: Sequence[str], **parts: str) -> str:
        return dice.choice(forms).format(p=name, **parts)

    told = [(f"{name}/goal", f"Project {name} is to {dice.choice(_GOALS)}.")]
    told += [
        (_need(project, a, b), worded(_NEEDS, a=steps[a], b=steps[b])) for a, b in project.needs
    ]
    told += [(f"{name}/done{a}", worded(_FINISHED, a=steps[a])) for a in sorted(project.done)]
    told += [(f"{name}/step{i}", worded(_ON_STEPS, a=dice.choice(steps))) for i in range(_REMARKS)]
    return told + [(f"{name}/talk{i}", worded(_ASIDES)) for i in range(_TALK)]


def _asked(project: Project, dice: random.Random) -> list[Asked]:
    needs = project.needs
    before = {b: [(a, b) for a, other in needs if other == b] for _, b in needs}
    waiting = {a: [(a, b) for other, b in needs if other == a] for a, _ in needs}
    chain = {
        step: [(a, b) for a, b in needs if b == step or b in project.leading_to(step)]
        for step in before
    }
    nexts = [(a, b) for a, b in needs if b in project.open()]
    gold = {"before": before, "waiting": waiting, "chain": chain, "next": {0: nexts}}
    found = []
    for group, answers in gold.items():
        able = [step for step, pairs in answers.items() if pairs]
        for step in dice.sample(able, min(_ASKED[group], len(able))):
            text = dice.choice(_QUESTIONS[group]).format(x=project.steps[step], p=project.name)
            found.append(Asked(group, text, tuple(_need(project, *p) for p in answers[step])))
    return found


def _need(project: Project, before: int, step: int) -> str:
    return f"{project.name}/need{before}-{step}"
