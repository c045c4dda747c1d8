"""Which version may tell what: one function decides, for every place and every exposure."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models_db.values.canonical_json import encode_canonical
from tasks.release.sections import FieldList, Table, Warnings
from tasks.reporting.html_report import page, report_html
from tasks.reporting.report_parts import (
    LISTED,
    ONCE,
    AudienceFact,
    Decision,
    Lengths,
    Measured,
    Sample,
    TextOnPage,
    TextPage,
    contents,
    visible_to,
)
from tests.unit.tasks.reporting.a_report import INTERNAL, the_facts

VERSIONS = ("public", "steward", "internal")
TOLD = {
    ("public", "public"), ("public", "charged"),
    ("steward", "public"), ("steward", "charged"), ("steward", "ledger"),
    ("internal", "public"), ("internal", "charged"), ("internal", "ledger"), ("internal", "internal"),
}  # fmt: skip
"""Written out once more: what PRIVACY §7 lets each version tell."""
EXPOSURES = ("public", "charged", "ledger", "internal")
SECRET = "1357924680"

exposures = st.sampled_from(EXPOSURES)
versions = st.sampled_from(VERSIONS)


def a_part(place: str, mark: str):
    """A part whose every text holds `mark`, for a place with a list."""
    return {
        "warnings": lambda: Warnings(mark, (mark,)),
        "samples": lambda: Sample(1, mark, mark, 0),
        "text_pages": lambda: TextPage((TextOnPage(1, mark, mark, (mark,)),), 1),
        "table": lambda: Table(mark, (mark,), ((mark,),), mark),
        "fields": lambda: FieldList(mark, ((mark, mark),)),
        "decisions": lambda: Decision("publish", mark, "approve", mark, True, mark),
        "metrics": lambda: Measured(mark, "public", mark, (), mark, mark),
    }[place]()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("exposure", EXPOSURES)
def test_a_version_tells_what_it_may(version, exposure):
    fact = AudienceFact(exposure, Warnings("told", ("told",)))
    assert visible_to(version, [fact]) == ((fact,) if (version, exposure) in TOLD else ())


def test_an_exposure_that_nobody_knows_is_no_fact():
    with pytest.raises(ValueError, match="no exposure 'secret'"):
        AudienceFact("secret", Warnings("told", ("told",)))


@settings(max_examples=40)
@given(
    version=versions,
    drawn=st.lists(
        st.tuples(
            st.sampled_from(["warnings", "samples", "text_pages", "table", "fields", "decisions", "metrics"]), exposures
        )
    ),
)
def test_neither_page_nor_json_holds_more_than_is_admitted(version, drawn):
    """Whatever the place: a fact is on the page and in the JSON if and only if its version may tell it."""
    marks = {f"mark{number}x": fact for number, fact in enumerate(drawn)}
    facts = [*the_facts(), *(AudienceFact(exposure, a_part(place, mark)) for mark, (place, exposure) in marks.items())]
    said = contents(version, facts)
    for text in (page(said), json.dumps(said)):
        for mark, (_, exposure) in marks.items():
            assert (mark in text) == ((version, exposure) in TOLD)


@settings(max_examples=40)
@given(version=versions, exposure=exposures)
def test_a_figure_shows_in_the_versions_of_its_metrics_exposure_alone(version, exposure):
    """Also on plots and among bounds: every place that repeats a metric's figure keeps its exposure."""
    facts = [fact for fact in the_facts() if fact.exposure != "internal"]
    figure = replace(INTERNAL, exposure=exposure, values={"max_words": SECRET}, line=f"line {SECRET}")
    told = AudienceFact(exposure, Measured(figure.name, exposure, figure.line, (), SECRET, figure.method))
    html = report_html([*facts, told], version)
    assert (SECRET in html) == ((version, exposure) in TOLD)


@pytest.mark.parametrize("version", ["public", "steward"])
def test_the_internal_figures_of_a_full_report_are_told_to_nobody_before_the_decision(version):
    said = contents(version, the_facts())
    for text in (page(said), encode_canonical(said).decode()):
        for figure in ("31337", "271.82", "314.15", "0.5772", "verbatim_overlap"):
            assert figure not in text
    inside = report_html(the_facts(), "internal")
    for figure in ("31337", "271.82", "314.15"):
        assert figure in inside


def test_every_place_is_there_and_every_report_has_all_of_them():
    said = contents("internal", the_facts())
    assert [place for place in (*ONCE, *LISTED) if not said[place]] == ["no_claim"]
    nothing = contents("public", ())
    assert list(nothing) == ["format", "version", *ONCE, *LISTED]
    assert not any(nothing[place] for place in (*ONCE, *LISTED))


def test_a_place_for_one_has_one():
    lengths = Lengths(1, 0, "3", 3, (0, 5), (1,))
    with pytest.raises(ValueError, match="'lengths' once"):
        contents("public", [AudienceFact("public", lengths), AudienceFact("public", lengths)])
    assert (
        contents("public", [AudienceFact("public", lengths), AudienceFact("internal", lengths)])["lengths"] is not None
    )
