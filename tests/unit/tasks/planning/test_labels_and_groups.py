"""Groups in requests: catalogue, contribution bound, what they decide; and whose documents are read for which."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.errors import UsageError
from models_db.home import ProjectHome
from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import PublicGroup, PublicMetadata, model_to_json
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.store import Corpus
from tasks.planning.layout import GroupLayout, PartParameters, layout_of, with_catalogue
from tasks.pricing.quote import Quote, quote, written_request
from tasks.systems.adapmixed import AdaPMixed, AdaPMixedParameters
from tasks.systems.invisible_ink import InvisibleInk
from tasks.systems.private_decoding import instalments
from tasks.systems.registry import UnknownSystem
from tests.refusals import refusal
from tests.unit.tasks.pricing.test_quote import MODEL, facts, priced
from tests.unit.tasks.systems.asking import AMOUNT, ask, ink
from tests.unit.tasks.systems.workshop import KEY, store

CATALOGUE = (
    PublicGroup(id="7", title="Kettle", about=("kitchen", "electric")),
    PublicGroup(id="lamp", title="Lamp"),
    PublicGroup(id="caf\u00e9"),
)
TOKENS: dict[str, Any] = {"references": 7, "max_new_tokens": 48, "temperature": 1.0}


def summaries(groups: object, catalogue: tuple[PublicGroup, ...] = CATALOGUE, **changes: Any) -> Quote:
    """A request for summaries of some groups, priced; `fields` of the request itself in `request`."""
    request = {"kind": "summaries", "mechanism": "token_level_summary"} | changes.pop("request", {})
    parameters = TOKENS | ({} if groups is None else {"groups": groups}) | changes
    return priced(facts(public=PublicMetadata(groups=catalogue)), parameters=parameters, **request)


def stored(quote: Quote) -> Any:
    return quote.body["parameters"]["groups"]  # type: ignore[index, call-overload]


# --- what is asked -----------------------------------------------------------------------------------------------


def test_all_is_the_whole_catalogue_in_its_order_written_out() -> None:
    found = summaries("all")
    assert stored(found) == [
        {"id": "7", "title": "Kettle", "about": ["kitchen", "electric"]},
        {"id": "lamp", "title": "Lamp"},
        {"id": "caf\u00e9"},
    ]
    assert found.plan.samples == 3
    assert found.plan.facts["groups"] == "3"


def test_a_name_stands_for_the_group_of_the_catalogue_in_any_spelling() -> None:
    found = summaries([7, "cafe\u0301", {"id": " lamp "}])
    assert stored(found) == [
        {"id": "7", "title": "Kettle", "about": ["kitchen", "electric"]},
        {"id": "caf\u00e9"},
        {"id": "lamp"},
    ]


def test_what_a_request_says_of_a_group_itself_stays() -> None:
    assert stored(summaries([{"id": 7, "about": "tea"}])) == [{"id": "7", "about": ["tea"]}]


def test_without_a_catalogue_the_request_declares_its_groups() -> None:
    found = summaries(["a", 3, {"id": "b", "title": "B"}], catalogue=())
    assert stored(found) == [{"id": "a"}, {"id": "3"}, {"id": "b", "title": "B"}]


@pytest.mark.parametrize(
    ("groups", "catalogue"),
    [("all", CATALOGUE), ([7, "cafe\u0301"], CATALOGUE), ([7, {"id": "b", "about": "x"}], ())],
)
def test_a_stored_request_quoted_again_is_the_same_to_the_byte(groups: Any, catalogue: Any) -> None:
    first = summaries(groups, catalogue)
    request = written_request(json.loads(encode_canonical(first.body)))
    for dataset in (facts(public=PublicMetadata(groups=catalogue)), facts()):  # who verifies has no catalogue
        again = quote(request, dataset, MODEL, "p" * 64, "c" * 64)
        assert encode_canonical(again.body) == encode_canonical(first.body)


def test_the_catalogue_is_no_part_of_a_request_and_what_else_is_declared_is() -> None:
    public = PublicMetadata(groups=CATALOGUE, name="Reviews")
    parameters = TOKENS | {"groups": ["lamp"]}
    body = priced(facts(public=public), kind="summaries", mechanism="token_level_summary", parameters=parameters).body
    assert body["public_metadata"] == {"name": "Reviews"}
    assert "public_metadata" not in summaries(["lamp"]).body
    with refusal("FileInvalid", match="a catalogue is the dataset's"):
        summaries(["lamp"], request={"public_metadata": {"groups": ["lamp"]}})


@pytest.mark.parametrize("asked", ["sofa", 8, {"id": "sofa", "title": "Sofa"}, "LAMP"])
def test_a_group_that_the_catalogue_has_not_is_named(asked: Any) -> None:
    with refusal("GroupUnknown") as refused:
        summaries(["lamp", asked])
    assert refused.value.facts["declared"] == 3
    assert str(asked["id"] if isinstance(asked, dict) else asked) in str(refused.value)


def test_all_of_no_catalogue_is_refused() -> None:
    with refusal("GroupUnknown", match="needs a dataset whose public metadata declares its groups"):
        summaries("all", catalogue=())


@pytest.mark.parametrize(
    "groups",
    [
        "lamp",
        ["lamp", "lamp"],
        [7, "7"],
        [True],
        [7.5],
        [""],
        [None],
        ["a\nb"],
        [{"title": "No id"}],
        [{"id": "lamp", "size": 3}],
        [{"id": "lamp", "title": "two\nlines"}],
        ["x" * 201],
    ],
)
@pytest.mark.parametrize("catalogue", [CATALOGUE, ()], ids=["catalogue", "none"])
def test_what_names_no_group_is_a_named_error(groups: Any, catalogue: Any) -> None:
    with refusal("FileInvalid", "GroupUnknown"):
        summaries(groups, catalogue)


def test_a_catalogue_has_each_group_once() -> None:
    with pytest.raises(ValueError, match="each group once"):
        PublicMetadata(groups=(PublicGroup(id="7"), PublicGroup.model_validate({"id": 7, "title": "Again"})))


@pytest.mark.parametrize(
    "own", [{"centre": ["public"]}, {"centre": {"a": 1}}, {"form": 3}, {"clip_norm": []}, {"groups_per_unit": "two"}]
)
def test_what_no_parameter_may_be_is_a_named_error(own: dict[str, Any]) -> None:
    with refusal("FileInvalid"):
        summaries(["lamp"], **own)


# --- what groups decide ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["token_level_summary", "invisible_ink", "public_only"])
@pytest.mark.parametrize("groups", [None, []])
def test_summaries_need_groups(mechanism: str, groups: Any) -> None:
    with refusal("GroupsNeeded"):
        summaries(groups, request={"mechanism": mechanism}, samples=3)


@pytest.mark.parametrize("kind", ["synthetic_corpus", "demonstrations", "records"])
def test_no_other_kind_has_groups(kind: str) -> None:
    with pytest.raises(UsageError) as refused:
        summaries(["lamp"], request={"kind": kind, "mechanism": "invisible_ink"})
    assert refused.value.code in {"GroupsUnexpected", "LabelsNeeded", "SchemaNeeded"}
    with refusal("GroupsUnexpected"):
        summaries(["lamp"], request={"kind": "synthetic_corpus", "mechanism": "public_only"})


@pytest.mark.parametrize("kind", ["synthetic_corpus", "demonstrations", "records"])
@pytest.mark.parametrize("mechanism", ["token_level_summary", "one_shot_summary"])
def test_summarisers_make_nothing_else(kind: str, mechanism: str) -> None:
    with pytest.raises(UnknownSystem):
        summaries(["lamp"], request={"kind": kind, "mechanism": mechanism})


@pytest.mark.parametrize("mechanism", ["private_prediction", "private_icl", "few_shot_generation", "adapmixed"])
def test_systems_that_cannot_summarise_say_so(mechanism: str) -> None:
    with pytest.raises(UnknownSystem):
        summaries(["lamp"], request={"mechanism": mechanism})
    assert AdaPMixed().kinds == ("synthetic_corpus", "demonstrations", "records")
    assert AdaPMixedParameters.model_fields["groups_per_unit"].default == 1


@pytest.mark.parametrize(("name", "value"), [("samples", 2), ("samples", 4), ("batches", 1), ("labels", ["lamp"])])
@pytest.mark.parametrize("mechanism", ["token_level_summary", "invisible_ink"])
def test_what_groups_decide_cannot_be_said_otherwise(name: str, value: Any, mechanism: str) -> None:
    with refusal("GroupsContradicted") as refused:
        summaries("all", request={"mechanism": mechanism}, **{name: value})
    assert refused.value.facts == {"parameter": name}


def test_as_many_samples_as_groups_may_be_said() -> None:
    assert summaries("all", samples=3).body == summaries("all").body


def test_a_unit_cannot_be_in_more_groups_than_there_are() -> None:
    with refusal("ContributionBoundExceeded") as refused:
        summaries(["lamp", 7], groups_per_unit=3)
    assert refused.value.facts == {"groups_per_unit": 3, "groups": 2}
    assert summaries(["lamp", 7], groups_per_unit=2).plan.facts["groups per unit m"] == "2"
    for wrong in (0, -1):
        with refusal("FileInvalid"):
            summaries(["lamp", 7], groups_per_unit=wrong)
    with refusal("FileInvalid", match="none are declared"):
        priced(parameters=TOKENS | {"samples": 3, "groups_per_unit": 2})


def test_requests_without_groups_name_none() -> None:
    assert "groups" not in priced().body["parameters"]  # type: ignore[operator]
    assert model_to_json(PartParameters()) == {"groups_per_unit": 1}


def test_a_group_is_shown_by_its_title_and_what_it_is_about() -> None:
    found = ink(samples=3, groups=CATALOGUE)
    assert found.shown == ("Kettle - kitchen, electric", "Lamp", "caf\u00e9")
    assert found.names == ("7", "lamp", "caf\u00e9")
    assert PublicGroup(id="x", about=("a", "b")).shown == "a, b"


@given(st.lists(st.sampled_from(["a", "b", 1, "1", " a", {"id": "b"}, {"id": 1, "title": "t"}]), max_size=4))
def test_writing_out_twice_is_writing_out_once(groups: list[Any]) -> None:
    catalogue = [PublicGroup(id="a", title="A"), PublicGroup(id="b"), PublicGroup(id="1", about=("x",))]
    once = with_catalogue({"groups": groups, "other": 3}, catalogue)
    assert with_catalogue(once, catalogue) == once
    assert once["other"] == 3


# --- InvisibleInk over groups ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_every_group_a_unit_is_read_in_is_charged(bound: int) -> None:
    wanted = ink(samples=3, groups=["a", "b", "c"], groups_per_unit=bound)
    plan = InvisibleInk().plan(ask(wanted, blocks=2))
    (drawn,) = plan.invocations
    assert drawn.event.count == 12 * bound
    assert [part.rho for part in drawn.instalments] == [drawn.event.loss.rho // 3] * 3
    assert plan.loss == drawn.event.loss
    assert plan.loss.fits(AMOUNT)
    assert plan.samples == 3
    assert instalments(drawn.event, 4 * bound) == drawn.instalments


def test_no_count_is_bought_for_groups() -> None:
    """How many units there are does not matter: a group is not split."""
    plan = InvisibleInk().plan(ask(ink(samples=2, groups=["a", "b"]), population=None))
    assert [invocation.event.mechanism for invocation in plan.invocations] == ["integer_draw"]
    assert plan.facts["batches per block"] == "1"


def test_a_layout_of_groups_has_one_text_each_from_every_block() -> None:
    layout = layout_of(ink(samples=3, groups=CATALOGUE), 3, 2)
    assert isinstance(layout, GroupLayout)
    assert layout.sources() == [((0, g, 0), (1, g, 0)) for g in range(3)]
    assert layout.labels_of_texts(["x", "y", "z"]) == ["x", "y", "z"]
    assert layout_of(ink(samples=3, groups=CATALOGUE), 3, 9).sources()[0] == tuple((b, 0, 0) for b in range(9))


# --- whose documents are read ------------------------------------------------------------------------------------

GROUPS = tuple("abcde")


def busy(units: int = 40) -> list[dict[str, str]]:
    """Units that write in one to five groups, twice in the first of them, and in one that nobody asks for."""
    made = []
    for number in range(units):
        unit = f"u{number:02}"
        for place in range(1 + number % 5):
            group = GROUPS[(number + place) % 5]
            made.append({"patient_id": unit, "text": f"{unit} of {group}", "section": group})
        made.append({"patient_id": unit, "text": f"{unit} again", "section": GROUPS[number % 5]})
        made.append({"patient_id": unit, "text": f"{unit} elsewhere", "section": "z"})
    return made


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("reviews")
    return store(ProjectHome(folder / "home"), folder / "notes.jsonl", busy(), "section")


def read(corpus: Corpus, most: int, blocks: int = 3, key: bytes = KEY, name: str = "s") -> Any:
    places = [place for source in GroupLayout(len(GROUPS), blocks).sources() for place in source]
    return corpus.batches(PartitionScheme(key, blocks), BatchSplit(key, name), 1, places, GROUPS, most)


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_a_unit_has_at_most_m_rows_over_all_groups_and_blocks(reviews: Corpus, most: int) -> None:
    rows = read(reviews, most)
    seen = Counter(unit.unit for units in rows.values() for unit in units)
    assert seen == {f"u{number:02}": min(most, 1 + number % 5) for number in range(40)}
    blocks = {
        unit.unit: {place[0] for place, units in rows.items() if unit in units} for us in rows.values() for unit in us
    }
    assert all(len(where) == 1 for where in blocks.values())


def test_a_row_is_the_documents_of_its_own_group(reviews: Corpus) -> None:
    for (_, group, _), units in read(reviews, 5).items():
        for unit in units:
            own = [
                note["text"] for note in busy() if (note["patient_id"], note["section"]) == (unit.unit, GROUPS[group])
            ]
            assert sorted(unit.text.split("\n\n")) == sorted(own)


def test_which_groups_a_unit_is_read_in_is_its_own_affair(tmp_path: Path, reviews: Corpus) -> None:
    """Another unit leaves, or writes elsewhere: every other unit is read where it was."""
    notes = [note for note in busy() if note["patient_id"] != "u04"]
    notes += [{"patient_id": "u04", "text": "new", "section": group} for group in "ab"]
    other = store(ProjectHome(tmp_path / "home"), tmp_path / "notes.jsonl", notes, "section")
    before, after = read(reviews, 2), read(other, 2)
    for place in before:
        kept = [[unit for unit in rows[place] if unit.unit != "u04"] for rows in (before, after)]
        assert kept[0] == kept[1]


def test_a_larger_bound_reads_the_same_groups_and_more(reviews: Corpus) -> None:
    smaller, larger = read(reviews, 2), read(reviews, 3)
    assert all(set(smaller[place]) <= set(larger[place]) for place in smaller)


def test_another_release_or_key_chooses_other_groups(reviews: Corpus) -> None:
    def chosen(**how: Any) -> set[Any]:
        return {(group, unit.unit) for (_, group, _), units in read(reviews, 1, **how).items() for unit in units}

    assert len(chosen()) == 40
    assert chosen() != chosen(name="t")
    assert chosen() != chosen(key=b"j" * 32)


def test_how_often_a_unit_writes_in_a_group_does_not_matter(tmp_path: Path) -> None:
    once = [{"patient_id": "u", "text": f"of {group}", "section": group} for group in GROUPS]
    often = once + [{"patient_id": "u", "text": f"{number}", "section": "e"} for number in range(9)]
    found = []
    for name, notes in (("once", once), ("often", often)):
        corpus = store(ProjectHome(tmp_path / name), tmp_path / f"{name}.jsonl", notes, "section")
        found.append({place for place, units in read(corpus, 2).items() if units})
    assert found[0] == found[1]
