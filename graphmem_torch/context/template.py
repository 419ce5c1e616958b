"""Templates: a prompt with places for the memories and for the question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from string import Formatter

from graphmem_torch.errors import InputError

__all__ = ["Template", "chat_templates"]

_FIELDS = ("context", "question")
_ROLES = ("system", "user")


@dataclass(frozen=True, slots=True)
class Template:
    """A text with the fields `{context}` and `{question}`; `{{` and `}}` stand for braces.

    Attributes:
        parts: Each literal text and the field behind it, None for none.
    """

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        """Reads a template.

        Raises:
            InputError: Another field, a lone brace, or something that is no text.
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
                close = get_close_matches(field, _FIELDS, n=1)
                meant = f"; did you mean {{{close[0]}}}?" if close else ""
                raise InputError(
                    f"template: expected the fields {{context}} and {{question}}, got "
                    f"{_written(field, form, conversion)}{meant}; write {{{{ and }}}} for braces"
                )
            parts.append((literal, field))
        return cls(tuple(parts))

    def count(self, field: str) -> int:
        """How often a field occurs."""
        return sum(name == field for _, name in self.parts)

    def fill(self, context: str, question: str) -> str:
        """The text with its fields filled in."""
        values = {None: "", "context": context, "question": question}
        return "".join(literal + values[field] for literal, field in self.parts)


def chat_templates(given: str | Mapping[str, str], plain: Mapping[str, str]) -> dict[str, Template]:
    """The templates of a prompt by role.

    Args:
        given: A text for the role `user`, or texts for the roles `system` and `user`; an empty one
            drops a system message.
        plain: What a format says where nothing is given.

    Raises:
        InputError: An unknown role, or a `{context}` that is missing or there twice.
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
