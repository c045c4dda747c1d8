"""Keyword sets: what they are planned to cost is what they arm, and what they write down is safe to keep."""

import json
from fractions import Fraction

import pytest

from models_db.values.amounts import Amount, total_amount
from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import parse_model
from tasks.analysis.keywords.keyword_set import keyword_set_for
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.mechanisms import registry
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts.partition_selection import PartitionSelection, calibrate_selection
from tasks.values.results import Facets
from tests.refusals import refusal

AMPLE = Amount(20 * 10**12, 10**9)  # so small a delta that a word of one unit is never released here
SMALL = Amount(2 * 10**10, 10**12)
METHODS = {
    "public": {"method": "public", "words": ["law", "tax"]},
    "tfidf": {"method": "tfidf"},
    "model": {"method": "model"},
    "hybrid": {"method": "hybrid", "words": ["law", "tax"]},
}


def set_for(amount=AMPLE, **written):
    return keyword_set_for(parse_model(KeywordSettings, written, "`keywords`"), amount)


def unit(*keywords, text=""):
    return Facets({"keywords": keywords, "summary": (text or " ".join(keywords),)})


class Wallet:
    """A purse that remembers; with `kept` it is that of a run that goes on."""

    def __init__(self, kept=None, refined=None):
        self.kept, self.refined, self.armed = kept, refined, []

    def release(self, numbers, prepare, draw):
        name = "kept" if numbers else "refined"
        if getattr(self, name) is None:
            self.armed += [tuple(numbers)] if numbers else []
            setattr(self, name, json.loads(encode_canonical(draw(prepare()))))
        return getattr(self, name)


def drawn(keyword_set, units, rng=OS_RANDOM, **more):
    return keyword_set.draw(Wallet(), lambda: units, rng, **more)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ranking", ["counts", "coverage"])
@pytest.mark.parametrize("amount", [AMPLE, SMALL])
@pytest.mark.parametrize("selection", ["gaussian", "truncated_geometric", "weighted"])
def test_what_is_charged_is_within_the_amount_and_all_of_it_is_used(method, ranking, amount, selection):
    events = set_for(amount, **METHODS[method], ranking=ranking, selection=selection).events
    spent = total_amount([event.loss for event in events])
    assert spent.fits(amount)
    assert [registry.recompute(event) for event in events] == [event.loss for event in events]
    if method == "public":
        assert events == ()
    elif selection in ("gaussian", "weighted"):
        assert spent.rho > amount.rho * 0.998
        assert 0 < spent.delta <= amount.delta  # thresholds are whole numbers
    else:
        assert spent.delta >= amount.delta * 0.999
        if amount is SMALL:  # 4 a candidate is the largest epsilon there is
            assert spent.rho > amount.rho * 0.998


def test_the_mechanisms_are_charged_for_what_a_unit_can_do():
    frequency, selection = set_for(per_unit=4, tokens_per_unit=7, selection="gaussian").events
    assert (frequency.mechanism, frequency.parameters["contributions"]) == ("set_histogram", 8)
    assert (selection.mechanism, selection.parameters["contributions"]) == ("gaussian_selection", 4)


def test_weighted_rounds_are_charged_one_by_one():
    frequency, first, second = set_for(per_unit=4, tokens_per_unit=7, selection="weighted").events
    assert (frequency.mechanism, frequency.parameters["contributions"]) == ("set_histogram", 8)
    for event in (first, second):
        assert (event.mechanism, event.parameters["contributions"]) == ("weighted_selection", 4)
    assert 3.9 * first.loss.rho < second.loss.rho < 4.1 * first.loss.rho


def test_weighted_rounds_read_what_released_candidates_hide():
    """A unit's first ten candidates are those of all; the eleventh takes a place once they are released."""
    frequent = [f"word{number:02}" for number in range(10)]
    units = [unit(*frequent, "eleventh", "twelfth") for _ in range(2000)]
    found = drawn(set_for(method="model", selection="weighted"), units)
    assert found == sorted([*frequent, "eleventh", "twelfth"])
    assert drawn(set_for(method="model", selection="gaussian"), units) == frequent[:5]


