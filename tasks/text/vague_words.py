"""Vague English words: no stop words, but they name no topic and are never keywords by themselves.

The list is public, so nothing is charged for it. A set may use one of these words inside a longer keyword.
"""

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
