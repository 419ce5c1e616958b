"""What a statement says of what has one value at a time: where somebody lives, works, what costs.

Patterns of English read *states* from a text: of whom or what (the subject), which slot (home,
employer, role, favourite, car, schedule, lead, or an attribute named by its noun), its value, and
whether the value holds or has ended ("no longer", "left", "gave up"). What is asked, wished, may be
or once was is no state. Two statements are at odds where a slot of one subject has two values, or
where one says that what the other tells has ended (`docs/mathematics.md` 5.2).

What no pattern reads is not there: absence of a state means nothing. Sentences of more than 100
words, and states beyond 64 of a text, are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from graphmem_torch.text.sentences import split_at_marks
from graphmem_torch.text.terms import STOP_WORDS, terms
from graphmem_torch.text.times import MONTHS

__all__ = ["CUES", "Reading", "State", "at_odds"]

CUES = ("slot", "attribute", "ended", "agreed", "strangers", "changed")
"""What `at_odds` tells of two readings, in this order."""

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_LONGEST = 100  # words of a sentence that patterns are looked for in
_MOST = 64  # states of a text
_HEAD = 80  # characters that the name of a speaker is looked for in
_LONG = 32  # letters of a word

_CALENDAR = frozenset([*WEEKDAYS, *MONTHS, *(day + "s" for day in WEEKDAYS)])

_KIN_WORDS = """
aunt boss boyfriend brother child children coach colleague cousin coworker dad daughter father
friend girlfriend grandfather grandma grandmother grandpa grandparents husband kid kids mom
mother mum neighbor neighbour nephew niece parent parents partner roommate sister son uncle
wife
"""
_KIN = frozenset(_KIN_WORDS.split())
"""Whose home, job or car it is when they are named beside somebody: not that somebody's."""

# Where a value ends: what goes on behind it is about something else.
_BEYOND_WORDS = """
a again after already although am an and any anymore are as at back be because before behind
best but by can currently during ever every everything for forever from good had has have he her
his how i if in instead is it last lately like likes loves more most my next nowadays now of off
on once or our over right she since so soon still than that the their these they this though to
today together tomorrow too two until was way we were what when where which while who will with
yesterday you your
"""
_BEYOND = frozenset(_BEYOND_WORDS.split())
_ARTICLES_WORDS = "a an the my his her their our your its some this that"
_ARTICLES = frozenset(_ARTICLES_WORDS.split())
_VERBS = """
attend be being do doing drink drive driving eat enjoy enjoying go going have having is lead
leading like liking live living love loving own owning play playing practise practising prefer
run running see seeing smoke stand take taking use using want work working
"""
_FIRST = re.compile(r"\b(?:i|i'm|i've|i'd|i'll|my|mine|me|we|we're|we've|our)\b")
_SPEAKER = re.compile(r"([^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*){0,2}): ")
_UNREAL = re.compile(
    r"\b(?:used to|once|may|might|could|would|should|wants?|wanted|wish(?:es|ed)?|hop(?:es?|ing)|"
    r"plan(?:s|ned|ning)?|dream(?:s|ed|ing)?|think(?:s|ing)? (?:about|of)|consider(?:s|ed|ing)?|"
    r"if|some day|someday|one day|almost|nearly|also|as well|too|another|second|"
    r"never|years ago|interned|going to|will|won't)\b"
)
_DENIED = re.compile(r"\b(?:not|no longer|never|cannot|\w+n't)\b")
_CHANGED = re.compile(
    r"\b(?:now|no longer|any ?more|these days|nowadays|from now on|as of|moved|relocated|switched|"
    r"changed|swapped|replaced|new|became|become|stopped|quit|resigned|gave up|given up|left|sold|"
    r"rescheduled|reset|since)\b"
)

