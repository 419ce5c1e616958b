"""Words of a text in any script, and the language that its function words show.

Scripts and marks are Unicode properties, read by the package `regex`. No dictionary is used.
Overlapping pairs of characters stand for words, as in Lucene's CJKAnalyzer, in two cases: scripts
without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese), and Korean, whose particles are
attached to words.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.text.unicode_forms import visible

__all__ = [
    "PLAIN_WORD",
    "STOP_WORDS_OF",
    "VocabularyCoverage",
    "bare_piece",
    "count_words",
    "foreign",
    "language_of",
    "languages_of",
    "letter_runs",
    "lowered",
    "pairs",
    "script_language",
    "scripts_of",
    "shared_runs",
    "unread_share",
    "word_ends",
    "words",
]

# Characters of several scripts, such as the long mark of kana, continue the run that they are in.
_PAIRED = ("Han", "Hiragana", "Katakana", "Hangul", "Thai", "Lao", "Khmer", "Myanmar")
_IN_PAIRED = "".join(rf"\p{{scx={script}}}" for script in _PAIRED)
_SIGN = rf"[[\p{{L}}\p{{N}}]--[{_IN_PAIRED}]]\p{{M}}*+"
PLAIN_WORD = lazy_pattern(r"[^\W_]+(?:'[^\W_]+)*")
"""Pattern of a word of digits and Latin letters without combining marks."""

_RUN = (
    "|".join(
        rf"[\p{{scx={script}}}&&[\p{{L}}\p{{N}}]][\p{{scx={script}}}\p{{M}}&&[\p{{L}}\p{{N}}\p{{M}}]]*+"
        for script in _PAIRED
    )
    + rf"|(?:{_SIGN})++(?:'(?:{_SIGN})++)*+"
)
_FIRST_PAIRED = rf"[{_IN_PAIRED}]"
_SPACELESS = rf"[[{_IN_PAIRED}]--\p{{Hangul}}]\p{{M}}*+"
_UNIT = rf"[[{_IN_PAIRED}]--\p{{Hangul}}]\p{{M}}*+|[^\s{_IN_PAIRED}]++|\S"
_HAN = r"\p{scx=Han}"
_CHARACTER = r"\X"

_BEYOND = r"[[\p{L}\p{M}]--\p{Latin}]|[\p{Nd}--[0-9]]"
"""Character class of all writing but plain Latin letters and ASCII digits."""

# Accents without a composed character, vowel points, and elongation marks.
_UNREAD = r"[\u0300-\u036f\u0640]|[\p{Mn}&&[\p{scx=Arabic}\p{scx=Hebrew}]]"
_OTHER_LETTER = r"[\p{L}--\p{Latin}]"
_DIGIT = r"[\p{Nd}--[0-9]]"

# Language whose Snowball stemmer serves a script: the likeliest one, harmless to others.
_BY_SCRIPT = {
    "Arabic": "arabic",
    "Armenian": "armenian",
    "Cyrillic": "russian",
    "Devanagari": "hindi",
    "Greek": "greek",
    "Tamil": "tamil",
}
# Scripts of which coverage by an encoder is tested, with the minimum of word pieces of two letters
# and more, or of single characters, that proves it: encoders of English have 0 to 8, and up to 526.
_ASKED = (
    *("Latin", "Cyrillic", "Greek", "Armenian", "Georgian", "Hebrew", "Arabic", "Ethiopic"),
    *("Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Tamil", "Telugu", "Kannada", "Malayalam"),
    *("Sinhala", *_PAIRED),
)
_PIECES, _CHARACTERS = 50, 2_000
# Minimum share of a language's function words among an encoder's pieces. Encoders of English have
# 0.31 to 0.58 of those of the languages below.
_OWN_WORDS = 0.7
# Marks of WordPiece, SentencePiece and byte-level BPE for the continuation or start of a word.
_BYTE_LEVEL = "\u0120"
_MARKS = f"#\u2581{_BYTE_LEVEL}"
_MOST_UNREAD = 0.5  # maximum share of unreadable letters of a question
_ANY_SCRIPT = "|".join(rf"(?P<{name}>\p{{{name}}})" for name in _ASKED)
_SCRIPT = "|".join(rf"(?P<{name}>\p{{{name}}})" for name in _BY_SCRIPT)

# Function words after the stop lists of Snowball, without English words.
_FUNCTION_WORDS = {
    "german": """
        aber alle alles als also am an auch auf aus bei beim bin bist da damit dann das dass dein
        deine dem den denn der des dich die dir doch du durch ein eine einem einen einer eines er
        es etwas euch euer für gegen gestern habe haben hat hatte hatten her heute hier hin ich ihm
        ihn ihnen ihr ihre ihrem ihren ihrer im immer in ist jede jedem jeden jeder jedes jetzt
        kann kein keine können man mehr mein meine meinem meinen meiner mich mir mit morgen muss
        nach nicht nie noch nun nur ob oder ohne schon sehr sein seine seinem seinen seiner sich
        sie sind so soll um und uns unser unsere unter viel vom von vor wann war waren warum was
        welche welchem welchen welcher welches wem wen weniger wenn wer werde werden wie wieder
        will wir wird wo wurde wurden zu zum zur zwischen über
    """,
    "french": """
        au aux avec avait avez avons ce ces cette dans de des du elle elles en est et était étaient
        été être il ils je la le les leur leurs lui ma mais mes moi mon ne nos notre nous ont ou où
        par pas plus pour pourquoi qu quand que quel quelle quelles quels qui quoi sa se ses sont
        sur ta te tes toi ton tu un une vos votre vous
    """,
    "spanish": """
        al como con cuál cuándo cuando cómo de del desde donde dónde el ella ellas ellos en entre
        era es esa ese eso esta está están este esto fue fueron ha han hasta hay la las le les lo
        los más mi mis muy ni nos nosotros nuestra nuestro o para pero por porque qué que quién
        quien se sin sobre son su sus también te tiene tu un una uno unos y ya yo
    """,
    "italian": """
        agli ai al alla alle anche che chi ci come con cosa cui da dagli dai dal dalla degli dei
        del della delle di dove e è era gli ha hai hanno ho il io la le lei lo loro lui ma mi mia
        mio ne nei nel nella non o per perché più quale quando quella quello questa questo sei si
        sono su sua sul sulla suo ti tra tu un una uno
    """,
    "portuguese": """
        ao aos as com como da das de dela dele do dos e é ela elas ele eles em entre era essa esse
        esta está este eu foi foram há isso isto já lhe mais mas me meu minha muito na não nas nem
        no nos nós o onde os ou para pela pelo por porque qual quando que quem se sem ser seu seus
        sua suas também te tem um uma você
    """,
    "dutch": """
        aan al alles als ben bij daar dan dat de deze die dit doen door een en er had heb hebben
        heeft hem het hij hoe hun ik ja je kan maar mijn naar niet nog nu of om omdat ons onze ook
        op te toen tot uit uw van veel voor waar waarom wat werd wie wij wordt worden zal ze zich
        zij zijn zo
    """,
    "swedish": """
        att av blev de den denna deras dess det detta dig din ditt då där efter ej eller en ett från
        för ha hade han hans har henne hennes hon honom hur här inte jag kan kommer med mellan mig
        min mina mitt mot mycket nu när och om oss på sedan sig sin sina sitt ska som så till under
        upp ut vad var varför vem vi vid vilka vilken är över
    """,
    "polish": """
        albo ale bo być był była było były bym chce ci co czy dla do dlaczego gdy gdzie go i ich ile
        jak jako je jego jej jest jestem już kiedy kto która które który ma mi mnie może na nad nas
        nie nim o od on ona oni po pod przez przy są się ta tak też tego tej ten to ty tylko tym w
        we wy z za ze że
    """,
    "turkish": """
        ama bana ben beni benim bir biz bu çok da daha de değil diye en gibi hangi hem hep her için
        ile ise kadar ki kim mi mı mu mü ne neden nerede nasıl o olan olarak oldu olduğu onlar onu
        onun sana sen siz şey şu var ve veya ya yok
    """,
}
STOP_WORDS_OF = {name: frozenset(text.split()) for name, text in _FUNCTION_WORDS.items()}
"""Function words of languages in Latin letters."""

# Parts of names and English words (`hat`, `die`) are no evidence of a language.
_SHARED = """
    al ale alle also am an as at au aux bana be ben bin biz bo by chi co come con da dai dal dan
    das de dei del della den der des di die dit do don door dos du el em en er era es et eu go had
    han hans hat hay he hem hep her hier hin ho hun il in io is it kan ki kim la las le lo los ma
    man mar mas me med men mi min more morgen mot mu my na nad nas ne no non not nun of on or os
    par per plus po pod sa san se si sin sir so son sur ta te tel ten till to toi ton tot tu ty un
    under up us van var ve vi von wan war was we will wo ya ze zu
