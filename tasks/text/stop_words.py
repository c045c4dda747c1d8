"""English stop words: the closed classes, and the remains of contractions."""

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