_HOME = r"(?:home|house|apartment|flat|condo|place)"
_AFTER: tuple[tuple[str, str], ...] = (  # slot, what stands before its value
    ("home", r"(?:lives?|living|resid(?:es?|ing)|based|settled|settling)(?: \w+)? (?:in|at)"),
    ("home", r"(?:have|has|'ve) lived (?:in|at)"),
    ("moved", r"(?:moved|moving|moves|relocated|relocating)(?: (?:back|over|out))? (?:in)?to"),
    ("moved", r"(?:moved|relocated) from (?:[\w'-]+ ){1,3}?to"),
    ("home", rf"{_HOME}(?: \w+)? in"),
    ("home", rf"{_HOME} is (?:now )?in"),
    ("home", r"resident of"),
    ("employer", r"(?:works|(?:i|we|to) work|working) (?:at|for)"),
    ("employer", r"employed (?:by|at)"),
    ("employer", r"hired by"),
    ("joined", r"joined"),
    ("employer", r"(?:job|position|offer|started|living) (?:at|with|from)"),
    ("employer", r"payroll of"),
    ("employer", r"employer is"),
    ("role", r"(?:works?|working|retrained|money|living) as"),
    ("role", r"promoted to"),
    ("role", r"job is (?:being|that of)"),
    ("called", r"(?:became|become|becoming|is|am|i'm|now) (?:now |currently )?(?=an? )"),
    ("car", r"(?:drives|drive|driving) (?=an? |the )"),
    ("car", r"car is"),
    ("car", r"gets? around in"),
    ("favourite", r"(?:prefers?|picks?|goes for|go for)"),
    ("favourite", r"switched to"),
    ("favourite", r"(?:likes?|loves?|enjoys?) (?=[\w' -]*? (?:best|most|more than any))"),
    ("favourite", r"(?:likes?|loves?|enjoys?) (?:best|most) is"),
)  # fmt: skip
# Slots whose value must be a name, lest anything is one.
_NAMED = {"joined": "employer", "moved": "home"}
# What is said of somebody by an article is an occupation if its noun looks like one.
_OCCUPATION = re.compile(
    r"an? (?:[\w'-]+ )??(?!(?:mother|father|sister|brother|daughter|member|lover|believer|beginner|"
    r"winner|owner|newcomer|partner|neighbou?r|supporter|fighter|number|matter|reminder|visitor)\b)"
    r"(?:\w+(?:er|or|ist|ian|ant|eur)|\w*(?:man|woman)|chef|cook|judge|nurse|pilot|guide|clerk|monk|"
    r"smith|secretary|student|apprentice|florist|actress|waitress|president|agent)\b"
    r"(?! (?:of|at|than)\b)"
)
_STATES = [(slot, re.compile(rf"\b(?:{pattern})(?:\s|(?<=\s))")) for slot, pattern in _AFTER]
_DAY = rf"(?:{'|'.join([*WEEKDAYS, *MONTHS])})s?"
_SCHEDULED = re.compile(
    r"\b(?:(?:meets?|is|takes? place|held|starts?|happens?|runs?) (?:every |on |in )+|"
    r"(?:moved|rescheduled|postponed|shifted|changed|brought forward) (?:to|until) (?:every )?|"
    rf"^every )(?P<v>{_DAY})\b"
)
_COUNTING = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS = {word: str(i) for i, word in enumerate(_COUNTING.split())}
_COUNTED = re.compile(  # so many of somebody or something
    r"\b(?:have|has|got|reached|hit|at|up to|down to|counts?|leads?|team of|owns?|weighs?|is|now|"
    r"costs?|(?:sells?|tried|sold) (?:[\w' ]+ )?for|charges?|rose to|fell to|dropped to) "
    r"(?:now |already |about |only )?(?P<v>\d[\d.,]*) (?P<key>[^\W\d_]\w*)"
)
_LED = r"(?:leads|heads|runs|manages|is (?:now )?(?:in charge|head|manager|captain|chair|ceo) of)"
_LEADS = re.compile(rf"(?P<v>[\w'-]+)(?: now)? {_LED} (?P<of>[\w' -]+)")
_TAKES = re.compile(
    r"(?P<v>[\w'-]+) (?:took over (?P<of>[\w' -]+?) from (?P<o>[\w'-]+)|"
    r"replaced (?P<o2>[\w'-]+) as (?:head|manager|captain|chair|ceo) of (?P<of2>[\w' -]+))"
)
_LED_BY = re.compile(
    r"(?:(?:head|manager|captain|chair|ceo) of (?P<of>[\w' -]+?) is (?:now )?|"
    r"(?P<of2>[\w' -]+?) is (?:now )?(?:led|run|headed|managed) by )(?P<v>[\w'-]+)"
)
_STEPS = re.compile(
    r"(?P<o>[\w'-]+) (?:stepped down|resigned) as (?:head|manager|captain|chair|ceo)"
)

