"""Formats of memories, groups of memories and whole prompts."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from string import Formatter

import numpy as np

from graphmem_torch.atoms import Atom, titled
from graphmem_torch.context.roles import BREAK, CHAT_ROLE, attributed, header_name
from graphmem_torch.errors import InputError, unknown
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.times import MONTHS
from graphmem_torch.text.tokens import TokenCounter, count_messages, get_counter
from graphmem_torch.text.visible import CONTROLS

__all__ = [
    "FORMATS",
    "UNLABELLED",
    "Format",
    "JsonFormat",
    "Prompt",
    "Template",
    "chat_templates",
    "day_of",
    "instant_of",
    "label_of",
    "load_format",
    "render",
]
_FIELDS = ("context", "question")
_ROLES = ("system", "user")


@dataclass(frozen=True, slots=True)
class Template:
    """Text with the fields `{context}` and `{question}`; `{{` and `}}` are literal braces.

    Attributes:
        parts: Literal texts, each with the field after it, None for none.
    """

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        """Read a template.

        Raises:
            InputError: The template has another field or a lone brace, or is not a string.
        """
        if not isinstance(text, str):
            raise InputError(f"template: expected a text, got {text!r:.80}")
        parts = []
        try:
            pieces = list(Formatter().parse(text))
        except ValueError as error:
            raise InputError(
                f"template: expected the fields {{context}} and {{question}}, got {text!r:.80} "
                f"({error}); write {{{{ and }}}} for braces"
            ) from error
        for literal, field, form, conversion in pieces:
            if field is not None and (field not in _FIELDS or form or conversion):
                known = [f"{{{name}}}" for name in _FIELDS]
                got = _written(field, form, conversion)
                said = unknown("template", got, known, what="the fields")
                raise InputError(f"{said}; write {{{{ and }}}} for braces")
            parts.append((literal, field))
        return cls(tuple(parts))

    def count(self, field: str) -> int:
        """Return the number of occurrences of a field."""
        return sum(name == field for _, name in self.parts)

    def fill(self, context: str, question: str) -> str:
        """Return the text with its fields filled in."""
        values = {None: "", "context": context, "question": question}
        return "".join(literal + values[field] for literal, field in self.parts)


def chat_templates(given: str | Mapping[str, str], plain: Mapping[str, str]) -> dict[str, Template]:
    """Return the templates of a prompt by role.

    Args:
        given: Text for the role `user`, or texts for the roles `system` and `user`. An empty text
            drops the system message.
        plain: Default texts of the format.

    Raises:
        InputError: A role is unknown, or `{context}` does not occur exactly once.
    """
    asked = {"user": given} if isinstance(given, str) else given
    if not isinstance(asked, Mapping) or not asked.keys() <= set(_ROLES):
        raise InputError(
            f"template: expected a text, or texts for the roles {' and '.join(_ROLES)}, got "
            f"{given!r:.80}"
        )
    merged = {**plain, **asked}
    parsed = {role: Template.parse(merged[role]) for role in _ROLES if merged.get(role)}
    places = sum(template.count("context") for template in parsed.values())
    if places != 1:
        raise InputError(
            f"template: expected the field {{context}} once, for the memories, got it {places} "
            f"times in {given!r:.80}"
        )
    return parsed


def _written(field: str, form: str | None, conversion: str | None) -> str:
    return f"{{{field}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}"


# Message bounds that tokenizers of language models recognise.
_BOUNDS = (
    r"<(?=\|[^|<>\s]{1,64}\|>|\uff5c[^\uff5c<>]{1,64}\uff5c>|/?s>|<</?SYS>>|</?SYS>>|"
    r"(?:start|end)_of_turn>|(?:bos|eos|pad|unk)>)|\[(?=/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS)\])"
)
# Tags that name a role; after a word they do not, as in `List<User>`.
_ROLE_TAGS = rf"<(?<!\w<)(?=/?(?:{CHAT_ROLE})\s*>)"
_TAG = lazy_pattern(r"<(/?)([a-zA-Z][\w:.-]*)(?:\s[^<>]*?)?(/?)>")
_FENCES = ("```", "~~~", '"""')


_SECONDS = 2.0**62  # maximum time: calendars have no date beyond it


