"""Signs that the unit of a dataset is chosen wrongly, in sentences for the terminal of whoever may read the source.

A sign is no proof, so nothing is refused. It says something of private data: it belongs on no log, in no result, error
or ledger.
"""

import re
import sqlite3
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import permutations
from typing import Final, TypeAlias

from tasks.corpus.keys import mark_of
from tasks.corpus.partition import MARKS_AT_ONCE
from tasks.corpus.readers.documents import SourceDocument
from tasks.corpus.readers.sources import Shard

RECORDS_LOOKED_AT: Final = 1000
"""The first records of a source; of a version's new units as many, in the order of their marks."""
_UNITS_ASKED_FOR: Final = 4 * MARKS_AT_ONCE
_LONG_TEXT: Final = 40
_FEWEST: Final = 5
"""Records or units of which anything is said."""
_LONGEST_NUMBER: Final = 20
"""Digits up to which a number is tried with zeros in front."""
_ENCODINGS: Final = ("utf-8", "cp1252", "cp1250", "cp850", "mac-roman")
_NUMBERED: Final = re.compile(r"([^0-9]*)([0-9]{1,20})(?:\.0)?")
_SENTENCE_MARKS: Final = re.compile(r"\w{3}[.!?](?:\s|$)")

FindKnown: TypeAlias = Callable[[Sequence[bytes]], Collection[bytes]]
"""The marks among these that the ledger knows."""


@dataclass
class RepeatSurvey:
    """Looks whether the first records of a folder of tables come again in its other files, as in two snapshots."""

    _path: Mapping[str, str | None] | None = None
    _first: dict[int, int] = field(default_factory=dict, repr=False)
    _again: set[int] = field(default_factory=set, repr=False)

    def see(self, document: SourceDocument) -> None:
        """Look at a document; short texts, which people have in common, are no sign."""
        if not isinstance(document.source, Shard) or len(document.text) < _LONG_TEXT:
            return
        if self._path is None:
            self._path = document.source.constants
        record, file = hash((document.unit, document.text)), document.source.number
        if self._first.get(record, file) != file:
            self._again.add(record)
        elif len(self._first) < RECORDS_LOOKED_AT and document.source.constants == self._path:
            self._first[record] = file

    def notes(self) -> Iterator[str]:
        """Yield what is to be asked."""
        if 2 * len(self._again) > len(self._first) >= _FEWEST:
            yield (
                "Most of the first records come again in other files of the folder, as in two snapshots of one table."
                " Ingest one snapshot alone: without a unit field, each copy counts as another person, and the person"
                " is protected less."
            )


@dataclass
class UnitSurvey:
    """Looks at the first records of a source, as they pass."""

    unit_field: str
    _units: list[str] = field(default_factory=list, repr=False)
    _sentences: int = 0
    _ids_as_texts: int = 0

    def see(self, document: SourceDocument) -> None:
        """Look at a document."""
        unit = document.unit
        if unit is None or len(self._units) == RECORDS_LOOKED_AT:
            return
        self._units.append(unit)
        self._sentences += _is_sentence(unit)
        self._ids_as_texts += len(unit.split()) > 1 and len(document.text.split()) == 1 and len(document.text) <= 40

    def notes(self, *, others_repeat: bool = False) -> Iterator[str]:
        """Yield what is to be asked about the records so far.

        Args:
            others_repeat: whether units of the source are known to have several records.
        """
        count, different = len(self._units), len(set(self._units))
        if count < _FEWEST:
            return
        holds_sentences = 2 * self._sentences > count
        if 2 * self._ids_as_texts > count and (2 * different > count or holds_sentences):
            yield (
                f"Unit and text look swapped: {self.unit_field!r} holds several words, and the text is a single one."
                " `--unit` names the field of the person, `--text` that of the text."
            )
        elif holds_sentences:
            yield (
                f"The unit {self.unit_field!r} holds sentences. Is it the id of a person? Every wording would be"
                " somebody else."
            )
        if different == count and not others_repeat:
            yield (
                f"Each of the first {count:,} records has its own value in {self.unit_field!r}. Is it a person? If it"
                " numbers records, a person with several records counts as several, and is protected less."
            )

    def alike(self) -> bool:
        """Return whether two of the units are spellings of one id."""
        units = set(self._units)
        return any(not units.isdisjoint(other_spellings(unit)) for unit in units)