# One out, one in: (what ends, what holds).
_EXCHANGED = re.compile(
    r"\b(?:switched|changed|moved|went|relocated) from (?P<a>[\w' -]+?) to (?P<b>[\w' -]+)|"
    r"\b(?:swapped|traded|exchanged|trading) (?P<c>[\w' -]+?)(?: in)? for (?P<d>[\w' -]+)|"
    r"\breplaced (?P<e>[\w' -]+?) (?:with|by) (?P<f>[\w' -]+)"
)
# What is no more; what follows it has ended.
_ENDED = re.compile(
    r"\b(?:no longer|(?:have |has |'ve )?(?:stopped|quit|quitted|gave up|given up)|"
    r"lost (?:my|his|her|their) job (?:at|with)|"
    r"left(?! (?:for|to|the house|home|early|late))|moved (?:away|out) (?:from|of)|"
    r"resigned from|let go by|fired by|laid off by|notice at|"
    r"(?:gone|went) off|got rid of|sold|cancell?ed|former(?:ly)?|"
    r"(?:\w+n't|not|cannot|can't)(?= .*\bany ?more\b))\s(?P<v>[^,.;!?]+)"
)
# What stands before a denial has ended with it: "osprey doesn't work as the gate code anymore".
_ENDED_BEFORE = re.compile(
    r"^(?P<v>[\w' -]+?) (?:(?:does|do)n't work|isn't used) (?:as|for) .*\bany ?more\b"
)

# Nouns of which there is one: whatever it is, there is no second.
_SINGLE_WORDS = """
address age birthday budget capital captain ceo chair code colour color combination date
deadline director email favorite favourite goal head height key leader limit login manager
name nickname number password pin plan price rank rating rent role salary score size speed
status target team temperature title topic username version wage weight winner
"""
_SINGLE = frozenset(_SINGLE_WORDS.split())
_COPULA = re.compile(
    r"(?P<key>(?:[\w'-]+ ){1,6}?)(?:is|was changed to|was set to|has been reset to|was reset to|"
    r"has been changed to|changed to|was updated to|is called|:)(?: now| no longer)? "
    r"(?P<v>[\w' -]+)"
)
_USED_AS = re.compile(r"(?:use )(?P<v>[\w' -]+?) as (?P<key>[\w' -]+)")
_NEED = re.compile(r"(?:need|use) (?P<v>[\w'-]+) , that's (?P<key>[\w' -]+)")
_BY_MOST = re.compile(
    r"(?P<v>[\w' -]+?) is the (?P<key>\w+) (?:\w+ )?(?:likes?|loves?|enjoys?) (?:most|best)"
)
_MOST_IS = re.compile(
    r"the (?P<key>\w+) (?:\w+ )?(?:likes?|loves?|enjoys?) (?:most|best) is (?P<v>[\w' -]+)"
)
_BEST_OF = re.compile(
    r"(?:likes?|loves?|enjoys?|prefers?) (?P<v>[\w' -]+?) (?:best of all|more than any other|"
    r"most of all|over any other|to any other) (?P<key>\w+)"
)
_WHERE = re.compile(
    r"(?P<v>[\w' -]+?) (?:is where [\w' -]+ lives?|is (?:my|our|his|her|their) home)"
)
_CALLS = re.compile(r"calls? (?P<v>[\w' -]+?) home\b")