def label_of(atom: Atom) -> str | None:
    """Return the label of a memory: its day, and for a chunk the name of its document.

    Without a day it is the name of the session; None if neither is known.
    """
    day = day_of(atom.time)
    if atom.session is None or (day is not None and atom.kind != "chunk"):
        return day
    name = header_name(atom.session)
    return name if day is None else f"{name}, {day}"


@lru_cache(maxsize=8192)
def day_of(time: float | None) -> str | None:
    """Format a time as `8 May 2023`, UTC; None if it is unknown.

    The month is a word: it takes fewer tokens than digits, and cannot be mistaken for the day.
    """
    instant = instant_of(time)
    if instant is None:
        return None
    year, month, day = instant[: instant.index("T")].rsplit("-", 2)
    return f"{int(day)} {MONTHS[int(month) - 1].capitalize()} {year}"


def instant_of(time: float | None) -> str | None:
    """Format a time as `2023-05-08T13:56:00Z`; None if it is unknown."""
    if time is None or not math.isfinite(time) or abs(time) > _SECONDS:
        return None
    return f"{np.datetime64(math.floor(time), 's')}Z"


_PLAIN = {"user": "{context}"}
_CHAT = {
    "system": "Answer from the numbered memories and cite their numbers, like [2].",
    "user": "{context}\n\n{question}",
}


