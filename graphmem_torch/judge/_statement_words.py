"""Closed classes of English words for reading statements."""

from __future__ import annotations


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


TIMES = _set(
    """
    morning afternoon evening night weekend summer winter spring autumn season yesterday today
    tonight tomorrow ago last next before after until till since during while when whenever always
    sometimes usually often then previously formerly originally initially first second third once
    twice daily weekly monthly nightly early late weekday christmas easter holiday childhood
    century decade every each
    """
)
SPEAKING = _set("i me my mine myself we us our ours ourselves")
ADDRESSED = _set("you your yours yourself")
UNRESOLVED = _set(
    """
    he she it they him her them his hers its their theirs this that these those there here one
    ones someone somebody something anyone anybody anything everyone everybody everything nobody
    nothing none who which what whoever whatever both either neither another other such all many
    much most some few several thing
    """
)
# Possessives of unknown persons: "her brother" of two texts may be two persons.
OTHERS = _set("his her their its")
VAGUE = _set("a an this that these those some any another each every either")
NEUTRAL = _set(
    """
    now currently still just really actually finally recently nowadays already so far by again
    honestly basically simply though however anyway well oh yes no hi hey hello also too indeed
    obviously luckily unfortunately presently definitely certainly
    """
)
NEW = _set("now currently nowadays new current latest finally recently")
ADDED = _set("also too another second additional extra besides")
HEDGES = _set(
    """
    maybe perhaps probably possibly apparently supposedly allegedly reportedly hopefully accord
    ideally theoretically hypothetically
    """
)
# Before a number.
ROUGHLY = _set("about around roughly almost nearly approximately over under least most up ~")
MODALS = _set("would could might may should ought")
CONDITIONS = _set("if unless whether lest provided supposing once")
DENIALS = _set("not never neither nor hardly barely scarcely")
STOPS = _set("stop quit cease")
SAYING = _set(
    """
    say think believe guess hope know wonder joke claim swear write tell ask suppose assume
    imagine dream doubt feel hear read suspect pretend insist argue mean bet reckon
    """
)
# Labels before a colon: the text after it is reported, or not asserted.
REPORTS = _set(
    """
    if when said thought wrote told asked claimed answered replied according dream story fiction
    example quote joke scenario plan goal wish idea option question suggestion rumour rumor line
    lyrics ad sketch film movie book game
    """
)
NOMINAL = _set("NOUN PROPN")
# Tags of words that may follow a verb, or a noun that is one.
FOLLOWING = _set("DT IN TO CD PRP$ NNP JJ NN")
ASKING = _set("what who whose which how where why")
SYNONYMS = {
    "kid": "child",
    "mom": "mother",
    "mum": "mother",
    "dad": "father",
    "bike": "bicycle",
    "apartment": "flat",
}
# Things that somebody has, with an optional noun: "my Netflix subscription"
HOLDINGS = _set("subscription membership contract account role position post job lease")
# Nouns followed by the name of their one value: "my employer Bosch"
FUNCTIONAL = _set("employer boss manager supervisor husband wife spouse hometown")
SEATED = _set("be sit live stand work stay")
FINE = _set("fine well perfectly smoothly ok okay again properly")
LEADERS = _set("head leader lead captain chief chair chairman director")
# Likings: a statement of one ends none, because many are possible at a time.
LIKINGS = _set("like love enjoy prefer adore")
CLAUSES = _set("ccomp advcl acl relcl csubj xcomp pcomp")
SUBJECTS = _set("nsubj nsubjpass csubj")
ARTICLES = _set("a an the")
# Words whose meaning depends on time and place of the statement.
DEICTIC = _set("today tonight tomorrow yesterday last next this ago here there")
CHANGES = _set(
    """
    change switch move reschedule shift reset update set postpone go raise lower increase reduce
    convert upgrade downgrade extend cut rise fall drop grow
    """
)
GONE = _set(
    """
    quit leave resign retire step cancel sell give drop lose scrap remove replace abandon delete
    dismiss dissolve terminate uninstall discontinue sack fire
    """
)
SWAPS = _set("trade swap exchange")
# Verbs with "from" the old value "to" the new one.
TURNS = CHANGES | _set(
    """
    rename migrate transfer relocate promote demote transition rebrand port reassign relicense
    rewrite repaint replace swap turn
    """
)
# Verbs whose subject no longer exists.
CEASED = _set(
    """
    cancel scrap remove abandon delete dissolve terminate uninstall discontinue decommission disband
    demolish abolish axe drop
    """
)
CEASING = _set("shut close phase call write tear rip break do")
FORMER = _set("old former previous late first last next future ex dead own")
TAKING = _set("have own keep eat drink touch get use drive ride wear rent play lease take")
OTHER_SORT = _set("vegan veggie vegetarian toy hot free rental plant")
DAYTIMES = _set("morning afternoon evening night noon midnight")
# Said of a contract or an account.
ENDING = _set("close end expire lapse run")
INTENDING = _set("plan want consider think hope intend wish decide aim wonder look try")
STAGES = _set("child kid teenager teen student boy girl baby youth toddler")
OVER = _set("gone out over history obsolete")
# Further words of loss; looser, for suspicions only.
LEFT = (
    (GONE - {"lose"})
    | SWAPS
    | _set("ditch decommission unsubscribe disband demolish abolish axe dump")
)

