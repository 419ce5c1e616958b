"""Word lists: English words that carry no topic."""

from __future__ import annotations

__all__ = ["FRAGMENTS", "GENERIC", "STOP_WORDS"]

_STOP = """
a about above after again against ah all also am an and any are aren't as at be because been
before being below between both but by can can't cannot could couldn't did didn't do does
doesn't doing don't down during each etc few for from further had hadn't has hasn't have haven't
having he he'd he'll he's her here here's hers herself hey him himself his how how's i i'd i'll
i'm i've if in into is isn't it it'd it'll it's its itself just let let's me more most mustn't
my myself no nor not now of off oh ok okay on once only or other ought our ours ourselves out
over own same shan't she she'd she'll she's should shouldn't so some such than that that'd
that'll that's the their theirs them themselves then there there's these they they'd they'll
they're they've this those through to too under until up upon us very was wasn't we we'd we'll
we're we've were weren't what what's when when's where where's which while who who's whom whose
why why's will with won't would wouldn't yeah yes you you'd you'll you're you've your yours
yourself yourselves
"""
STOP_WORDS = frozenset(_STOP.split())
"""Words that no index of topics needs."""

_FRAGMENTS = """
ain aren couldn d didn doesn don hadn hasn haven isn ll m mustn needn re s shan shouldn t ve
wasn weren won wouldn
"""
FRAGMENTS = frozenset(_FRAGMENTS.split())
"""What is left of contractions where a tokenizer splits at the apostrophe."""

_VAGUE = """
absolutely always amazing anybody anyone anything awesome bit blast bunch bye case chance
congrats cool couple day difference even everybody everyone everything example fact far feel
folk fun glad good got great guy haha hello hi idea image job kind life like little look lot
luck make man matter minute moment month much never nice nobody nothing number one pair part
people person photo photograph photography pic picture place plenty point pretty problem
question really reason rest side somebody someone something sort sound sounds still stuff super
sure take thank thanks thing time today tomorrow tonight two type way week woman wonderful word
world worry wow yeah year yep yesterday yup
"""
GENERIC = STOP_WORDS | FRAGMENTS | frozenset(_VAGUE.split())
"""Words too general to be a concept by themselves."""