@dataclass
class UnitNotes:
    """Signs that the units of a version are not the people that they are called.

    Attributes:
        survey: None if no field names the unit.
        tell: prints a sentence on the terminal, and nowhere else.
        find_known: which marks the ledger knows.
        has_earlier: whether there is an earlier version.
    """

    survey: UnitSurvey | None
    tell: Callable[[str], None]
    find_known: FindKnown
    has_earlier: bool
    repeats: RepeatSurvey = field(default_factory=RepeatSurvey)

    def see(self, document: SourceDocument) -> None:
        """Look at a document."""
        self.repeats.see(document)
        if self.survey is not None:
            self.survey.see(document)

    def end(self, connection: sqlite3.Connection, overlap_key: bytes) -> None:
        """Tell the signs of a version whose store is complete."""
        for note in self.repeats.notes():
            self.tell(note)
        if self.survey is None:
            return
        repeat = connection.execute("SELECT (SELECT count(*) FROM documents) > (SELECT count(*) FROM units)").fetchone()
        for note in self.survey.notes(others_repeat=bool(repeat[0])):
            self.tell(note)
        asked = "SELECT unit, mark FROM units ORDER BY substr(mark, 1, 1) LIMIT ?"
        sample = connection.execute(asked, (_UNITS_ASKED_FOR,)).fetchall()
        known = self._known(mark for _, mark in sample)
        new = [unit for unit, mark in sample if mark not in known][:RECORDS_LOOKED_AT]
        spellings = set[str]().union(*map(other_spellings, new))
        if any(connection.execute("SELECT 1 FROM units WHERE unit = ?", (one,)).fetchone() for one in spellings):
            self.tell(ALIKE)
        if self._known(mark_of(overlap_key, spelling) for spelling in spellings):
            self.tell(_SPELT_OTHERWISE)
        elif self.has_earlier and not known and len(new) >= _FEWEST:
            self.tell(_NOBODY_KNOWN)

    def _known(self, marks: Iterable[bytes]) -> set[bytes]:
        asked = list(marks)
        parts = (asked[start : start + MARKS_AT_ONCE] for start in range(0, len(asked), MARKS_AT_ONCE))
        return {known for part in parts for known in self.find_known(part)}


ALIKE: Final = (
    "Some ids differ only in zeros in front, in `.0` behind, in capitals or in letters of another encoding, as 007 and"
    " 7 do: they are different units."
    " If they are one person, spell the id alike everywhere."
)
_SPELT_OTHERWISE: Final = (
    "Ids of this version were in an earlier one, or in another dataset, with other zeros in front, with or without"
    " `.0`, in other capitals or in letters of another encoding, as 007 and 7. If these are the same people, each has a"
    " second budget, and the promise to them does not hold: erase this version (`almoner dataset erase NAME --version"
    " N`) before a request reads it, and export the ids as they were."
)
_NOBODY_KNOWN: Final = (
    "No unit of this version was in an earlier one. If the same people come again under other ids, each has a second"
    " budget, and the promise to them does not hold: keep ids as they were (docs/growth.md)."
)


def other_spellings(unit: str) -> set[str]:
    """Return other spellings in which a program may write an id: zeros, a decimal point, capitals, width, encodings."""
    found = {*_read_otherwise(unit), unit.lower(), unit.upper(), unit.title(), unicodedata.normalize("NFKC", unit)}
    if numbered := _NUMBERED.fullmatch(unit):
        prefix, digits = numbered.groups()
        number = digits.lstrip("0") or "0"
        padded = [number.zfill(width) for width in range(len(number), _LONGEST_NUMBER + 1)]
        found.update(prefix + each + point for each in padded for point in ("", ".0"))
    return found - {unit}


def _read_otherwise(unit: str) -> Iterator[str]:
    """Yield an id as it is if it was written in one encoding and read in another."""
    for written, read in permutations(_ENCODINGS, 2) if not unit.isascii() else ():
        with suppress(UnicodeError):
            yield unit.encode(written).decode(read)


def _is_sentence(unit: str) -> bool:
    words = len(unit.split())
    return (
        words >= 8
        or (words >= 5 and _SENTENCE_MARKS.search(unit) is not None)
        or (len(unit) > 60 and words > 1)
        or (len(unit) > 12 and any(mark in unit for mark in "。！？"))
    )