def test_single_words_are_selected_in_weighted_rounds_and_phrases_by_counts():
    assert [event.mechanism for event in set_for(method="tfidf").events][1:] == ["weighted_selection"] * 2
    assert [event.mechanism for event in set_for(method="model").events] == ["gaussian_selection"]
    facts = set_for(method="tfidf").facts
    assert facts["keyword candidates per unit k"] == "10"
    assert facts["a keyword is as likely as not"].endswith("each beside 3 others")
    assert facts["larger sets are cut"] == "by the noisy sums of the selection"
    assert facts["selection"].count("threshold") == 2


@pytest.mark.parametrize("method", ["model", "hybrid"])
def test_the_selection_that_needs_fewer_units_is_taken(method):
    """Of the Gaussian and the geometric one; the second wins where delta is large beside rho."""
    for amount, kind in ((AMPLE, "gaussian"), (SMALL, "gaussian"), (Amount(10**7, 10**16), "truncated_geometric")):
        needed = {
            selection: set_for(amount, **METHODS[method], selection=selection).selecting.selection.even_count()
            for selection in ("auto", "gaussian", "truncated_geometric")
        }
        assert needed["auto"] == needed[kind] == min(needed.values())
    events = set_for(Amount(10**7, 10**16), method="tfidf").events
    assert [event.mechanism for event in events] == ["set_histogram", "partition_selection", "set_histogram"]


def test_a_gaussian_selection_counts_by_itself_and_ranks():
    keyword_set = set_for(method="model", size=1)
    assert keyword_set.selecting.counting is None
    units = [unit("tea", "pottery") if number % 2 else unit("tea") for number in range(400)]
    assert drawn(keyword_set, units) == ["tea"]
    assert keyword_set.facts["larger sets are cut"] == "by the noisy counts of the selection"


def test_a_geometric_selection_is_charged_for_its_counts():
    frequency, selection, counts = set_for(per_unit=4, tokens_per_unit=7, selection="truncated_geometric").events
    assert (frequency.mechanism, frequency.parameters["contributions"]) == ("set_histogram", 8)
    assert (selection.mechanism, selection.parameters["contributions"]) == ("partition_selection", 4)
    assert (counts.mechanism, counts.parameters["contributions"]) == ("set_histogram", 4)


@pytest.mark.parametrize("method", METHODS)
def test_everything_is_armed_together_before_anything_is_read(method):
    purse, keyword_set = Wallet(), set_for(**METHODS[method])
    read = []
    keyword_set.draw(purse, lambda: read.append(list(purse.armed)) or [unit("tea")], OS_RANDOM)
    expected = tuple(range(len(keyword_set.events)))
    assert purse.armed == ([expected] if expected else [])
    assert read == ([[expected]] if expected else []), "a public set reads nobody"


def test_the_public_set_is_the_request_s_own_in_order():
    assert drawn(set_for(method="public", words=["tax", "law", "court"]), None) == ["court", "law", "tax"]
    assert drawn(set_for(method="public", words=["tax", "law", "court"], size=2), None) == ["law", "tax"]


def test_what_many_say_is_released_and_what_one_says_is_not():
    units = [unit("Tea", "pottery", f"secret{number}") for number in range(200)]
    assert drawn(set_for(method="model"), units) == ["pottery", "tea"]


def test_a_unit_proposes_its_first_keywords_only():
    units = [unit("tea", "pottery", "chess") for _ in range(200)]
    assert drawn(set_for(method="model", per_unit=2), units) == ["pottery", "tea"]


