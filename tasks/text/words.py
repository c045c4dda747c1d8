"""Words of texts: stop words, vague words, one spelling for one keyword, and RAKE's key phrases.

Vague English words: no stop words, but they name no topic and are never keywords by themselves. The list is public, so
nothing is charged for it. A set may use one of these words inside a longer keyword.

Normalisation of keywords: one spelling for one meaning, and no character that breaks a page or a prompt. Keywords come
out of people's texts and are published. Whether a string may be one is a public rule about that string alone, and it is
applied to each unit's own keywords before anything is counted.

Words of a name that supported keywords do not have: what a name says without support. A public rule about strings: a
run applies it to what a model wrote, and verification to the rows of a release.

RAKE key phrases of one text. Rose, Engel, Cramer, Cowley, "Automatic keyword extraction from individual documents", in
Text Mining: Applications and Theory, 2010, section 1.2: candidates are runs of words between stop words and
punctuation; a word is worth its degree (words in all candidates that it is in) by its frequency, a phrase the sum of
its words; the best third is taken.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

_WORD, _PLAIN = re.compile(r"\w+|[^\w\s]"), re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Runs of letters, digits and underscores, and single other signs; NFC, case folded."""
    return _WORD.findall(unicodedata.normalize("NFC", text).casefold())


def plain_words(text: str) -> list[str]:
    """Return the words of `words`, without the other signs."""
    return _PLAIN.findall(unicodedata.normalize("NFC", text).casefold())


_ARTICLES_AND_PRONOUNS = """
a an the this that these those some any each every either neither both all no none other another such same
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
it its itself they them their theirs themselves one ones someone somebody something anyone anybody anything everyone
everybody everything nobody nothing who whom whose which what whoever whatever whichever
"""
_PREPOSITIONS_AND_CONJUNCTIONS = """
about above across after against along among around as at before behind below beneath beside besides between beyond by
despite down during except for from in inside into like near of off on onto out outside over past per since through
throughout till to toward towards under until up upon via with within without and but or nor so yet if unless because
although though while whereas whether than when whenever where wherever why how
"""
_VERBS_OF_GRAMMAR = """
am is are was were be been being do does did doing done have has had having can could may might must shall should will
would ought get gets got getting let lets used
"""
_ADVERBS_AND_QUANTITIES = """
not only just even also too very quite rather more most much many less least few fewer little lot lots enough again
already always ever never often sometimes soon still then there here now once twice almost else however therefore thus
hence indeed maybe perhaps really well own
"""
_REMAINS = (
    "s t d m o y ll re ve don doesn didn isn aren wasn weren hasn haven hadn won wouldn couldn shouldn cannot ain"
)
_GIVEN = "given considered according including said says say"

STOP_WORDS = frozenset(
    " ".join(
        (
            _ARTICLES_AND_PRONOUNS,
            _PREPOSITIONS_AND_CONJUNCTIONS,
            _VERBS_OF_GRAMMAR,
            _ADVERBS_AND_QUANTITIES,
            _REMAINS,
            _GIVEN,
        )
    ).split()
)
"""Lower case."""


_ASKING = """
answer answers answering ask asked asking please help helped helping helpful tell telling told explain explained
explaining explanation describe describing description write writing written wrote rewrite give giving create creating
created generate generated generating make making made provide provided provides providing list listed listing lists
identify identifying classify extract extracted suggest suggested suggestion suggestions recommend show showing shown
find finding found want wants wanted wanting need needs needed needing know knowing known think thinking thought
understand understanding mean means meaning meant follow follows followed try tries trying tried use uses user users
question questions request response reply hello hi hey thanks thank sure okay ok yes let look looking looks see seen
come comes coming came go goes going gone went take takes taking taken took put keep keeps kept call called name named
names say talk become work works working happen happens happened start started starting begin end ended
"""
_ORDINARY = """
thing things stuff way ways kind kinds type types sort sorts part parts piece pieces case cases point points fact facts
example examples instance instances reason reasons result results number numbers amount size level levels form forms
information details detail item items set sets line lines word words sentence sentences paragraph paragraphs passage
text texts title topic topics content context reference people person man men woman women guy everyone day days time
times year years today hour hours week weeks month months place places side top bottom area areas world life
good better best great nice bad worse worst new old big bigger biggest small large larger largest long short high low
different difference differences similar important main major common certain specific general various several
possible available right left true false real simple easy hard full whole first second third last next previous early
late late two three four five six seven eight nine ten hundred thousand based including within around actually
currently usually likely following include includes learn learned consider considered key popular additionally
note remember mentioned useful current able using across able away back
"""

VAGUE_WORDS = frozenset((_ASKING + _ORDINARY).split())
"""Lower case."""


LONGEST: Final = 60
"""Characters of a keyword at most."""

_SILENT = STOP_WORDS | VAGUE_WORDS
_SIGNS = frozenset(" -'’+#&./_%")  # beside letters, their marks and digits: c++, q&a, tcp/ip, node.js
_EDGES = " -'’./_&,;:!?\"`*"


