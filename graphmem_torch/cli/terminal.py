"""Output of commands: JSON, or plain text wrapped to the width of the terminal."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

from graphmem_torch.atoms import Atom, titled
from graphmem_torch.errors import GraphMemError
from graphmem_torch.exact import dump_json
from graphmem_torch.results import Context, Hit, Particle, Result, Trace, Validity
from graphmem_torch.text.visible import visible

__all__ = [
    "Reply",
    "atom_lines",
    "clip",
    "context_note",
    "counted",
    "hit_lines",
    "json_text",
    "particle_lines",
    "print_json",
    "print_reply",
    "print_text",
    "result_lines",
    "rows",
    "side_by_side",
    "trace_lines",
    "validity_line",
    "when",
    "width",
]
_INDENT = 13  # columns before the text of a hit
_BELOW = 4  # columns before the lines below an id
_WITHIN = " · "  # between the parts of a line


@dataclass(frozen=True, kw_only=True)
class Reply:
    """Reply of a command.

    Attributes:
        data: JSON object for programs, printed with `--json`; a function makes it only then.
        text: Lines for people; empty: none.
        note: Lines for people on standard error; empty: none.
        code: Exit code.
    """

    data: Mapping[str, Any] | Callable[[], Mapping[str, Any]]
    text: str = ""
    note: str = ""
    code: int = 0


def print_reply(reply: Reply, *, as_json: bool) -> int:
    """Print a reply and return its exit code."""
    if as_json:
        print_json(reply.data() if callable(reply.data) else reply.data)
        return reply.code
    if reply.text:
        print_text(reply.text)
    if reply.note:
        print_text(reply.note, beside=True)
    return reply.code


def print_json(value: Any) -> None:
    """Print one JSON object."""
    print(json_text(value))


def json_text(value: Any) -> str:
    """Return a JSON object as text, in ASCII if standard output is not UTF-8.

    Raises:
        GraphMemError: A number is not finite, which JSON cannot represent.
    """
    encoding = (sys.stdout.encoding or "").lower().replace("-", "").replace("_", "")
    try:
        text = dump_json(value, ensure_ascii=encoding != "utf8", allow_nan=False)
    except ValueError as error:
        raise GraphMemError(
            "expected finite numbers in the result, got one that is infinite or not a number; "
            "look for very large values among the --config options and the weights of edges"
        ) from error
    return visible(text, escape="\\u{:04x}")


def print_text(text: str, *, beside: bool = False) -> None:
    """Print a text with its control characters escaped.

    Args:
        text: Lines.
        beside: Whether it goes to standard error.
    """
    print(visible(text), file=sys.stderr if beside else sys.stdout)


def width() -> int:
    """Return the width of the terminal in columns, clamped to 60 to 110."""
    return max(60, min(110, shutil.get_terminal_size((100, 24)).columns))


def counted(number: int, one: str, several: str | None = None) -> str:
    """Format a count as `1 memory`, `1,200 memories`; `several` defaults to `one` with an s."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def when(time: float | None) -> str:
    """Format a time as `2024-02-04 18:46`, UTC; None as the empty string."""
    if time is None:
        return ""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")


def clip(text: str, columns: int) -> str:
    """Put a text on one line of at most so many columns."""
    line = " ".join(text.split())
    return line if len(line) <= columns else line[: columns - 1].rstrip() + "…"


def _wrap(text: str, indent: int = _INDENT) -> list[str]:
    pad = " " * indent
    text = " ".join(text.split())
    return textwrap.wrap(text, width(), initial_indent=pad, subsequent_indent=pad) or [pad]


def _titled(title: str | None, rendered: str, indent: int = _INDENT) -> list[str]:
    """Wrap a rendered text, with its title on a line of its own."""
    above = titled(title, "")
    if above and rendered.startswith(above):
        return [*_wrap(above, indent), *_wrap(rendered[len(above) :], indent)]
    return _wrap(rendered, indent)


def hit_lines(rank: int, hit: Hit, *, full: bool = False) -> list[str]:
    """Return a hit as lines: rank, score and text, its origin, and the reasons in words.

    Args:
        rank: Place among the hits, from 1.
        hit: The hit.
        full: Whether nothing is cut off; otherwise each of the three is one line.
    """
    head = f"{rank:3d}  {hit.score:6.2f}  "
    reasons = hit.why or ["nothing speaks for it"]
    if full:
        first, *rest = _titled(hit.title, hit.text)
        said = "from " + _WITHIN.join(_origin(hit)), "why " + _WITHIN.join(reasons)
        return [head + first[len(head) :], *rest, *_wrap(said[0]), *_wrap(said[1])]
    columns, title = width() - _INDENT, titled(hit.title, "")
    text = hit.text[len(title) :] if title and hit.text.startswith(title) else hit.text
    origin = [*_origin(hit), *([hit.title] if hit.title else [])]
    pad = " " * _INDENT
    return [
        head + clip(text, columns),
        f"{pad}from {_fitting(origin, columns - len('from '))}",
        f"{pad}why {_fitting(reasons, columns - len('why '))}",
    ]


def _fitting(parts: Sequence[str], columns: int) -> str:
    """Join the leading parts that fit on a line; the first one always stays whole."""
    line = " ".join(parts[0].split())
    for part in parts[1:]:
        longer = line + _WITHIN + " ".join(part.split())
        if len(longer) > columns:
            break
        line = longer
    return line


def atom_lines(atom: Atom) -> list[str]:
    """Return a memory as lines: its id and origin, its text, and its other fields."""
    edges = [f"{each.type.name.lower()} {each.target}" for each in atom.edges]
    said = {
        "happened": when(atom.event_time),
        "ended": when(atom.event_end),
        "expires": when(atom.expires),
        "type": atom.type,
        "meta": dump_json(dict(atom.meta), ensure_ascii=False) if atom.meta else None,
        "edges": _WITHIN.join(edges),
    }
    text = _titled(atom.title, atom.rendered, _BELOW)
    return [_WITHIN.join(_origin(atom)), *text, *_fields(said)]