"""
_MUTE = frozenset(_SHARED.split())
_VOTES: dict[str, list[str]] = {}
for _language, _listed in STOP_WORDS_OF.items():
    for _word in _listed - _MUTE:
        if len(_word) > 1:
            _VOTES.setdefault(_word, []).append(_language)
_VOTERS = frozenset(_VOTES)
_DENSE = 0.3  # share of function words that English texts do not reach by chance


@cache
def _compiled(pattern: str) -> Any:
    """Compile a pattern of the package `regex`, which English never needs."""
    import regex

    return regex.compile(pattern, regex.V1)


def lowered(text: str) -> str:
    """Return a text in the form in which words are compared: lower case, NFKC, ASCII digits.

    Apostrophes are straight. Dropped are invisible characters (`visible`) and optional marks:
    vowel points of Arabic and Hebrew, tatweel, and accents that stand beside their letter. Vowel
    signs stay.
    """
    if text.isascii():
        return text.lower()
    # Invisible characters first: one may stand between a letter and its accent.
    text = unicodedata.normalize("NFKC", visible(text)).replace("\u2019", "'").lower()
    if _compiled(_BEYOND).search(text) is None:
        return text
    return _compiled(_DIGIT).sub(
        lambda match: str(unicodedata.decimal(match[0])), _compiled(_UNREAD).sub("", text)
    )


def words(text: str) -> list[str]:
    """Return the words of a `lowered` text, in order: runs of letters, digits and their marks.

    A run of a script without spaces is one word.
    """
    if text.isascii() or _compiled(_BEYOND).search(text) is None:
        return PLAIN_WORD.findall(text)
    return _compiled(_RUN).findall(text)


def pairs(word: str) -> list[str]:
    """Return the pairs of characters of a run, or its only character.

    Chinese characters are also returned singly, because many are words. Empty for a plain word.
    """
    if word.isascii() or not _compiled(_FIRST_PAIRED).match(word):
        return []
    signs = _compiled(_CHARACTER).findall(word)
    joined = [one + other for one, other in pairwise(signs)]
    return [*signs, *joined] if not joined or _compiled(_HAN).match(word) else joined


def shared_runs(word: str, known: Container[str]) -> list[str]:
    """Return the longest parts of a run whose `pairs`, or only character, are all known."""
    signs = _compiled(_CHARACTER).findall(word)
    joined = [one + other in known for one, other in pairwise(signs)]
    found = [""]
    for place, sign in enumerate(signs):
        if place and joined[place - 1]:
            found[-1] += sign
        elif sign in known or (place < len(joined) and joined[place]):
            found.append(sign)
    return found[1:]


def script_language(word: str) -> str:
    """Return the language whose stemmer serves a word's script: `english` for Latin and others."""
    found = None if word.isascii() else _compiled(_SCRIPT).match(word)
    return "english" if found is None else _BY_SCRIPT[str(found.lastgroup)]


