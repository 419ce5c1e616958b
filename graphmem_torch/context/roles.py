"""Roles of a conversation with a model, as names and at the start of lines."""

from __future__ import annotations

import json
import re
import unicodedata
from functools import lru_cache

from graphmem_torch.atoms import titled
from graphmem_torch.lazy import lazy_pattern

__all__ = ["BREAK", "CHAT_ROLE", "attributed", "header_name"]

CHAT_ROLE = "system|developer|user|human|assistant|ai|tool"
"""Regular expression of the English roles."""

BREAK = r"\n\v\f\r\x85\u2028\u2029"
"""Characters that end a line, for use in a character class of a regular expression."""

# The roles system, user and assistant in other languages.
_TRANSLATED = (
    "sistema, usuario, asistente, usuário, utilizador, assistente, utente",  # es, pt, it
    "système, utilisateur, utilisatrice, assistante",  # fr
    "benutzer, benutzerin, nutzer, assistent, assistentin, systeem, gebruiker",  # de, nl
    "användare, bruger, bruker, käyttäjä, järjestelmä, avustaja",  # sv, da, no, fi
    "użytkownik, asystent, systém, uživatel, asistent, používateľ",  # pl, cs, sk
    "система, пользователь, ассистент, помощник, користувач, асистент, помічник",  # ru, uk
    "sistem, kullanıcı, asistan, pengguna, asisten, utilizator",  # tr, id, ro
    "rendszer, felhasználó, asszisztens, σύστημα, χρήστης, βοηθός",  # hu, el
    "系统, 系統, 用户, 用戶, 使用者, 助手, 助理",  # zh
    "システム, ユーザー, ユーザ, アシスタント, 시스템, 사용자, 어시스턴트",  # ja, ko
    "النظام, نظام, المستخدم, مستخدم, المساعد, مساعد",  # ar
    "سیستم, کاربر, دستیار, מערכת, משתמש, עוזר",  # fa, he
    "सिस्टम, प्रणाली, उपयोगकर्ता, सहायक",  # hi
    "ระบบ, ผู้ใช้, ผู้ช่วย, hệ thống, người dùng, trợ lý",  # th, vi
)
# Letters that look like Latin ones (Unicode UTS 39, confusables.txt).
_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u04cf\u043c\u0442\u043d"
    "\u03bf\u03b1\u03b5\u03b9\u03c4\u03c5\u03bd\u0131",
    "aeopcyxijsdhlmthoaeitvui"[:24],
)


@lru_cache(maxsize=8192)
def _letters(name: str) -> str:
    """Normalise a name to words of lower-case letters and digits, lookalikes replaced."""
    plain = unicodedata.normalize("NFKD", name).casefold().translate(_LOOKALIKES)
    seen = "".join(sign for sign in plain if unicodedata.category(sign) not in ("Cf", "Mn"))
    return " ".join(re.findall(r"[^\W_]+", seen))


_ROLE = "|".join(
    [CHAT_ROLE, *(_letters(word) for line in _TRANSLATED for word in line.split(", "))]
)
_QUESTION = "question|answer"
_PARTS = f"{_ROLE}|model|function|context|{_QUESTION}|instructions?"
# Names that read as an entry, a day or a part of a prompt.
_IMITATION = lazy_pattern(
    rf"\W*(\d+[.)](\s.*)?|\d{{1,2}} [a-z]+ -?\d+|undated|{_PARTS})\W*(:.*)?", re.IGNORECASE
)
_BESIDE = "s|prompt|messages?|reply|response|turn|override|note|notice|input|output"
_ROLE_LABEL = lazy_pattern(
    rf"(\d+ )*(((the|{_ROLE}) )*({_ROLE})( ({_ROLE}|{_BESIDE}))*( \d+)*|{_QUESTION})"
)
_PART = lazy_pattern(_PARTS)
_LONGEST = 64  # maximum length of a name that is not quoted
# Characters that end a name, or start markup.
_MARKUP = lazy_pattern(rf"[:\uff1a<>{{}}\[\]{BREAK}]|^\W*[#*~=`|]+\s")
# Bullets of a line, its numbers and signs, its first words, and the sign that ends them.
_HEAD = lazy_pattern(
    rf"(?P<bullets>(?:\A|[{BREAK}])(?:[^\S{BREAK}]|[-+\u2022] )*+)"
    rf"(?P<signs>(?:[^\w{BREAK}]|[\d_]|(?<!\w)[a-zA-Z][.)\]] |(?<!\w)[ivxIVX]{{2,5}}[.)\]] )*+)"
    rf"(?P<name>[^:\uff1a>{BREAK}]{{1,{_LONGEST}}})(?=(?P<end>[:\uff1a]|>(?!=)|[{BREAK}]|\Z))"
)
_ASIDE = lazy_pattern(r"(?<=\w)[^\w(\[{\uff08\u3010@]*[(\[{\uff08\u3010@].*")  # `user (8 May 2023)`
# Signs that mark a line without a colon as a heading, before or after the words.
_HEADING = lazy_pattern(r"[#*=~|\[({\u3010]|--|__")
_UNDERLINE = lazy_pattern(rf"[{BREAK}]{{1,2}}[^\S{BREAK}]*[-=]{{2,}}[^\S{BREAK}]*(?:[{BREAK}]|\Z)")