def normalise_keyword(raw: str) -> str | None:
    """Return the one spelling of a keyword; None for a string that cannot be one.

    NFC, lower case, single spaces, no punctuation around it. A keyword has at most LONGEST characters, at least two
    of them or one ideograph, a word with a letter that is neither a stop word nor vague, and no sign beside letters,
    digits and a few marks: no bracket, quotation mark, control or formatting character.
    """
    lowered = unicodedata.normalize("NFC", unicodedata.normalize("NFC", raw).lower())
    keyword = " ".join(lowered.split()).strip(_EDGES)
    if not keyword or len(keyword) > LONGEST or (len(keyword) == 1 and not _is_ideograph(keyword)):
        return None
    if not all(sign in _SIGNS or unicodedata.category(sign)[0] in "LM" or sign.isdecimal() for sign in keyword):
        return None
    return keyword if any(_says_something(word) for word in plain_words(keyword)) else None


def normalise_keywords(raw: tuple[str, ...], most: int) -> tuple[str, ...]:
    """Return the first `most` different keywords of these, in their order."""
    keywords = dict.fromkeys(keyword for candidate in raw if (keyword := normalise_keyword(candidate)) is not None)
    return tuple(keywords)[:most]


def tokens_of(text: str) -> Counter[str]:
    """Count in a text each single word that could be a keyword.

    A word is a run of letters, digits and underscores, so a language that writes no spaces has whole clauses for
    words, and those that are longer than a keyword are none.
    """
    counts = Counter[str]()
    for word, count in Counter(plain_words(text)).items():
        plain = word.isascii() and word.isalpha() and 1 < len(word) <= LONGEST  # most are, and no more is to be asked
        token = (word if word not in _SILENT else None) if plain else normalise_keyword(word)
        if token is not None:
            counts[token] += count
    return counts


def roots(text: str) -> frozenset[str]:
    """Return the words of a text without stop words and plural endings; `near` compares them."""
    return frozenset(singular(word) for word in set(plain_words(text)) - STOP_WORDS)


def near(keyword: str, public: Iterable[frozenset[str]]) -> bool:
    """Return whether a keyword says no more than one of these public ones, given by their roots, already does.

    It does if it has all their words: `python decorators` is near `python`, and `python` is not near `python courses`.
    """
    own = roots(keyword)
    return any(root_set <= own for root_set in public)


def _says_something(word: str) -> bool:
    return word not in _SILENT and any(sign.isalpha() for sign in word)


def singular(word: str) -> str:
    """Return a word without its plural ending.

    English endings alone: a word of another language loses an s or an es at most, and the same one everywhere.
    """
    if not word.endswith("s") or len(word) < 4 or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("ches", "shes", "sses", "xes")) else word[:-1]


def _is_ideograph(sign: str) -> bool:
    return unicodedata.name(sign, "").startswith("CJK UNIFIED IDEOGRAPH")


_STATEMENTS: Final = frozenset(("life", "man", "men", "people", "person", "woman", "women", "world"))
"""Vague as keywords, but a name that has them says something about its topic."""
_FREE: Final = frozenset(root for word in VAGUE_WORDS - _STATEMENTS for root in roots(word)) - _STATEMENTS


def unsupported_words(text: str, keywords: Iterable[str]) -> frozenset[str]:
    """Return the words of a text, without plural endings, that no keyword has.

    Stop words and words that name no topic need no support. A word of a script without spaces is a whole clause, and a
    keyword must be that clause.

    >>> sorted(unsupported_words("Questions about films and directors", ["film", "actor"]))
    ['director']
    """
    return roots(text) - frozenset[str]().union(*map(roots, keywords)) - _FREE


_PART = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]|\n\s*\n")

Phrase = tuple[str, ...]


def key_phrases(text: str) -> list[str]:
    """Return the best phrases, the best first: a third as many as the text has distinct content words."""
    scores = phrase_scores(text)
    best = sorted(scores, key=lambda phrase: (-scores[phrase], phrase))
    different = {word for phrase in scores for word in phrase}
    return [" ".join(phrase) for phrase in best[: len(different) // 3]]


def phrase_scores(text: str) -> dict[Phrase, float]:
    """Return the score of each different candidate."""
    candidates = list(_candidates(text))
    frequency, degree = Counter[str](), Counter[str]()
    for phrase in candidates:
        for word in phrase:
            frequency[word] += 1
            degree[word] += len(phrase)
    return {phrase: sum(degree[word] / frequency[word] for word in phrase) for phrase in candidates}


def _candidates(text: str) -> Iterator[Phrase]:
    """Runs of words that are neither stop words nor apart; NFC, case folded."""
    phrase: list[str] = []
    for part in (*_PART.findall(unicodedata.normalize("NFC", text).casefold()), "."):
        if part[0].isalnum() and re.split("['’]", part)[0] not in STOP_WORDS:
            phrase.append(part)
        elif phrase:
            yield tuple(phrase)
            phrase = []