@dataclass(frozen=True, slots=True)
class State:
    """That a slot of a subject has a value, or that a value of it has ended.

    Attributes:
        slot: Its name; empty where only the value says what has ended.
        key: Stems of the noun of an attribute, or of what a favourite is of.
        subject: Stems of whom or what.
        value: Stems of the value.
        ended: Whether it no longer holds.
    """

    slot: str
    key: frozenset[str]
    subject: frozenset[str]
    value: frozenset[str]
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says of slots.

    Attributes:
        states: In the order of its sentences.
        names: Stems of all whom it names, its speaker where the first person tells.
        words: Stems of all its content words, and the names.
        stems: Of each sentence that neither denies, ends, asks nor wishes, its content words.
        changed: Whether it says that something is other than it was.
    """

    states: tuple[State, ...]
    names: frozenset[str]
    words: frozenset[str]
    stems: tuple[frozenset[str], ...]
    changed: bool

    @classmethod
    def of(cls, text: str) -> Reading:
        """The reading of a text, with its speaker in front of it or without."""
        text = text.replace("\u2019", "'")
        head = _SPEAKER.match(text[:_HEAD])
        speaker = _stems(head[1]) if head else frozenset[str]()
        body = text[head.end() :] if head else text
        states: list[State] = []
        names: set[str] = set()
        stems = []
        changed = False
        for line in body.split("\n"):
            for part in split_at_marks(line, ".!?;"):
                if not part.strip() or part.rstrip().endswith("?"):
                    continue
                sentence = _Sentence(part, speaker)
                states += sentence.states()
                names |= sentence.names
                changed = changed or _CHANGED.search(sentence.lowered) is not None
                if not any(p.search(sentence.lowered) for p in (_DENIED, _UNREAL, _ENDED)):
                    stems.append(_stems(part) | sentence.names)
        return cls(
            tuple(states[:_MOST]), frozenset(names), _stems(body) | names, tuple(stems), changed
        )


def at_odds(one: Reading, other: Reading) -> tuple[float, ...]:
    """What of `CUES` holds of two readings, 0 or 1 each; the order of the two does not matter.

    `slot`: a slot of one subject has two values; `attribute`: an attribute, likewise; `ended`: one
    says that what the other tells has ended; `agreed`: a slot has one value in both; `strangers`:
    both name somebody, and nobody of whom the other speaks, or their states are of different
    subjects; `changed`: one of them says that something
    is other than it was.
    """
    slot = attribute = ended = agreed = False
    for a in one.states:
        for b in other.states:
            if a.ended and b.ended:
                continue
            if not _same(a.subject, b.subject):
                continue
            if a.ended or b.ended:
                out, kept = (a, b) if a.ended else (b, a)
                ended = ended or _covered(out.value, kept.value | kept.key)
            elif a.slot == b.slot and _one_key(a, b):
                if a.value & b.value:
                    agreed = True
                elif a.slot == "attribute":
                    attribute = True
                else:
                    slot = True
    for mine, theirs in ((one, other), (other, one)):
        ended = ended or any(
            state.ended
            and any(_covered(state.value, said) for said in theirs.stems if state.subject <= said)
            for state in mine.states
        )
    named = bool(one.names) and bool(other.names)
    strangers = named and not (one.names & other.words or other.names & one.words)
    if one.states and other.states:
        strangers = not any(
            _same(mine.subject, theirs.subject) for mine in one.states for theirs in other.states
        )
    cues = (slot, attribute, ended, agreed, strangers, one.changed or other.changed)
    return tuple(map(float, cues))


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    """One subject: half of what it is called in common, and the same relatives."""
    kin = _listed(_KIN_WORDS)
    mine, theirs = one - kin, other - kin
    shared = len(mine & theirs)
    return bool(shared) and 2 * shared >= max(len(mine), len(theirs)) and one & kin == other & kin


def _one_key(one: State, other: State) -> bool:
    """One attribute; a favourite of anything may be one of everything."""
    if one.slot == "favourite":
        return not one.key or not other.key or bool(one.key & other.key)
    return one.key == other.key


def _covered(value: frozenset[str], said: frozenset[str]) -> bool:
    """Whether most of what has ended is in what is said."""
    return bool(value) and len(value & said) > len(value) / 2


class _Sentence:
    """A sentence as its patterns are looked for."""

    def __init__(self, text: str, speaker: frozenset[str]) -> None:
        self.words = [word[:_LONG] for word in re.findall(r"\w+(?:['-]\w+)*|[,:]", text)]
        self.lowered = " ".join(word.lower() for word in self.words)
        self.first = _FIRST.search(self.lowered) is not None
        self.speaker = (speaker or frozenset(["i"])) if self.first else frozenset[str]()
        first = next((i for i, word in enumerate(self.words) if word[0].isalpha()), -1)
        named = {
            stem
            for i, word in enumerate(self.words)
            if word[0].isupper() and _named(word, first=i == first)
            for stem in _stems(word)
        }
        self.names = frozenset(named) | self.speaker
        self.kin = _stems(
            " ".join(w for word in self.words if (w := word.lower().removesuffix("'s")) in _KIN)
        )

    def states(self) -> list[State]:
        """What the sentence says of slots."""
        if len(self.words) > _LONGEST:
            return []
        found = list(self._found())
        values = frozenset[str]().union(*(value for _, _, value, _ in found))
        subject = (self.names - values) | self.kin
        if not subject - self.kin:  # a thing without a name is what its nouns say
            keys = frozenset[str]().union(*(key for slot, key, _, _ in found if slot == "count"))
            subject |= _stems(self.lowered) - values - keys - _listed(_VERBS) - _listed(_SAID)
        states = []
        for slot, key, value, ended in found:
            mine = key if slot in ("attribute", "schedule", "lead") and key else subject
            if mine and value:
                states.append(State(slot, key, mine, value, ended))
        return states

    def _found(self) -> Iterator[tuple[str, frozenset[str], frozenset[str], bool]]:
        """Slot, key, value, whether it has ended."""
        text = self.lowered
        none = frozenset[str]()
        before = _ENDED_BEFORE.match(text)
        for match in [before] if before else _ENDED.finditer(text):
            yield "", none, _object(match["v"]), True
        for match in _EXCHANGED.finditer(text):
            out, new = (
                next((match[name] for name in names if match[name]), "") for names in ("ace", "bdf")
            )
            yield "", none, _value(out), True
            if "moved" not in match[0] and "relocated" not in match[0]:
                for slot in ("favourite", "employer", "car"):
                    yield slot, none, _value(new), False
        yield from self._leads(text)
        if _UNREAL.search(text):
            return
        if _DENIED.search(text):
            return
        for slot, pattern in _STATES:
            for match in pattern.finditer(text):
                value, name = _value(text[match.end() :]), slot
                if slot in _NAMED:  # one may join a gym as well, and be moved to tears
                    name = _NAMED[slot] if value & self.names else ""
                elif slot == "called":
                    name = "role" if _OCCUPATION.match(text, match.end()) else ""
                if name:
                    yield name, none, value, False
        for pattern, slot in ((_WHERE, "home"), (_CALLS, "home")):
            for match in pattern.finditer(text):
                yield slot, none, _value_before(match["v"]), False
        for match in _SCHEDULED.finditer(text):
            rest = text[: match.start()] + " " + text[match.end() :]
            yield (
                "schedule",
                _stems(rest) - _listed(_SCHEDULING),
                frozenset([match["v"].rstrip("s")]),
                False,
            )
        counted = " ".join(_NUMBERS.get(word, word) for word in text.split())
        for match in _COUNTED.finditer(counted):
            yield "count", _stems(match["key"]), frozenset([match["v"].replace(",", "")]), False
        for pattern in (_BY_MOST, _MOST_IS, _BEST_OF):
            for match in pattern.finditer(text):
                yield (
                    "favourite",
                    _stems(match["key"].rstrip("s")),
                    _value_before(match["v"]),
                    False,
                )
        for pattern in (_COPULA, _USED_AS, _NEED):
            for match in pattern.finditer(text):
                yield from self._attribute(match["key"], match["v"])

    def _leads(self, text: str) -> Iterator[tuple[str, frozenset[str], frozenset[str], bool]]:
        none = frozenset[str]()
        for match in _TAKES.finditer(text):
            of = _stems(match["of"] or match["of2"]) - _listed(_LEADING)
            yield "lead", of, _stems(match["v"]), False
            yield "lead", of, _stems(match["o"] or match["o2"]), True
        if _DENIED.search(text) or _UNREAL.search(text):
            return
        for pattern in (_LEADS, _LED_BY):
            for match in pattern.finditer(text):
                groups = match.groupdict()
                of = _stems(groups["of"] or groups.get("of2") or "") - _listed(_LEADING)
                if of:
                    yield "lead", of, _stems(match["v"]), False
        for match in _STEPS.finditer(text):
            yield "", none, _stems(match["o"]), True

    def _attribute(
        self, key: str, said: str
    ) -> Iterator[tuple[str, frozenset[str], frozenset[str], bool]]:
        """An attribute on either side of a copula."""
        left, right = _stems(key) - _listed(_NEWER), _stems(said) - _listed(_NEWER)
        nouns = {word.removesuffix("'s") for word in key.split()}
        others = {word.removesuffix("'s") for word in said.split()}
        if "favourite" in nouns | others or "favorite" in nouns | others:
            flip = "favourite" in others or "favorite" in others
            noun, value = (said, _value_before(key)) if flip else (key, _value(said))
            behind = re.split(r"favou?rite", noun, maxsplit=1)[1]
            yield "favourite", _stems(behind) - self.names, value, False
        elif nouns & _SINGLE:
            yield "attribute", left | self.speaker, _value(said) - left, False
        elif others & _SINGLE:
            yield "attribute", right | self.speaker, _value_before(key) - right, False


def _named(word: str, *, first: bool) -> bool:
    """Whether a capitalised word is a name; the first of a sentence may be any other word."""
    plain = word.lower().removesuffix("'s")
    if plain in STOP_WORDS or plain in _CALENDAR or plain in _BEYOND or "'" in plain:
        return False
    return not first or plain not in _OPENERS


def _value(text: str) -> frozenset[str]:
    """Stems of the noun phrase that a text begins with."""
    words = text.split()
    start = 0
    while start < len(words) and words[start] in _ARTICLES:
        start += 1
    stop = start
    while (
        stop < min(len(words), start + 4) and words[stop] not in _BEYOND and words[stop] not in ",:"
    ):
        stop += 1
    return _stems(" ".join(words[start:stop]))


def _value_before(text: str) -> frozenset[str]:
    """Stems of the noun phrase that a text ends with."""
    words = text.split()
    start = len(words)
    while (
        start > max(0, len(words) - 3)
        and words[start - 1] not in _BEYOND
        and words[start - 1] != ","
    ):
        start -= 1
    return _stems(" ".join(words[start:]))


def _object(text: str) -> frozenset[str]:
    """Stems of what has ended, without verbs that say no more than that it was so."""
    words = re.split(r" (?:and|but|because) ", text, maxsplit=1)[0].split()
    return _stems(" ".join(word for word in words if word not in _OBJECTLESS)) - _listed(_VERBS)


def _stems(text: str) -> frozenset[str]:
    return frozenset(terms(text))


@cache  # on first use: the stemmer is not loaded at import
def _listed(words: str) -> frozenset[str]:
    return frozenset(stem for word in words.split() for stem in terms(word))


_OBJECTLESS_WORDS = "anymore any more good days now at for as job head place"
_OBJECTLESS = frozenset(_OBJECTLESS_WORDS.split())
_SCHEDULING = (
    "meets takes place held starts happens moved rescheduled postponed shifted changed brought "
    "forward new from time week every there now runs"
)
_LEADING = "new now head manager captain chair from"
_NEWER = "new current now use need called again today currently"
_SAID = (
    "longer stop quit give gave given sold sell left leave anymore new cost price charge rose "
    "fell went"
)
_OPENERS_WORDS = """
anyway everybody everyone good great hello hey hi just last maybe news nobody nowadays oh
recently since so sorry still thanks there today use wow yes yesterday
"""
_OPENERS = frozenset(_OPENERS_WORDS.split())