ROLES = _set("step resign retire quit leave replace")
# Verbs with a particle and the same meaning.
GONE_WITH = _set(
    """
    give-up give-away give-back hand-over hand-in hand-back step-down step-back break-up break-off
    split-up throw-out throw-away shut-down close-down phase-out call-off write-off take-off
    take-out move-out drop-out pull-out opt-out part-with do-away cut-out trade-in swap-out
    turn-in take-over sign-off rip-out tear-down tear-out pack-in finish-with
    """
)
# they need both ends
MOVES = _set("go set rise fall drop grow cut")
PRESENT = _set("has have 've will wo can ca does do must 'll")
# an event stays true
ONCE = _set("born founded built established")
MOODS = _set(
    """
    sure certain ready ok okay fine right wrong glad happy sad sorry tired busy hungry thirsty
    good bad better worse great well ill sick excited nervous worried late early back gone done
    alone able free lucky proud afraid scared bored upset angry calm very so too not
    """
)
PREPOSITIONS = _set("in at on to for with by of from as under near inside behind over into than")
# nouns with one value at a time
SINGLE = _set(
    """
    address age bedtime birthday birthplace boss budget capacity capital captain ceo chair
    chairman code colour color combination cost date deadline director editor email employer
    extension favorite favourite fee headquarters height hometown host husband landlord leader
    limit location login manager maximum mayor minimum name nickname nationality number passcode
    password pin plate port president price principal rate rent salary score size speed status
    surname temperature title total username version wage weight wife
    """
)
SCHEDULED = _set(
    """
    start begin end finish open close leave arrive depart meet happen run fall land expire
    """
)
NAMING = _set("be use run listen sit live need require weigh cost measure stay")
IN_USE = _set("be use drink eat drive work live run take play study attend")
# Adjectives with one value at a time.
STATES = _set("be face belong come consist start end hang stand lie")
ORDINALS = _set("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth")
# Before adjectives of degree: such words exclude no others.
DEGREES = _set("so very really quite pretty bit too rather totally extremely super sure lately all")
# Words before one of many.
OPEN_ENDED = _set("with about full like for interested responsible known")
PLACES = _set("in at on under near inside behind over")
PLACED = _set("live reside dwell")
KIN = _set(
    """
    aunt boyfriend brother cousin dad daughter father fiance friend girlfriend grandfather grandma
    grandmother grandpa husband mom mother mum neighbor neighbour nephew niece partner roommate
    sister son uncle wife
    """
)
HOUSES = _set("home house apartment flat condo")
SITTINGS = _set("meet happen take run")
WEEKDAYS = _set("monday tuesday wednesday thursday friday saturday sunday")
# Verbs of an outcome, which an event has once.
JOBS = _set("job position post work")
SAID = _set("up away off out of all his her their")
HELD = _set(
    """
    be have use drive ride keep work rent play practise practice learn run wear pay take hold
    lease
    """
)
OUTCOMES = _set("win lose pass fail accept reject approve deny")
LIGHT = _set(
    """
    be do have know think see get go come mean want like need understand care say tell guess
    remember agree believe hope feel hear look try wait help watch
    """
)
_COUNTED = "zero one two three four five six seven eight nine ten eleven twelve"
_TEENS = "thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
DIGITS = {word: str(i) for i, word in enumerate(f"{_COUNTED} {_TEENS}".split())}
DIGITS |= {word: str(10 * i) for i, word in enumerate(_TENS.split(), 2)}
DIGITS |= {
    f"{ten}-{one}": str(10 * i + j)
    for i, ten in enumerate(_TENS.split(), 2)
    for j, one in enumerate(_COUNTED.split()[1:10], 1)
}
SAME_VERBS = {
    "own": "have",
    "possess": "have",
    "get": "have",
    "manage": "lead",
    "head": "lead",
    "hat": "hate",
}
