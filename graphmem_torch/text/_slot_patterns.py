"""How English says that somebody lives somewhere, works for somebody, or no longer does.

Words and patterns that `slots` reads statements by: of lowered text, its words, commas and colons
with one space between them. In patterns `v` is a value, which begins there, `b` one that ends
there, `o` one that has ended, `of` and `key` what it is of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from graphmem_torch.text.times import MONTHS


class GuardedPattern:
    """A pattern that begins with any words, looked for where what follows these is found.

    By itself it would begin at each word of a sentence and go on to its end.
    """

    def __init__(self, pattern: str, rest: str | None = None) -> None:
        """Compiles both.

        Args:
            pattern: The whole.
            rest: A part that every match has; by default what stands behind the first group.
        """
        self._whole = re.compile(pattern)
        self._rest = re.compile(_FIRST_GROUP.sub("", pattern) if rest is None else rest)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """All matches."""
        return self._whole.finditer(text) if self._rest.search(text) else iter(())

    def search(self, text: str) -> re.Match[str] | None:
        """The first match."""
        return self._whole.search(text) if self._rest.search(text) else None


_FIRST_GROUP = re.compile(r"^\(\?P<\w+>[^()]*\)")

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
CALENDAR = frozenset([*WEEKDAYS, *MONTHS, *(day + "s" for day in WEEKDAYS)])

KIN_WORDS = """
aunt boss boyfriend brother child children coach colleague cousin coworker dad daughter father
friend girlfriend grandfather grandma grandmother grandpa grandparents husband kid kids mom
mother mum neighbor neighbour nephew niece parent parents partner roommate sister son uncle
wife
"""
KIN = frozenset(KIN_WORDS.split())
"""Whose home, job or car it is when they are named beside somebody: not that somebody's."""

# Where a value ends: what goes on behind it is about something else.
BEYOND_WORDS = """
a again after already although am an and any anymore are as at back be because before behind
best but by can currently during ever every everything for forever from good had has have he her
his how i if in instead is it last lately like likes loves more most my next nowadays now of off
on once or our over right she since so soon still than that the their these they this though to
today together tomorrow too two until was way we were what when where which while who will with
yesterday you your
"""
BEYOND = frozenset(BEYOND_WORDS.split())
ARTICLES_WORDS = "a an the my his her their our your its some this that"
ARTICLES = frozenset(ARTICLES_WORDS.split())
VERBS = """
attend be being do doing drink drive driving eat enjoy enjoying go going have having is lead
leading like liking live living love loving own owning play playing practise practising prefer
run running see seeing smoke stand take taking use using want work working
"""
FIRST = re.compile(r"\b(?:i|i'm|i've|i'd|i'll|my|mine|me|we|we're|we've|our)\b")
SPEAKER = re.compile(r"([^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*){0,2}): ")
UNREAL = re.compile(
    r"\b(?:used to|once|may|might|could|would|should|wants? (?:to|an?)|wanted|wish(?:es|ed)?|"
    r"hop(?:es?|ing)|plan(?:s|ned|ning)? (?:to|on|an?)|dream(?:s|ed|ing)?|"
    r"think(?:s|ing)? (?:about|of)|consider(?:s|ed|ing)?|"
    r"if|some day|someday|one day|almost|nearly|also|as well|too|another|second|"
    r"appl(?:y|ies|ied)|interview|never|years ago|interned|going to|will|won't)\b"
)
DENIED = re.compile(r"\b(?:not|no longer|never|cannot|\w+n't)\b")
CHANGED = re.compile(
    r"\b(?:now|no longer|any ?more|these days|nowadays|from now on|as of|moved|relocated|switched|"
    r"changed|swapped|replaced|new|became|become|stopped|quit|resigned|gave up|given up|left|sold|"
    r"rescheduled|reset|since)\b"
)