def scripts_of(vocabulary: Iterable[str]) -> frozenset[str]:
    """Return the scripts that an encoder with this vocabulary of word pieces can read.

    Nearly every vocabulary has single letters of many scripts. A script counts if there are pieces
    of several letters, or thousands of characters (Chinese). Latin is always included.
    """
    single, several = Counter[str](), Counter[str]()
    for word in vocabulary:
        found = None if word.isascii() else _compiled(_ANY_SCRIPT).match(word)
        if found is not None:
            single[str(found.lastgroup)] += 1
            several[str(found.lastgroup)] += len(word) > 1
    many = (name for name in single if several[name] >= _PIECES or single[name] >= _CHARACTERS)
    return frozenset(["Latin", *many])


def languages_of(vocabulary: Collection[str]) -> frozenset[str]:
    """Return the languages in Latin letters that an encoder with this vocabulary can read.

    Their function words are pieces of it; of other languages only short words, or those that are
    English too, are pieces. English is always included.
    """
    pieces = frozenset(vocabulary)
    many = (
        name for name, own in STOP_WORDS_OF.items() if len(own & pieces) >= _OWN_WORDS * len(own)
    )
    return frozenset(["english", *many])


def unread_share(text: str, scripts: frozenset[str]) -> float:
    """Return the share of a text's letters outside of these scripts."""
    if text.isascii():
        return 0.0
    letters = sum(map(str.isalpha, text))
    names = "".join(rf"\p{{{name}}}" for name in sorted(scripts))
    unread = _compiled(rf"[\p{{L}}--[{names}\p{{Common}}]]").findall(text)
    return len(unread) / max(letters, 1)


