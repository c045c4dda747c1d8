"""What the files of a release tell."""

import pytest

from tasks.release import card_text
from tasks.release.record import Lifetime
from tasks.reporting.release_sections import (
    BINS,
    SAMPLE_WORDS,
    SAMPLES,
    Text,
    claim_part,
    figures,
    lengths,
    limits,
    protects,
    release_facts,
    samples,
    text_pages,
)
from tasks.reporting.report_parts import Claim, Figure, NoClaim, contents
from tasks.text.words import words
from tests.unit.tasks.publishing.builders import BASELINE, a_record, a_request
from tests.unit.tasks.reporting.a_report import CHARGED, PERPLEXITY, TEXTS, the_metrics, the_record


def texts_of(*said: str) -> list[Text]:
    return [Text(number, text) for number, text in enumerate(said, 1)]


def test_figures_carry_the_ends_of_their_intervals():
    assert list(figures("coverage", CHARGED.values)) == [
        Figure("centres", 50),
        Figure("coverage", "0.81", "0.74", "0.88"),
    ]
    assert list(figures("perplexity", PERPLEXITY.values)) == [
        Figure("perplexity", "21.417", "18.020", "25.911"),
        Figure("scored", 27),
        Figure("unscored", 1),
    ]
    counted = {"parsed": 3, "parsed_share": "0.75", "parsed_low": "0.30", "parsed_high": "0.95"}
    assert list(figures("records", counted)) == [Figure("parsed", 3), Figure("parsed_share", "0.75", "0.30", "0.95")]


def test_no_figure_is_lost():
    """Ends without a figure of their own are shown as they are."""
    for values in ({"odd_low": "1", "odd_high": "2"}, {"only_low": "1"}, {"x": None, "x_low": None, "x_high": None}):
        found = list(figures("odd", values))
        shown = {name for one in found for name in (one.name,)}
        with_ends = {f"{one.name}_{end}" for one in found for end in ("low", "high")}
        assert set(values) <= shown | with_ends


def test_samples_are_spread_over_the_file_by_their_number_alone():
    many = texts_of(*map(str, range(60)))
    assert [one.number for one in samples(many)] == [1, 11, 21, 31, 41, 51]
    assert [one.number for one in samples(many[:4])] == [1, 2, 3, 4]
    assert list(samples([])) == []
    assert len(list(samples(many))) == SAMPLES


def test_a_long_sample_says_how_much_is_left_out():
    [one] = samples(texts_of("a  b\n" * 100))
    assert len(one.text.split()) == SAMPLE_WORDS
    assert one.words_left_out == 200 - SAMPLE_WORDS
    assert one.text.startswith("a  b\na")
    [short] = samples(texts_of("a b\n"))
    assert (short.text, short.words_left_out) == ("a b\n", 0)


@pytest.mark.parametrize("longest", [0, 1, 11, 12, 13, 59, 60, 119, 120, 121, 5000])
def test_every_text_is_in_one_bin_of_one_round_width(longest):
    found = lengths(texts_of("word " * longest, "", "one", "two words"))
    assert sum(found.counts) == found.texts == 4
    assert len(found.counts) == len(found.edges) - 1 <= BINS
    widths = {after - before for before, after in zip(found.edges, found.edges[1:], strict=False)}
    assert len(widths) == 1
    assert str(widths.pop()).rstrip("0") in ("1", "2", "5")
    assert found.edges[-2] <= found.longest < found.edges[-1]
    assert found.longest == max(longest, len(words("two words")))
    assert found.empty == (2 if longest == 0 else 1)


def test_bounds_are_told_with_what_was_measured():
    said = contents("public", release_facts(the_record(), the_metrics(), TEXTS))
    assert [(one["metric"], one["figure"], one["value"], one["met"]) for one in said["bounds"]] == [
        ("length", "empty", "1", False),
        ("length", "texts", str(len(TEXTS)), True),
        ("distinct", "", None, True),
    ]


def test_the_claim_in_words_has_the_figures_of_the_claim():
    found = claim_part(a_record())
    assert isinstance(found, Claim)
    assert (found.epsilon, found.delta, found.times, found.right) == ("4", "1e-7", "54.6", "98.21")
    said = " ".join(found.sentences)
    for figure in ("54.6 times", "98.21 %", "epsilon 8.7055", "1e-7"):
        assert figure in said
    assert found.replace_one == "epsilon 8.7055 at delta 1e-7"
    assert "epsilon 8, delta 1e-6" in (found.lifetime or "")


def test_who_is_protected_follows_from_the_unit():
    assert "all records with one id count as one" in protects(a_record())
    single = a_record(a_request(unit="record"))
    assert protects(single) == "Each single record of clinic: whether it is in the data at all."


def test_shared_budgets_are_told():
    found = claim_part(a_record(lifetime=Lifetime(epsilon="8", delta="0.000001", shared=True)))
    assert isinstance(found, Claim)
    assert "Several datasets share this budget." in (found.lifetime or "")


def test_what_is_not_promised_is_the_cards_list_word_for_word():
    points, listed = limits(a_record()), card_text.limits_section(None)
    assert len(points) == listed.count("\n- ")
    assert all(head for head, _ in points)
    told = "".join(f"{head}{rest}" for head, rest in points).replace(" ", "")
    card = listed.partition("\n\n")[2].replace("**", "").replace("- ", "")
    assert told == "".join(card.split())


def test_a_release_without_private_text_has_an_empty_claim():
    baseline = {
        name: BASELINE[name] for name in BASELINE if name not in ("references", "top_k", "max_reference_tokens")
    }
    request = a_request(mechanism="public_only", epsilon=None, delta=None, parameters=baseline)
    found = claim_part(a_record(request, second_opinion=None))
    assert isinstance(found, Claim)
    assert (found.times, found.right) == (None, None)
    assert "No private text was used for it" in found.sentences[0]


def test_a_release_without_protection_has_none():
    baseline = {
        name: BASELINE[name] for name in BASELINE if name not in ("references", "top_k", "max_reference_tokens")
    }
    request = a_request(mechanism="non_private", governed=False, epsilon=None, delta=None, parameters=baseline)
    assert isinstance(claim_part(a_record(request, lifetime=None, second_opinion=None)), NoClaim)


def test_every_text_is_on_a_page_with_its_doubts():
    texts = [*(Text(number, f"Note {number}.") for number in range(1, 102)), Text(102, "Mail ana@example.org.", "b7")]
    first, second = text_pages(texts, ("A note.",))
    assert [one.number for page in (first, second) for one in page.texts] == list(range(1, 103))
    assert (first.doubtful, second.doubtful) == (0, 1)
    assert (second.texts[-1].label, second.texts[-1].doubts) == ("b7", ("e-mail address",))
    assert list(text_pages([], ("A note.",))) == []