HOME = r"(?:home|house|apartment|flat|condo|place)"
_GONE = "(?:lost|quit|left)"
_KEPT = rf"(?<!{_GONE} my )(?<!{_GONE} h(?:is|er) )(?<!{_GONE} their )"
AFTER: tuple[tuple[str, str], ...] = (  # slot, what stands before its value
    ("home", r"(?:lives?|living|resid(?:es?|ing)|based|settled|settling)(?: \w+)? (?:in|at)"),
    ("home", r"(?:have|has|'ve) lived (?:in|at)"),
    ("moved", r"(?:moved|moving|moves|relocated|relocating)(?: (?:back|over|out))? (?:in)?to"),
    ("moved", r"(?:moved|relocated) from (?:[\w'-]+ ){1,3}?to"),
    ("home", rf"{HOME}(?: \w+)? in"),
    ("home", rf"{HOME} is (?:now )?in"),
    ("home", r"resident of"),
    ("employer", r"(?:works|(?:i|we|to) work|working) (?:at|for)"),
    ("employer", r"employed (?:by|at)"),
    ("employer", r"hired by"),
    ("joined", r"joined"),
    ("employer", rf"{_KEPT}(?:job|position|offer|started|living) (?:at|with|from)"),
    ("employer", r"payroll of"),
    ("employer", r"employer is"),
    ("role", r"(?:works?|working|retrained|money|living) as"),
    ("role", r"promoted to"),
    ("role", r"job is (?:being|that of)"),
    ("called", r"(?:became|become|becoming|is|am|i'm|now) (?:now |currently )?(?=an? )"),
    ("car", r"(?:drives|drive|driving) (?=an? |the )"),
    ("car", r"car is"),
    ("car", r"gets? around in"),
    ("preferred", r"(?:prefers?|picks?|goes for|go for)"),
    ("favourite", r"switched to"),
    ("favourite", r"(?:likes?|loves?|enjoys?) (?=[\w' -]*? (?:best|most|more than any))"),
    ("favourite", r"(?:likes?|loves?|enjoys?) (?:best|most) is"),
)  # fmt: skip
# Slots whose value must be a name, lest anything is one.
NAMED = {"joined": "employer", "moved": "home", "home": "home"}
# What is said of somebody by an article is an occupation if its noun looks like one.
OCCUPATION = re.compile(
    r"an? (?:[\w'-]+ )??(?!(?:mother|father|sister|brother|daughter|member|lover|believer|beginner|"
    r"winner|owner|newcomer|partner|neighbou?r|supporter|fighter|number|matter|reminder|visitor)\b)"
    r"(?:\w+(?:er|or|ist|ian|ant|eur)|\w*(?:man|woman)|chef|cook|judge|nurse|pilot|guide|clerk|monk|"
    r"smith|secretary|student|apprentice|florist|actress|waitress|president|agent)\b"
    r"(?! (?:of|at|than)\b)"
)
STATES = [(slot, re.compile(rf"\b(?:{pattern})(?:\s|(?<=\s))")) for slot, pattern in AFTER]
DAY = rf"(?:{'|'.join([*WEEKDAYS, *MONTHS])})s?"
SCHEDULED = re.compile(
    r"\b(?:(?:meets?|is|takes? place|held|starts?|happens?|runs?) (?:every |on |in )+|"
    r"(?:moved|rescheduled|postponed|shifted|changed|brought forward) (?:to|until) (?:every )?|"
    rf"^every )(?P<v>{DAY})\b"
)
COUNTING = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBERS = {word: str(i) for i, word in enumerate(COUNTING.split())}
COUNTED = re.compile(  # so many of somebody or something
    r"\b(?:have|has|got|reached|hit|at|up to|down to|counts?|leads?|team of|owns?|weighs?|is|now|"
    r"costs?|(?:sells?|tried|sold) (?:[\w' ]+ )?for|charges?|rose to|fell to|dropped to) "
    r"(?:now |already |about |only )?(?P<v>\d[\d.,]*) (?P<key>[^\W\d_]\w*)"
)
LED = r"(?:leads|heads|runs|manages|is (?:now )?(?:in charge|head|manager|captain|chair|ceo) of)"
LEADS = GuardedPattern(rf"(?P<v>[\w'-]+)(?: now)? {LED} (?P<of>[\w' -]+)")
TAKES = GuardedPattern(
    r"(?P<v>[\w'-]+) (?:took over (?P<of>[\w' -]+?) from (?P<o>[\w'-]+)|"
    r"replaced (?P<o2>[\w'-]+) as (?:head|manager|captain|chair|ceo) of (?P<of2>[\w' -]+))"
)
LED_BY = GuardedPattern(
    r"(?:(?:head|manager|captain|chair|ceo) of (?P<of>[\w' -]+?) is (?:now )?|"
    r"(?P<of2>[\w' -]+?) is (?:now )?(?:led|run|headed|managed) by )(?P<v>[\w'-]+)",
    r"(?:head|manager|captain|chair|ceo) of | is (?:now )?(?:led|run|headed|managed) by ",
)
STEPS = GuardedPattern(
    r"(?P<o>[\w'-]+) (?:stepped down|resigned) as (?:head|manager|captain|chair|ceo)"
    r" of (?P<of>[\w' -]+)"
)