def bare_piece(piece: str | None) -> str:
    """Return a piece of a vocabulary without its mark, case-folded; empty for an unused number."""
    return (piece or "").strip(_MARKS).casefold()


class VocabularyCoverage:
    """Scripts and languages that a vocabulary of word pieces covers, found when first needed.

    A question in English letters and words needs neither.
    """

    def __init__(self, pieces: Callable[[], Iterable[str | None]]) -> None:
        """Keep the vocabulary.

        Args:
            pieces: Function that returns the pieces with their marks.
        """
        self._pieces = pieces

    @cached_property
    def scripts(self) -> frozenset[str] | None:
        """Scripts, see `scripts_of`; None for pieces of bytes, which encode every script."""
        pieces = [*self._pieces()]
        if any(piece and piece[0] == _BYTE_LEVEL for piece in pieces):
            return None
        return scripts_of(map(bare_piece, pieces))

    @cached_property
    def languages(self) -> frozenset[str]:
        """Languages in Latin letters, see `languages_of`."""
        return languages_of([*map(bare_piece, self._pieces())])

    def unread_share(self, text: str) -> float:
        """Return the share of a text's letters outside of the scripts."""
        if text.isascii() or self.scripts is None:
            return 0.0
        return unread_share(text, self.scripts)

    def is_readable(self, text: str, english: frozenset[str]) -> bool:
        """Return whether half of a question's letters are covered and its language is.

        Args:
            text: Question.
            english: Function words of English.
        """
        if self.unread_share(text) > _MOST_UNREAD:
            return False
        language = language_of(words(lowered(text)), english, min_words=1)
        return language == "english" or self.scripts is None or language in self.languages


def language_of(found: Sequence[str], english: frozenset[str], *, min_words: int = 2) -> str:
    """Return the language of a text in Latin letters; `english` unless its words show another.

    Another language needs at least `min_words` of its function words (`STOP_WORDS_OF`) in the text,
    and more than English has; the first wins a tie. Parts of names and English words count only if
    they, with a certain one, are nearly a third of all words.

    Args:
        found: Words of the text (`words`).
        english: Function words of English.
        min_words: Minimum function words of another language; 1 for questions, because nearly every
            English one has English function words.
    """
    if _VOTERS.isdisjoint(found):
        return "english"
    distinct = set(found)
    votes = Counter(name for word in distinct & _VOTERS for name in _VOTES[word])
    best = max(STOP_WORDS_OF, key=lambda name: votes[name])
    own, others = distinct & STOP_WORDS_OF[best], len(distinct & english - STOP_WORDS_OF[best])
    dense = len(own) > 1 and len(own) >= _DENSE * len(distinct)
    return best if (len(own) if dense else votes[best]) > max(min_words - 1, others) else "english"


def foreign(text: str, english: frozenset[str]) -> bool:
    """Return whether a text is probably not English, so that English rules must not apply.

    Most of its letters are of another script, or its function words of another language
    (`language_of`, with `english`).
    """
    text = lowered(text)
    if not text.isascii():
        letters = sum(map(str.isalpha, text))
        if 2 * len(_compiled(_OTHER_LETTER).findall(text)) > letters:
            return True
    return language_of(words(text), english) != "english"


def count_words(text: str) -> int:
    """Count the words of a text: the runs between white space.

    In scripts without spaces, two characters count as a word.
    """
    count = len(text.split())
    return count if text.isascii() else count + len(_compiled(_SPACELESS).findall(text)) // 2


def word_ends(text: str) -> list[int]:
    """Return the ends of words, and of characters in scripts without spaces: possible cuts."""
    return [match.end() for match in _compiled(_UNIT).finditer(text)]


def letter_runs(text: str) -> list[str]:
    """Return runs of two or more letters, with their marks."""
    return list(_compiled(r"[\p{L}\p{M}]{2,}").findall(text))