def test_a_unit_that_says_a_word_often_says_it_once():
    keyword_set = set_for(Amount(10**12, 10**9), method="model")
    few = keyword_set.selecting.selection.even_count() // 2
    assert few >= 3
    units = [unit(*["tea", "TEA", "tea "] * 10) for _ in range(2)]
    assert all(drawn(keyword_set, units) == [] for _ in range(20))


def test_hybrid_adds_what_the_public_words_lack():
    units = [unit("tax returns", "law", "pottery") for _ in range(200)]
    found = drawn(set_for(method="hybrid", words=["law", "tax", "court"]), units)
    assert found == ["court", "law", "pottery", "tax"]


def test_hybrid_leaves_half_of_the_room_to_what_was_released():
    units = [unit("pottery", "chess", "tea") for _ in range(200)]
    words = ["law", "tax", "court", "judge"]
    found = drawn(set_for(method="hybrid", words=words, size=4), units)
    assert len(found) == 4
    assert {"law", "tax"} < set(found)
    assert len(set(found) & {"pottery", "chess", "tea"}) == 2
    roomy = drawn(set_for(method="hybrid", words=words, size=6), units)
    assert set(roomy) == {"pottery", "chess", "tea", "law", "tax", "court"}


def test_a_set_that_is_too_large_is_cut_by_counts():
    units = [unit("tea", "pottery") if number % 2 else unit("tea", "chess") for number in range(400)]
    units += [unit("chess") for _ in range(200)]
    assert drawn(set_for(method="model", size=2), units) == ["chess", "tea"]
    assert drawn(set_for(method="model", size=1), units) in (["tea"], ["chess"])


def test_or_by_whatever_the_settings_say():
    keyword_set = set_for(method="model", size=1, ranking="model")
    units = [unit("tea", "pottery") for _ in range(200)]
    assert drawn(keyword_set, units, refine=lambda keywords, most: list(keywords)[-most:]) == ["tea"]
    with pytest.raises(ValueError, match="ranked by model"):
        drawn(keyword_set, units)


def test_tfidf_takes_what_tells_units_apart():
    units = [unit(text=f"everybody drinks tea{number % 3} daily and daily") for number in range(600)]
    found = drawn(set_for(method="tfidf", per_unit=1, selection="gaussian"), units)
    assert found == ["tea0", "tea1", "tea2"], "frequent in a unit, but in all units: idf is 0"


def test_tfidf_gives_nobody_words_that_are_not_its_own():
    """A word in every other text, and one unit with another word: neither makes up for what a unit does not say."""
    units = [unit(text="pottery") for _ in range(300)] + [unit(text="chess")]
    assert drawn(set_for(method="tfidf", per_unit=5), units) == ["pottery"]


@pytest.mark.parametrize("method", ["tfidf", "model", "hybrid"])
@pytest.mark.parametrize(
    "units",
    [[], [unit("secret", text="secret")], [unit()] * 300, [unit(f"word{n}", text=f"word{n}") for n in range(300)]],
    ids=["nobody", "one unit", "nothing said", "all different"],
)
def test_nothing_in_common_releases_nothing(method, units):
    public = METHODS[method].get("words", [])
    keyword_set = set_for(Amount(10**11, 10**9), **METHODS[method])
    assert all(drawn(keyword_set, units) == public for _ in range(5))


@pytest.mark.parametrize("method", ["tfidf", "model", "hybrid"])
def test_all_alike_release_what_they_say(method):
    units = [unit("tea", "pottery", text="tea pottery")] * 300
    assert set(drawn(set_for(**METHODS[method]), units)) >= {"pottery", "tea"}


def test_other_languages_are_words_too():
    units = [unit("машинное обучение", "機械学習", text="обучение 機械学習") for _ in range(200)]
    assert drawn(set_for(method="model"), units) == ["машинное обучение", "機械学習"]
    assert drawn(set_for(method="tfidf"), units) == ["машинное", "обучение", "機械学習"]