# Start of each line that is not empty, except the first.
_LINE = lazy_pattern(rf"(?<=[{BREAK}])(?=[^{BREAK}])")


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt that is ready to send.

    Attributes:
        text: Full text; for a chat, the texts of its messages, separated by blank lines.
        messages: Messages of a chat: mappings with `role` and `content`.
        system: System prompt of a chat for Anthropic, which takes it beside the messages.
    """

    text: str
    messages: tuple[dict[str, str], ...] = ()
    system: str | None = None

    def tokens(self, tokenizer: str | TokenCounter) -> int:
        """Count its tokens, message framing included."""
        if not self.messages:
            return get_counter(tokenizer)(self.text)
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return count_messages([*system, *self.messages], tokenizer)


@dataclass(frozen=True)
class Format:
    """Format of memories as numbered entries, under headers or each with its label.

    Attributes:
        name: Name of the format.
        templates: Templates of the prompt by role.
        header: Header, with `{}` for its label.
        indent: Prefix of the lines of a memory after the first, so that none reads as a header or
            as another entry.
        chat: Whether the prompt consists of messages.
        aside: Whether the system prompt is separate from the messages.
    """

    name: str
    templates: Mapping[str, Template]
    header: str = "{}:\n"
    indent: str = " "
    chat: bool = False
    aside: bool = False
    grouped = True

    @cached_property
    def reserved(self) -> str:
        """Regular expression for text that could act as more than content.

        It matches control characters, message bounds, and the tags and fences of the template.
        """
        literal = "".join(text for each in self.templates.values() for text, _ in each.parts)
        tags = sorted({re.escape(tag) for tag in re.findall(r"</?([a-zA-Z][\w.-]*)", literal)})
        rules = [
            CONTROLS,
            _BOUNDS,
            _ROLE_TAGS,
            *([rf"<(?=/?(?:{'|'.join(tags)})\b)"] if tags else []),
        ]
        rules += [f"{sign[0]}(?={sign[1:]})" for sign in _FENCES if sign in literal]
        return "|".join(rules)

    def quoted(self, text: str) -> str:
        """Return a text with reserved parts escaped; most texts stay unchanged."""
        text = re.sub(self.reserved, lambda m: self._broken(m[0]), text, flags=re.IGNORECASE)
        if "</" not in text:
            return text
        opened = Counter[str]()

        def written(tag: re.Match[str]) -> str:
            """Return a tag; escape one that closes a tag the text has not opened."""
            closing, name, empty = tag.groups()
            if closing and not opened[name]:
                return self._broken("<") + tag[0][1:]
            opened[name] += -1 if closing else not empty
            return tag[0]

        return _TAG.sub(written, text)

    def _broken(self, sign: str) -> str:
        """Escape a reserved character; in a tag or a fence, a space follows it."""
        code = ord(sign)
        if sign.isprintable():
            return f"{sign} "
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"

    def entry(self, number: int, atom: Atom, text: str, label: str | None = None) -> str:
        """Format one memory.

        Args:
            number: Place in the context, from 1, by which it is cited.
            atom: The memory.
            text: Text to write, whole or shortened.
            label: Label of the entry, if no header states it.
        """
        body = _LINE.sub(
            self.indent, self.quoted(attributed(atom.speaker, _trimmed(text), atom.title))
        )
        return f"{number}. ({self.quoted(label)}) {body}\n" if label else f"{number}. {body}\n"

    def headed(self, label: str) -> str:
        """Format the header of a group."""
        return self.header.format(self.quoted(label))

    def joined(self, pieces: Sequence[str]) -> str:
        """Join headers and entries."""
        return "".join(pieces).removesuffix("\n")

    def prompt(self, context: str, question: str) -> Prompt:
        """Fill the templates with a context and a question."""
        said = {role: text.fill(context, question) for role, text in self.templates.items()}
        text = "\n\n".join(said.values())
        if not self.chat:
            return Prompt(text)
        system = said.pop("system", None) if self.aside else None
        messages = tuple({"role": role, "content": content} for role, content in said.items())
        return Prompt(text, messages, system)


class JsonFormat(Format):
    """Format of memories as a JSON array of objects, cited by their ids."""

    grouped = False

    def entry(self, number: int, atom: Atom, text: str, label: str | None = None) -> str:
        """Format one memory; see `Format.entry`."""
        fields = {
            "id": atom.id,
            "session": atom.session,
            "time": instant_of(atom.time),
            "title": atom.title,
            "text": _trimmed(text.removeprefix(titled(atom.title, ""))),
        }
        known = {name: value for name, value in fields.items() if value is not None}
        return self.quoted(json.dumps(known, ensure_ascii=False)) + ",\n"

    def _broken(self, sign: str) -> str:
        """Escape a reserved character as JSON does, so that parsing restores it."""
        return f"\\u{ord(sign):04x}"

    def joined(self, pieces: Sequence[str]) -> str:
        """Join the entries as an array."""
        inside = "".join(pieces).removesuffix(",\n")
        return f"[{inside}]"


FORMATS = ("text", "markdown", "openai", "anthropic", "json")
"""Names of the formats."""


def load_format(name: str, template: str | Mapping[str, str] | None = None) -> Format:
    """Return a format by its name.

    Args:
        name: Name from `FORMATS`.
        template: Prompt with the fields `{context}` and `{question}`; for a chat the message of
            the user, or a mapping with `system` and `user`; None: that of the format.

    Raises:
        InputError: The name is unknown, or the template is invalid.
    """
    if name not in FORMATS:
        raise InputError(unknown("format", name, FORMATS))
    chat = name in ("openai", "anthropic")
    templates = chat_templates({} if template is None else template, _CHAT if chat else _PLAIN)
    if name == "json":
        return JsonFormat(name, templates)
    if name == "markdown":
        return Format(name, templates, header="## {}\n", indent="   ")
    return Format(name, templates, chat=chat, aside=name == "anthropic")


def _trimmed(text: str) -> str:
    """Strip blank lines around a text, so that no token spans two entries."""
    return text.lstrip("\r\n").rstrip()


UNLABELLED = "Undated"
"""Header of memories without a label that follow labelled ones."""


def render(
    layout: Format, atoms: Sequence[Atom], texts: Sequence[str] | None = None, *, inline: bool
) -> str:
    """Format memories as a context, without the prompt around it.

    Args:
        layout: Format of entries and headers.
        atoms: Memories in order; the first is cited as 1.
        texts: Texts to write; by default the whole memories.
        inline: Whether each entry carries its label; otherwise a header precedes each new label.
    """
    written = [atom.rendered for atom in atoms] if texts is None else texts
    pieces: list[str] = []
    over: str | None = None
    for number, (atom, text) in enumerate(zip(atoms, written, strict=True), start=1):
        label = label_of(atom) if layout.grouped else None
        if not inline and label != over:
            pieces.append(layout.headed(label or UNLABELLED))
            over = label
        pieces.append(layout.entry(number, atom, text, label if inline else None))
    return layout.joined(pieces)