# One out, one in: (what ends, what holds).
EXCHANGED = re.compile(
    r"\b(?:switched|changed|moved|went|relocated) from (?P<a>[\w' -]+?) to (?P<b>[\w' -]+)|"
    r"\b(?:swapped|traded|exchanged|trading) (?P<c>[\w' -]+?)(?: in)? for (?P<d>[\w' -]+)|"
    r"\breplaced (?P<e>[\w' -]+?) (?:with|by) (?P<f>[\w' -]+)"
)
# What is no more; what follows it has ended.
ENDED = re.compile(
    r"(?<!n't )(?<!not )(?<!never )(?<!to )"
    r"\b(?:no longer|(?:have |has |'ve )?(?:stopped|quit|quitted|gave up|given up)|"
    r"lost (?:my|his|her|their) job (?:at|with)|"
    r"left(?! (?:for|to|the house|home|early|late))|moved (?:away|out) (?:from|of)|"
    r"resigned from|let go by|fired by|laid off by|notice at|"
    r"(?:gone|went) off|got rid of|sold|cancell?ed|former(?:ly)?|"
    r"(?:\w+n't|not|cannot|can't)(?= .*\bany ?(?:more|longer)\b))\s(?P<v>[^,.;!?]+)"
)
WHERE = re.compile(r" (?:in|near|around|at|with) ")
# What stands before a denial has ended with it: "osprey doesn't work as the gate code anymore".
ENDED_BEFORE = re.compile(
    r"^(?P<v>[\w' -]+?) (?:(?:does|do)n't work|isn't used) (?:as|for) .*\bany ?more\b"
)

