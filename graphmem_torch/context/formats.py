"""Formats: how a memory, a group of memories and a whole prompt are written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from graphmem_torch.atoms import Atom
from graphmem_torch.context.labels import instant_of
from graphmem_torch.context.template import Template, chat_templates
from graphmem_torch.errors import InputError
from graphmem_torch.text.tokens import count_messages, get_counter

__all__ = ["FORMATS", "Format", "JsonFormat", "Prompt", "load_format"]

_PLAIN = {"user": "{context}"}
_CHAT = {
    "system": "Answer from the numbered memories and cite their numbers, like [2].",
    "user": "{context}\n\n{question}",
}


# Where a line that is not empty begins, but for the first.
_LINE = re.compile(r"(?<=[\n\v\f\r\x85\u2028\u2029])(?=[^\n\v\f\r\x85\u2028\u2029])")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, ready to send.

    Attributes:
        text: The whole of it; of a chat, what its messages say, with a blank line between.
        messages: Of a chat: mappings with `role` and `content`.
        system: Of a chat for Anthropic, which takes it beside the messages.
    """

    text: str
    messages: tuple[dict[str, str], ...] = ()
    system: str | None = None

    def tokens(self, tokenizer: str) -> int:
        """How long it is, the framing of its messages included."""
        if not self.messages:
            return get_counter(tokenizer)(self.text)
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return count_messages([*system, *self.messages], tokenizer)


@dataclass(frozen=True)
class Format:
    """A way to write memories: numbered entries, under headers or each with its label.

    Attributes:
        name: What it is called.
        templates: The prompt, by role.
        header: A header, with `{}` for its label.
        indent: What lines of a memory behind its first begin with, so that none of them reads as a
            header or as another entry.
        chat: Whether the prompt is messages.
        aside: Whether a system message stands beside the messages.
    """

    name: str
    templates: Mapping[str, Template]
    header: str = "{}:\n"
    indent: str = " "
    chat: bool = False
    aside: bool = False
    grouped = True

    def entry(self, number: int, atom: Atom, text: str, label: str | None = None) -> str:
        """One memory.

        Args:
            number: Its place in the context, from 1: what cites it.
            atom: The memory.
            text: What is written of it.
            label: When and where it was said, where no header says so.
        """
        body = _LINE.sub(self.indent, _trimmed(text))
        return f"{number}. ({label}) {body}\n" if label else f"{number}. {body}\n"

    def headed(self, label: str) -> str:
        """The header of a group."""
        return self.header.format(label)

    def joined(self, pieces: Sequence[str]) -> str:
        """Headers and entries as one text."""
        return "".join(pieces).removesuffix("\n")

    def prompt(self, context: str, question: str) -> Prompt:
        """The prompt with this context."""
        said = {role: text.fill(context, question) for role, text in self.templates.items()}
        text = "\n\n".join(said.values())
        if not self.chat:
            return Prompt(text)
        system = said.pop("system", None) if self.aside else None
        messages = tuple({"role": role, "content": content} for role, content in said.items())
        return Prompt(text, messages, system)


class JsonFormat(Format):
    """Memories as a JSON array of objects; their ids cite them."""

    grouped = False

    def entry(self, number: int, atom: Atom, text: str, label: str | None = None) -> str:
        """One memory; see `Format.entry`."""
        fields = {
            "id": atom.id,
            "session": atom.session,
            "time": instant_of(atom.time),
            "text": _trimmed(text),
        }
        known = {name: value for name, value in fields.items() if value is not None}
        return json.dumps(known, ensure_ascii=False) + ",\n"

    def joined(self, pieces: Sequence[str]) -> str:
        """The array."""
        inside = "".join(pieces).removesuffix(",\n")
        return f"[{inside}]"


FORMATS = ("text", "markdown", "openai", "anthropic", "json")
"""Names of the formats."""


def load_format(name: str, template: str | Mapping[str, str] | None = None) -> Format:
    """A format by its name.

    Args:
        name: One of `FORMATS`.
        template: A prompt with the fields `{context}` and `{question}`; of a chat the message of
            the user, or a mapping with `system` and `user`. None or empty: the format's own.

    Raises:
        InputError: Another name, or a template that does not fit.
    """
    if name not in FORMATS:
        close = get_close_matches(str(name), FORMATS, n=1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(f"format: expected one of {', '.join(FORMATS)}, got {name!r}{meant}")
    chat = name in ("openai", "anthropic")
    templates = chat_templates(template or {}, _CHAT if chat else _PLAIN)
    if name == "json":
        return JsonFormat(name, templates)
    if name == "markdown":
        return Format(name, templates, header="## {}\n", indent="   ")
    return Format(name, templates, chat=chat, aside=name == "anthropic")


def _trimmed(text: str) -> str:
    """A text without blank lines around it, so that no token spans two entries."""
    return text.lstrip("\r\n").rstrip()