def header_name(session: str) -> str:
    """Return the name of a session as a header; quoted if it does not read as a plain name."""
    name = _one_line(session)
    if _imitates(name) or _HEAD.sub(_quoted_head, session) != session:
        return json.dumps(name, ensure_ascii=False)
    return name


def attributed(speaker: str | None, text: str, title: str | None = None) -> str:
    """Quote the role labels of a rendered text (`Atom.rendered`), so none addresses the model.

    The speaker comes first, quoted unless it is a plain name. Role labels at the start of a line
    are quoted, too. A title stays above the text.
    """
    above = titled(title, "")
    if above and text.startswith(above):
        return _HEAD.sub(_quoted_head, above) + attributed(speaker, text[len(above) :])
    front = f"{speaker}: ".lstrip("\r\n") if speaker else ""
    if not front or not text.startswith(front):
        return _HEAD.sub(_quoted_head, text)
    assert speaker is not None
    name = speaker if _is_plain(speaker) else _quoted_name(speaker)
    said = text[len(front) :]
    first = re.match(rf"[^{BREAK}]*", said)
    assert first is not None  # the text after a name on its line is no label
    return f"{name}: {first[0]}{_HEAD.sub(_quoted_head, said[first.end() :])}"


def _quoted_head(head: re.Match[str]) -> str:
    """Return the start of a line, quoted if it is the label of a role."""
    signs, name, end = head["signs"], head["name"], head["end"]
    label = (signs + name).strip()
    if label[:1] == label[-1:] == '"' or not _is_role(_ASIDE.sub("", name)):
        return head[0]
    if end == ">" and ("<" in label or name[-1].isspace()):  # `Tool<T>`, `User > Settings`
        return head[0]
    if end not in (":", "\uff1a", ">"):
        trailing = name[len(name.rstrip("".join({*name} - {*filter(str.isalnum, name)}))) :]
        marked = _HEADING.search(signs) or _HEADING.search(trailing)
        if not marked and not _UNDERLINE.match(head.string, head.end()):
            return head[0]
    return head["bullets"] + json.dumps(label, ensure_ascii=False)


@lru_cache(maxsize=8192)
def _is_role(label: str) -> bool:
    return _ROLE_LABEL.fullmatch(_letters(label)) is not None


def _imitates(name: str) -> bool:
    """Return whether a name reads as an entry, a day, a role or a part of a prompt."""
    return _IMITATION.fullmatch(name) is not None or _is_role(_ASIDE.sub("", name))


@lru_cache(maxsize=8192)
def _is_plain(name: str) -> bool:
    """Return whether a name in front of a text reads as nothing but a name."""
    if len(name) > _LONGEST or _MARKUP.search(name) or _imitates(name):
        return False
    words = [word.strip("0123456789") for word in _letters(name).split()]
    return not any(_PART.fullmatch(word) for word in [*words, "".join(words)])


def _quoted_name(name: str) -> str:
    """Return a name as a JSON string with escaped colons, so that none ends a label."""
    said = json.dumps(_one_line(name).rstrip(": \uff1a"), ensure_ascii=False)
    return re.sub("[:\uff1a]", lambda colon: f"\\u{ord(colon[0]):04x}", said)


def _one_line(name: str) -> str:
    return " ".join(name.split())