def test_only_what_is_released_is_written_down():
    purse = Wallet()
    units = [unit("tea", f"secret{number}", text=f"tea secret{number}") for number in range(300)]
    for method in ("tfidf", "model"):
        set_for(method=method).draw(purse, lambda: units, OS_RANDOM)
        assert purse.kept["keywords"] == ["tea"]
        assert set(purse.kept) == {"keywords", "counts"}
        assert len(purse.kept["counts"]) == 1
        purse.kept = None
    geometric = set_for(method="model", ranking="coverage", selection="truncated_geometric")
    geometric.draw(purse, lambda: units, OS_RANDOM, lambda some, most: list(some))
    assert purse.kept == {"keywords": ["tea"], "counts": None}


def test_a_run_that_goes_on_reads_nobody_and_draws_nothing():
    purse = Wallet({"keywords": ["chess", "pottery", "tea"], "counts": [5, 9, 7]})

    def nobody():
        raise AssertionError("read again")

    found = set_for(method="tfidf", size=2).draw(purse, nobody, DeterministicRandom("none"))
    assert found == ["pottery", "tea"]


def test_what_a_model_made_of_a_set_is_not_asked_for_again():
    """It might say something else, and later stages have released counts of what it said."""
    purse, keyword_set = Wallet(), set_for(method="model", size=1, ranking="model")
    units = [unit("tea", "pottery") for _ in range(200)]
    assert keyword_set.draw(purse, lambda: units, OS_RANDOM, lambda some, most: ["tea"]) == ["tea"]
    again = Wallet(purse.kept, purse.refined)
    assert keyword_set.draw(again, lambda: units, OS_RANDOM, lambda some, most: ["pottery"]) == ["tea"]
    assert again.armed == []


@pytest.mark.parametrize("method", ["tfidf", "model", "hybrid"])
@pytest.mark.parametrize(
    ("amount", "selection"),
    [
        (Amount(0, 10**12), "auto"),
        (Amount(10**12, 0), "auto"),
        (Amount(3, 10**12), "truncated_geometric"),
        (Amount(10**3, 10**8), "truncated_geometric"),
    ],
)
def test_too_small_a_budget_is_named_before_anything_is_touched(method, amount, selection):
    with refusal("KeywordBudgetTooSmall") as problem:
        set_for(amount, **METHODS[method], selection=selection)
    assert method in problem.value.message
    assert problem.value.facts["rho"] == str(amount.rho)


def test_a_public_set_needs_no_budget():
    assert set_for(Amount(), method="public", words=["law"]).events == ()


@pytest.mark.parametrize("method", METHODS)
def test_the_facts_say_what_is_done(method):
    facts = set_for(**METHODS[method]).facts
    assert facts["keyword set"] == f"{method}, at most 200 keywords"
    assert ("public keywords" in facts) == (method in ("public", "hybrid"))
    assert ("document frequencies" in facts) == (method == "tfidf")
    assert ("larger sets are cut" in facts) == (method != "public")
    assert all(isinstance(value, str) for value in facts.values())


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize(("rho", "delta"), [(10**9, 10**10), (10**11, 10**12), (10**12, 10**13), (10**13, 10**12)])
def test_the_closed_form_of_the_even_count_is_pydps(rho, delta, k):
    selection = calibrate_selection(Amount(rho, delta), k)
    assert abs(selection.even_count() - selection.units_for(0.5)) <= 1


def test_a_selection_of_certainty_is_even_at_once():
    assert 1 <= PartitionSelection(Fraction(40), Fraction(1, 4), 10).even_count() <= 2


def test_a_choice_from_another_set_brings_no_word_into_this_one():
    """It costs nothing, so it is found again even where the ledger alone was put back and the set is drawn anew."""
    keyword_set = set_for(method="model", ranking="coverage", size=2)
    units = [unit("milk", "tea", "bread")] * 500
    purse = Wallet(refined=["milk", "stranger"])
    assert keyword_set.draw(purse, lambda: units, OS_RANDOM, lambda keywords, most: list(keywords)[:most]) == ["milk"]