def particle_lines(particle: Particle) -> list[str]:
    """Return a memory as an insight particle, as lines."""
    times = {name: getattr(particle, name) for name in ("created", "modified", "accessed")}
    times |= {"true from": particle.event_start, "true until": particle.event_end}
    said = {
        "is": ", ".join(particle.signifiers),
        "keys": ", ".join(particle.keys),
        "imprint": json.dumps(dict(particle.imprint), ensure_ascii=False),
        **{name: when(value) for name, value in times.items()},
        "importance": f"{particle.importance:.2f}, used {particle.uses:,} times",
        "strands": _WITHIN.join(f"{kind} {other} {w:.2f}" for kind, other, w in particle.strands),
    }
    return [particle.id, *_wrap(particle.content, _BELOW), *_fields(said)]


def _fields(values: Mapping[str, str | None]) -> list[str]:
    """Return fields that have a value as lines."""
    given = {name: value for name, value in values.items() if value}
    return [line for name, value in given.items() for line in _wrap(f"{name} {value}", _BELOW)]


def validity_line(validity: Validity) -> str:
    """Format a validity: its interval, the superseding atom, and when it was recorded."""
    start = "" if validity.start is None else f"from {when(validity.start)}"
    stop = "" if validity.stop is None else f"until {when(validity.stop)}"
    line = " ".join(part for part in (start, stop) if part) or "always"
    line += "" if validity.by is None else f", superseded by {validity.by}"
    return line if validity.known is None else f"{line} (known {when(validity.known)})"


def _origin(hit: Hit | Atom) -> list[str]:
    """Return the origin of a memory, its id first."""
    origin = [hit.id, hit.kind, when(hit.time)]
    # The id of a document's chunk begins with the name of the document.
    if hit.session and not hit.id.startswith(hit.session):
        origin.insert(2, hit.session)
    return [part for part in origin if part]


def result_lines(result: Result, *, shown: int, full: bool = False) -> list[str]:
    """Return a question with its hits as lines.

    Args:
        result: Question and hits.
        shown: Maximum number of hits to show.
        full: Whether their texts are whole.
    """
    lines = [result.question, f"confidence {result.confidence:.2f}"]
    if result.verified is False:
        lines[-1] += ": no answer is mentioned in the nearest that the memory holds:"
    elif result.known is None:
        lines[-1] += ": cannot tell, as the encoder does not read this language"
        lines[-1] += "; the nearest the memory holds:"
    elif not result.known:
        lines[-1] += ": the memory has no record of this"
        lines[-1] += "; the nearest it holds:" if result.hits else ""
    if result.hits and not result.calibrated:
        lines.append("scores are rough estimates: none were fitted to these settings and encoder")
    for rank, hit in enumerate(result.hits[:shown], start=1):
        lines += ["", *hit_lines(rank, hit, full=full)]
    if not result.hits:
        lines += ["", "no memory fits"]
    if result.plan is not None:
        lines += ["", *(" " * _INDENT + line for line in str(result.plan).splitlines())]
    if result.trace is not None:
        lines += ["", *trace_lines(result.trace)]
    return lines


def trace_lines(trace: Trace) -> list[str]:
    """Return a trace as lines."""
    took = " · ".join(f"{name} {1e3 * took:.1f} ms" for name, took in trace.seconds.items())
    lines = _wrap(f"took {took}, for {counted(trace.questions, 'question')}")
    reached = "" if trace.activated is None else f", {trace.activated:,} reached by activation"
    looked = f"{trace.candidates:,} of {trace.atoms:,} memories{reached}: {trace.rule}"
    lines += _wrap(f"seen {looked}")
    started = " · ".join(f"{id} {value:.2f}" for id, value in trace.anchors)
    return lines + (_wrap(f"started {started}") if started else [])


def context_note(context: Context) -> str:
    """Describe a context in one line: tokens, sources, quality of the choice, confidence."""
    best = "; ".join(context.notes) if context.notes else "the best choice"
    note = (
        f"{context.tokens} of {context.budget} tokens ({context.tokenizer}), "
        f"{len(context.sources)} sources, {len(context.omitted)} left out, "
        f"{best}, confidence {context.confidence:.2f}"
    )
    said = {True: "", False: ": no record of this", None: ": cannot tell whether there is a record"}
    return note + said[context.known]


def side_by_side(left: list[str], right: list[str]) -> list[str]:
    """Put two lists of lines beside each other, as columns."""
    column = (width() - 3) // 2
    return [
        f"{_clip_keep(a, column):<{column}} │ {_clip_keep(b, column)}".rstrip()
        for a, b in zip_longest(left, right, fillvalue="")
    ]


def _clip_keep(line: str, columns: int) -> str:
    """Clip a line as `clip` does, but keep leading blanks."""
    blanks = len(line) - len(line.lstrip())
    return " " * blanks + clip(line, columns - blanks)


def rows(values: Mapping[str, Any], indent: int = 0) -> list[str]:
    """Return a mapping as aligned lines, nested mappings below their name."""
    pad = " " * indent
    names = {key: str(key).replace("_", " ") for key in values}
    column = max(map(len, names.values()), default=0) + 2
    lines = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{pad}{names[key]}", *rows(value, indent + 2)]
        else:
            number = isinstance(value, int | float)
            shown = f"{value:,}" if number else str(value or "none")
            lines.append(f"{pad}{names[key]:<{column}}{shown}")
    return lines
