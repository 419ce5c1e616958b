"""Escape control characters, so that a text shows its true content."""

from __future__ import annotations

import re

from graphmem_torch.lazy import lazy_pattern

__all__ = ["CONTROLS", "visible"]

CONTROLS = r"[\x00-\x08\x0e-\x1f\x7f\x90\x98\x9b\x9d-\x9f\u202a-\u202e\u2066-\u2069]"
"""Character class of terminal commands and of marks that change the direction of text.

It excludes line breaks, tabs, and the dashes and quotes of Windows texts read as Latin-1.
"""

# A terminal may obey any of the other characters; some of these move its cursor. `\r\n` is a line
# break.
_ON_TERMINAL = lazy_pattern(rf"{CONTROLS}|[\x80-\x9f\v\f\u2028\u2029]|\r(?!\n)")


def visible(text: str, *, escape: str = "") -> str:
    r"""Return a text safe for a terminal: control characters are written as `\x1b`.

    Args:
        text: Any text.
        escape: Format of an escape, applied to the character's number.
    """

    def written(match: re.Match[str]) -> str:
        code = ord(match[0])
        return (escape or ("\\x{:02x}" if code < 256 else "\\u{:04x}")).format(code)

    return _ON_TERMINAL.sub(written, text)
