"""Characters that act instead of being read: written out, so that a text shows what it holds."""

from __future__ import annotations

import re

__all__ = ["CONTROLS", "visible"]

CONTROLS = r"[\x00-\x08\x0e-\x1f\x7f\x90\x98\x9b\x9d-\x9f\u202a-\u202e\u2066-\u2069]"
"""Expression for one that begins a command of a terminal, or turns the direction of what follows.

Line breaks and tabs are none, nor are the dashes and quotes of Windows texts read as Latin-1.
"""

# Of the others a terminal may obey any; of these some move its cursor. `\r\n` is a line break.
_ON_TERMINAL = re.compile(rf"{CONTROLS}|[\x80-\x9f\v\f\u2028\u2029]|\r(?!\n)")


def visible(text: str, *, escape: str = "") -> str:
    r"""A text for a terminal: what it would obey is written as `\x1b`.

    Args:
        text: Anything.
        escape: How to write a character instead, as a format of its number.
    """

    def written(match: re.Match[str]) -> str:
        code = ord(match[0])
        return (escape or ("\\x{:02x}" if code < 256 else "\\u{:04x}")).format(code)

    return _ON_TERMINAL.sub(written, text)