# Nouns of which there is one: whatever it is, there is no second.
SINGLE_WORDS = """
address age birthday budget capital captain ceo chair code colour color combination date deadline
director email favorite favourite height login manager name nickname password pin price rent salary
speed status temperature username version wage weight
"""
SINGLE = frozenset(SINGLE_WORDS.split())
_IS = (
    r"(?:is|was changed to|was set to|has been reset to|was reset to|"
    r"has been changed to|changed to|was updated to|is called|:)(?: now| no longer)? "
    r"(?P<v>[\w' -]+)"
)
COPULA = GuardedPattern(r"(?P<key>(?:[\w'-]+ ){1,6}?)" + _IS, _IS)
USED_AS = re.compile(r"(?:use )(?P<v>[\w' -]+?) as (?P<key>[\w' -]+)")
NEED = re.compile(r"(?:need|use) (?P<v>[\w'-]+) , that's (?P<key>[\w' -]+)")
BY_MOST = GuardedPattern(
    r"(?P<v>[\w' -]+?) is the (?P<key>\w+) (?:\w+ )?(?:likes?|loves?|enjoys?) (?:most|best)"
)
MOST_IS = re.compile(
    r"the (?P<key>\w+) (?:\w+ )?(?:likes?|loves?|enjoys?) (?:most|best) is (?P<v>[\w' -]+)"
)
BEST_OF = re.compile(
    r"(?:likes?|loves?|enjoys?|prefers?) (?P<v>[\w' -]+?) (?:best of all|more than any other|"
    r"most of all|over any other|to any other) (?P<key>\w+)"
)
# A slot with its value behind (v) or before (b) what names it, and a value that has ended (o).
CLAUSES: list[tuple[str, re.Pattern[str] | GuardedPattern]] = [
    (slot, (GuardedPattern if _FIRST_GROUP.match(pattern) else re.compile)(pattern))
    for slot, pattern in (
        ("home", r"\b(?:home|hometown) is (?:now )?(?P<v>.+)"),
        ("home", r"\bfind (?:me|us|him|her|them) in (?P<v>.+)"),
        ("home", r"(?P<b>[\w' -]+?) is where (?:[\w']+ ){1,3}lives?\b"),
        ("home", r"(?P<b>[\w' -]+?) is (?:my|our|his|her|their) home\b"),
        ("home", r"\bcalls? (?P<v>[\w' -]+?) home\b"),
        ("employer", r"(?P<b>[\w' -]+?) (?:has |have |'ve |just )?hired (?!by\b)"),
        ("employer", r"\b(?:signed|contract) with (?P<v>.+)"),
        ("employer", r"\bchanged (?:jobs|employers)\b.*?\b(?:at|to|with|for) (?P<v>.+)"),
        ("employer", r"(?P<b>[\w' -]+?) is where (?:[\w']+ ){1,3}works?\b"),
        ("manager", r"\breports? to (?P<v>.+)"),
        ("manager", r"\b(?:manager|boss|supervisor)(?: is| ,|'s) (?:now )?(?P<v>.+)"),
        (
            "manager",
            r"(?P<b>[\w' -]+?) took over from (?P<o>[\w' -]+?) as .*?"
            r"\b(?:manager|boss|supervisor)\b",
        ),
        ("room", r"\b(?:sits?|desk|office|moved|put)\b.*(?<!from )\broom (?P<v>[\w-]*\d[\w-]*)"),
        ("room", r"\bfrom room (?P<o>[\w-]*\d[\w-]*)"),
        ("car", r"\bbought (?P<v>an? [\w' -]+?) and drives? it\b"),
        ("car", r"\bpicked up (?P<v>[\w' -]+?) (?:from|at) the (?:dealer|garage)"),
        (
            "car",
            r"(?:here|there) is (?P<v>an? [\w' -]+?)(?: in| at| outside| ,).*\b(?:'s|my) .*car\b",
        ),
        ("car", r"\bsold (?P<o>[\w' -]+?) and (?:got|bought) (?P<v>[\w' -]+)"),
        ("favourite", r"\bswears? by (?P<v>.+)"),
        ("favourite", r"\bonly (?:want|wants|drink|drinks) (?P<v>[\w' -]+)"),
        ("favourite", r"\bgive me (?P<v>[\w' -]+?) (?:any time|any day|instead)\b"),
        ("hobby", r"\bhobby is (?:now )?(?P<v>.+)"),
        ("hobby", r"\bevery free (?:hour|minute|evening) (?:on|with|at) (?P<v>.+)"),
        ("hobby", r"\b(?:free time i do) (?P<v>.+)"),
        (
            "marital",
            r"\b(?:is|am|i'm|are|was|got|getting) (?:now |finally |happily )?"
            r"(?P<v>single|married|divorced|engaged|separated|widowed|in a relationship)\b",
        ),
        (
            "progress",
            r"(?:\b(?:is|are|stands|it|now)(?: now| :)? )"
            r"(?P<v>(?:in (?:planning|progress|review|production|testing)|"
            r"on (?:hold|track|schedule)|behind schedule|waiting for [\w-]+|blocked|cancell?ed|"
            r"finished|done|completed?|delayed|postponed|approved|rejected|paused|active|"
            r"inactive))\b",
        ),
        (
            "price",
            r"\bfrom (?P<o>\d[\d.,]*) (?:euros?|dollars?|pounds?|francs?) to (?P<v>\d[\d.,]*)\b",
        ),
        ("price", r"(?<!from )\b(?P<v>\d[\d.,]*) (?:euros?|dollars?|pounds?|francs?)\b"),
        ("phone", r"\b(?:from|dial|not on) (?P<o>\+?\d[\d -]{4,}\d)\b"),
        (
            "phone",
            r"(?<!from )(?<!not on )(?<!\d )(?<![\d-])(?P<v>\+?\d[\d -]{4,}\d)\b"
            r"(?! is (?:dead|gone|history))",
        ),
        ("", r"(?P<o>[\w' -]+?) is (?:dead|gone|history)\b"),
        ("", r"\b(?:am|i'm|is) over (?P<o>[\w'-]+(?: [\w'-]+){0,2})$"),
    )
]
FAVOURITES: tuple[re.Pattern[str] | GuardedPattern, ...] = (BY_MOST, MOST_IS, BEST_OF)
ATTRIBUTES: tuple[re.Pattern[str] | GuardedPattern, ...] = (COPULA, USED_AS, NEED)
PRICE = re.compile(r"\b(?P<v>\d[\d.,]*) (?:euros?|dollars?|pounds?|francs?)\b")
# What has been paid or got for something is no price that it has.
DEALT = re.compile(
    r"\b(?:sold|bought|paid|spent|saved|won|lost|earned|donated|raised|lent|borrowed|tipped|owes?)\b"
)
OF_THINGS = frozenset({"price"})  # whose subject is more than a name: the Sierra rug
OWN_KEY = frozenset({"attribute", "schedule", "lead"})  # whose key is the subject
# Those of somebody or something; all others are of somebody, a name or the speaker.
OF_ANY = frozenset({"", "count", "phone", "progress"})
LITERAL = frozenset({"marital", "progress", "price", "phone", "room"})  # the match is the value
DISTINCT = frozenset({"favourite", "manager", "car"})  # mint tea and green tea are two
LEAVING = re.compile(r"\b(?:resigned|let go|fired|laid off|notice|job)\b")
TITLES = frozenset({"mr", "mrs", "ms", "dr", "prof"})
PHONE = re.compile(r"\b(?:phone|number|mobile|cell|call|reach|ring|text|dial)\b")
SO = re.compile(
    r"^(?:it|that|this) is (?:now )?(?P<v>.+)|^(?:now )?(?:at|in|on|for|to|by)? ?(?P<w>.+)"
)
# What is said in place of what is denied.
INSTEAD = re.compile(r" (?:,(?: but)?|but|and(?= not\b)) ")


OBJECTLESS_WORDS = "anymore any more good days now at for as job head place"
OBJECTLESS = frozenset(OBJECTLESS_WORDS.split())
SCHEDULING = (
    "meets takes place held starts happens moved rescheduled postponed shifted changed brought "
    "forward new from time week every there now runs"
)
MEASURES = (
    "mile kilometre kilometer km metre meter hour day week minute second month year page time "
    "percent step calorie degree inch foot feet pound lb lbs oz kilo kg gram cm mm ml mb gb tb mah "
    "mph euro dollar franc"
)
LEADING = "new now head manager captain chair from"
NEWER = "new current now use need called again today currently"
SAID = (
    "longer stop quit give gave given sold sell left leave anymore new cost price charge rose "
    "fell went status update sell charge pay euro dollar pound franc"
)
OPENERS_WORDS = """
add additionally always anyway avoid bring call check choose congratulations consider create ensure
everybody everyone finally fortunately get good great guess hello hey hi home however include just
keep last learn look luckily make maybe news nobody note nowadays oh overall please project read
recently remember reminder sadly save see set since so sorry start status still take thanks there
today try unfortunately update use visit word wow yes yesterday
"""
OPENERS = frozenset(OPENERS_WORDS.split())
