"""Releases of insights: rows that are one hierarchy, in every file of a bundle, and found out where they are not."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import mlcroissant
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.requests import model_to_json
from tasks.common.files import FileUnfit, measure
from tasks.publishing.draft import MAKERS, write_draft
from tasks.publishing.verify import verify_release
from tasks.release.bundle_format import (
    CARD,
    CROISSANT,
    DRAFT_FILES,
    EXPLORER,
    PARQUET,
    REPORT,
    TEXTS,
    bundle_files,
    carried,
    drafted_files,
    insight_line,
    insight_of,
    read_insights,
    read_labelled,
)
from tasks.release.description import reading_of_insights
from tasks.release.record import planned_events, second_opinion
from tasks.reporting.release_sections import texts_of
from tasks.systems.insights.hierarchy_rules import require_hierarchy
from tasks.systems.insights.wording import support_of
from tasks.systems.simple_clio.parameters import ClioParameters
from tasks.systems.urania.stages import UraniaParameters
from tasks.values.results import MIXED, UNNAMED, Insight, ReleaseKind, SupportRule, Topic
from tests.insights_rows import (
    DEVIATION,
    HEBREW,
    LEAST,
    NASTY,
    described,
    hostile,
    insights_record,
    insights_request,
    known,
    many,
    plausible,
    supported,
    unmeasured,
)
from tests.unit.tasks.publishing.builders import Release, a_release, metrics_of
from tests.unit.tasks.publishing.forging import failed, failures, reseal

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mlcroissant"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:rdflib"),
    pytest.mark.filterwarnings("ignore::FutureWarning:mlcroissant"),
]
CONCERNS = ("tasks/release",)


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch)


def released(folder: Path, nodes: Sequence[Insight], **changes: Any) -> Release:
    return a_release(folder, insights_record(**changes), tuple(described(nodes)), insights=nodes)


# --- one line ----------------------------------------------------------------------------------------------


def test_a_line_has_exactly_the_fields_of_a_node() -> None:
    node = Insight(
        7, 2, 0, Topic("Sleep", "How to fall asleep."), ("sleep", "habit"), -3, (41, 30), ("selected", "built_in"), 2
    )
    stored = insight_line(node)
    assert json.loads(stored) == {
        "id": 7,
        "parent": 2,
        "level": 0,
        "name": "Sleep",
        "text": "How to fall asleep.",
        "keywords": ["sleep", "habit"],
        "support": [41, 30],
        "origins": ["selected", "built_in"],
        "size": -3,
        "clusters": 2,
    }
    assert insight_of(stored, 7) == node
    assert json.loads(insight_line(replace(node, parent=None, size=None)))["parent"] is None
    assert json.loads(insight_line(replace(node, support=None, origins=None)))["support"] is None
    with pytest.raises(ValueError, match="2 keywords have 1 values of support"):
        replace(node, support=(1,))


WORDS = st.text(max_size=30)
NODES = st.builds(
    Insight,
    number=st.integers(1, 2**53 - 1),
    parent=st.none() | st.integers(1, 2**53 - 1),
    level=st.integers(0, 9),
    topic=st.builds(Topic, WORDS, WORDS),
    keywords=st.lists(WORDS, max_size=5).map(tuple),
    size=st.none() | st.integers(-(2**53) + 1, 2**53 - 1),
)


@given(NODES)
def test_every_node_comes_back(node: Insight) -> None:
    assert insight_of(insight_line(node), 1) == node


def test_what_utf8_cannot_carry_is_replaced_and_nothing_else() -> None:
    odd = Insight(1, None, 0, Topic("a\ud800", "b\udfff"), ("c\ud800", "d"), 20)
    assert carried(odd) == Insight(1, None, 0, Topic("a?", "b?"), ("c?", "d"), 20)
    assert carried(hostile()[0]) == hostile()[0]


LINE = insight_line(plausible()[4])
SPOILT = [
    (b'"id":5', b'"id":"5"'), (b'"id":5', b'"id":5.0'), (b'"id":5', b'"id":true'), (b'"id":5', b'"id":0'),
    (b'"id":5', b'"id": 5'), (b'"id":5', b'"id":5,"id":5'), (b'"level":0', b'"level":-1'), (b'"parent":1,', b""),
    (b'"parent":1', b'"parent":0'), (b"{", b'{"unit":"p1",'), (b'["job"', b'[7,"job"'),
    (b'"size":385', b'"size":9007199254740992'), (b'"size":385', b'"size":3850e-1'),
    (b'"name":"Cover', b'"name":"\\ud800'), (b'"name":"Cover letters"', b'"name":null'),
]  # fmt: skip
OTHER = [b"", b"[]\n", b"null\n", LINE[:-1], LINE + b"\n", b'{"id":' * 5000]


@pytest.mark.parametrize("stored", [*OTHER, *(LINE.replace(*change) for change in SPOILT)])
def test_what_is_not_in_the_one_form_of_a_line_is_refused(stored: bytes) -> None:
    assert stored != LINE
    with pytest.raises(FileUnfit, match="line 5"):
        insight_of(stored, 5)


# --- a hierarchy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [(), plausible(), many(1, 0), many(60, 8), hostile(), unmeasured()])
def test_hierarchies_of_every_shape_are_let_through(nodes: tuple[Insight, ...]) -> None:
    require_hierarchy(nodes, 60, None)


def without(number: int, nodes: Sequence[Insight]) -> list[Insight]:
    return [node for node in nodes if node.number != number]


def with_one(number: int, nodes: Sequence[Insight], **changes: Any) -> list[Insight]:
    return [replace(node, **changes) if node.number == number else node for node in nodes]


def exchanged(nodes: Sequence[Insight]) -> list[Insight]:
    """A cluster stands where its group stood."""
    numbers = {1: 5, 5: 1}
    moved = [
        replace(node, number=numbers.get(node.number, node.number), parent=numbers.get(node.parent or 0, node.parent))
        for node in nodes
    ]
    return sorted(moved, key=lambda node: node.number)


WRONG: dict[str, tuple[Callable[[Sequence[Insight]], Sequence[Insight]], str]] = {
    "a number left out": (lambda n: without(9, n), "line 9 that is out of order"),
    "two of one number": (lambda n: [*n, n[-1]], "line 19 that is out of order"),
    "the other way round": (lambda n: n[::-1], "line 1 that is out of order"),
    "a child before its parent": (exchanged, "line 1 that comes before its parent"),
    "a parent of itself": (lambda n: with_one(6, n, parent=6), "line 6 that comes before its parent"),
    "a parent that is not there": (lambda n: with_one(6, n, parent=99), "line 6 that comes before its parent"),
    "a cluster below a cluster": (lambda n: with_one(6, n, parent=5), "line 6 that is not one level below"),
    "two levels up": (lambda n: with_one(1, n, level=2), "line 2 without a parent below the highest level"),
    "a cluster without a group": (lambda n: with_one(18, n, parent=None), "line 18 without a parent"),
    "a group without members": (
        lambda n: [*n, Insight(19, None, 1, Topic("None", "None."), (), 0)],
        "line 19 for a group without members",
    ),
    "a larger group": (lambda n: with_one(2, n, size=947), "line 2 whose size is not the sum"),
    "a group of unknown size": (lambda n: with_one(2, n, size=None), "line 2 whose size is not the sum"),
    "a cluster of unknown size": (lambda n: with_one(5, n, size=None), "line 1 whose size is not the sum"),
    "another cluster": (lambda n: with_one(5, n, size=386), "line 1 whose size is not the sum"),
}


@pytest.mark.parametrize(("change", "said"), WRONG.values(), ids=list(WRONG))
def test_what_is_no_hierarchy_is_refused(change: Callable[[Sequence[Insight]], Sequence[Insight]], said: str) -> None:
    nodes = list(plausible())
    require_hierarchy(nodes, 14, LEAST)
    with pytest.raises(FileUnfit, match=said):
        require_hierarchy(change(nodes), 60, None)


def test_not_more_clusters_than_asked_for_and_none_below_the_threshold() -> None:
    nodes = plausible()
    smallest = min(node.size or 0 for node in nodes if node.level == 0)
    require_hierarchy(nodes, 14, smallest)
    with pytest.raises(FileUnfit, match="14 clusters, more than the 13"):
        require_hierarchy(nodes, 13, smallest)
    with pytest.raises(FileUnfit, match=f"below the threshold of {smallest + 1}"):
        require_hierarchy(nodes, 14, smallest + 1)
    with pytest.raises(FileUnfit, match="below the threshold"):
        require_hierarchy(unmeasured(), 14, 1)


RULE = SupportRule(20, Fraction(1, 10))
UNSUPPORTED: dict[str, tuple[Callable[[Sequence[Insight]], Sequence[Insight]], str]] = {
    "a count below the least": (
        lambda n: counted(1, 1, counted(5, 1, n, 19), 19),
        "keyword below the threshold of support",
    ),
    "a count below the share": (
        lambda n: with_one(5, with_one(1, n, size=2165), size=2000),
        "keyword below the threshold of support",
    ),
    "another sum": (lambda n: counted(1, 0, n, 73), "line 1 whose support is not the sum"),
    "a cluster more": (lambda n: with_one(1, n, clusters=4), "line 1 whose clusters are not those"),
    "no support": (lambda n: with_one(6, with_one(2, n, support=None), support=None), "line 2 without support"),
    "a name of another subject": (lambda n: renamed(4, n, "Films and China"), "line 4 whose name"),
    "a name for what has none": (lambda n: renamed(8, n, "Films"), "line 8 whose name"),
    "no name for what has keywords": (lambda n: renamed(4, n, UNNAMED), "line 4 whose name"),
    "a mixed topic": (lambda n: renamed(6, n, MIXED), "line 6 whose name"),
    "a group after a keyword of one member": (lambda n: renamed(1, n, "songs"), "line 1 whose name"),
    "one name twice": (lambda n: renamed(4, renamed(5, n, "films"), "Films"), "two lines of one level with one name"),
}


def counted(number: int, place: int, nodes: Sequence[Insight], count: int) -> list[Insight]:
    support = list(nodes[number - 1].support or ())
    support[place] = count
    return with_one(number, nodes, support=tuple(support))


def renamed(number: int, nodes: Sequence[Insight], name: str) -> list[Insight]:
    return with_one(number, nodes, topic=Topic(name, "Whatever."))


@pytest.mark.parametrize(("change", "said"), UNSUPPORTED.values(), ids=list(UNSUPPORTED))
def test_names_and_keywords_without_support_are_refused(
    change: Callable[[Sequence[Insight]], Sequence[Insight]], said: str
) -> None:
    nodes = list(supported())
    require_hierarchy(nodes, 9, LEAST, RULE)
    with pytest.raises(FileUnfit, match=said):
        require_hierarchy(change(nodes), 9, LEAST, RULE)


# --- a bundle ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [plausible(), (), many(1, 0)], ids=["plausible", "none", "one"])
def test_a_release_of_insights_verifies(tmp_path: Path, nodes: tuple[Insight, ...]) -> None:
    made = released(tmp_path, nodes)
    assert set(made.files) == set(drafted_files(ReleaseKind.INSIGHTS)) == {*DRAFT_FILES, EXPLORER}
    bundle = made.publish(tmp_path / "out").folder
    report = verify_release(bundle, made.key.public_key)
    assert report.holds, [check for check in report.checks if not check.ok]
    assert {path.name for path in bundle.iterdir()} == set(bundle_files(ReleaseKind.INSIGHTS))
    said = {check.name: check.detail for check in report.checks}
    assert said["texts"] == f"{len(nodes)} insights, in one hierarchy"
    assert "follows from the record" in said[EXPLORER]
    assert tuple(read_insights(bundle)) == nodes
    assert [text for text, _ in read_labelled(bundle)] == list(described(nodes))


def test_hostile_words_are_carried_whole(tmp_path: Path) -> None:
    made = released(tmp_path, hostile())  # two of its clusters are below the threshold of the plan, and that is found
    assert failures(made, tmp_path / "out") == {"texts"}
    assert tuple(read_insights(made.draft)) == hostile()
    for name in (CARD, REPORT, EXPLORER):
        assert NASTY not in (made.draft / name).read_text()


def test_rows_and_all_that_is_made_of_them_follow_from_the_nodes(tmp_path: Path) -> None:
    """Odd characters, and texts that say something else, cannot make a draft that contradicts itself."""
    odd = (Insight(1, None, 0, Topic("a\ud800", "b\udfff"), ("c\ud800",), 20),)
    made = a_release(tmp_path, insights_record(), ("something else",), insights=odd)
    assert verify_release(made.publish(tmp_path / "out").folder).holds
    assert tuple(read_insights(made.draft)) == (carried(odd[0]),)


def test_other_kinds_say_that_they_have_no_explorer(release: Release, tmp_path: Path) -> None:
    report = verify_release(release.publish(tmp_path / "out").folder, release.key.public_key)
    assert report.holds
    (found,) = [check.detail for check in report.checks if check.name == EXPLORER]
    assert found == f"only releases of insights have {EXPLORER}"


Change = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
FORGERIES: dict[str, tuple[Change, str]] = {
    "a smaller cluster": (lambda r: [*r[:-1], r[-1] | {"size": 3}], "whose size is not the sum"),
    "one row more": (lambda r: [*r, r[-1] | {"id": 19}], "whose size is not the sum"),
    "a unit's id": (lambda r: [*r[:-1], r[-1] | {"unit": "p1"}], "that is no insight"),
    "a text's form": (lambda r: [{"id": 1, "text": "real text"}], "that is no insight"),
}


@pytest.mark.parametrize(("change", "said"), FORGERIES.values(), ids=list(FORGERIES))
def test_forged_rows_are_found(tmp_path: Path, new_key: Any, change: Change, said: str) -> None:
    folder = released(tmp_path, plausible()).publish(tmp_path / "out").folder
    rows = [json.loads(row) for row in (folder / TEXTS).read_bytes().splitlines()]
    forged = [json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":")) for row in change(rows)]
    (folder / TEXTS).write_text("".join(f"{row}\n" for row in forged))
    reseal(folder, new_key("forger"))
    report = verify_release(folder)
    (texts,) = [check for check in report.checks if check.name == "texts"]
    assert not texts.ok
    assert said in texts.detail
    assert EXPLORER in failed(report)


def test_the_publisher_cannot_write_another_explorer(tmp_path: Path) -> None:
    made = released(tmp_path, plausible())
    page = made.draft / EXPLORER
    page.write_bytes(page.read_bytes().replace(b"epsilon 4 at", b"epsilon 1 at"))
    files = {name: measure(made.draft / name) for name in drafted_files(ReleaseKind.INSIGHTS)}
    assert failures(made.decided_again(made.draft, files), tmp_path / "out") == {EXPLORER}


# --- the other files ---------------------------------------------------------------------------------------


def test_columns_have_their_types(tmp_path: Path) -> None:
    from pyarrow.parquet import read_table

    write_draft(tmp_path / "draft", insights_record(), tuple(described(hostile())), (), insights=hostile())
    table = read_table(tmp_path / "draft" / PARQUET)
    assert {name: str(table.schema.field(name).type) for name in table.schema.names} == {
        "id": "int64", "parent": "int64", "level": "int64", "name": "string", "text": "string",
        "keywords": "list<element: string not null>", "support": "list<element: int64 not null>",
        "origins": "list<element: string not null>", "size": "int64", "clusters": "int64",
    }  # fmt: skip
    nullable = [name for name in table.schema.names if table.schema.field(name).nullable]
    assert nullable == ["parent", "support", "origins", "size"]
    rows = [json.loads(row) for row in (tmp_path / "draft" / TEXTS).read_bytes().splitlines()]
    assert table.to_pylist() == rows


@pytest.mark.parametrize("nodes", [plausible(), unmeasured()], ids=["plausible", "unmeasured"])
def test_the_reference_reader_reads_the_rows(tmp_path: Path, nodes: tuple[Insight, ...]) -> None:
    texts = tuple(described(nodes))
    write_draft(tmp_path / "draft", insights_record(), texts, metrics_of(texts, "length"), insights=nodes)
    dataset = mlcroissant.Dataset(jsonld=str(tmp_path / "draft" / CROISSANT))
    assert set(dataset.metadata.ctx.issues.errors) == set()
    read = list(dataset.records("texts"))
    assert [row["texts/id"] for row in read] == [node.number for node in nodes]
    assert [row["texts/name"].decode() for row in read] == [node.topic.name for node in nodes]
    words = [tuple(word.decode() for word in row["texts/keywords"]) for row in read]
    assert words == [node.keywords for node in nodes]


def test_the_card_says_how_sizes_are_read(tmp_path: Path) -> None:
    made = released(tmp_path, plausible())
    card = (made.draft / CARD).read_text()
    assert "named and described them from released keywords alone" in card
    assert "standard deviation of 3.87 units" in card
    assert float(DEVIATION) == pytest.approx(3.87, abs=0.01)
    assert f"noisy size below {LEAST} are left out" in card
    assert "| `explorer.html` |" in card
    assert "`parent`, `level`, `name`, `text`, `keywords`, `size`" in card
    assert 'tags: ["insights", "topics", "differential-privacy", "almoner"]' in card
    assert "asked for texts" not in card
    assert "| `clusters_released` | `20` |" in card


def test_without_noise_and_without_a_threshold_nothing_is_said_of_them() -> None:
    record = insights_record()
    plain = record.model_copy(
        update={"facts": {}, "request": record.request | {"parameters": {"clusters": {"count": 3}}}}
    )
    said = " ".join(reading_of_insights(plain))
    assert "standard deviation" not in said
    assert "below" not in said
    assert "the noise hides topics" in said


@pytest.mark.parametrize("name", MAKERS)
def test_no_generated_file_calls_insights_synthetic_texts(tmp_path: Path, name: str) -> None:
    made = released(tmp_path, plausible())
    said = (made.draft / name).read_text()
    assert "Texts written by the language model" not in said
    assert "Texts are written down as they were drawn" not in said
    assert "one block and one batch" not in said


@pytest.mark.slow_except("changes0-each chose a few whose words occur in it")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "each chose a few whose words occur in it"),
        ({"choice": "model"}, "the language model chose a few for each, and it can be wrong"),
        ({"sampled": "0.5"}, "each unit with probability 0.5: these numbers are of the sample"),
    ],
)
def test_the_page_says_what_support_is(changes: dict[str, Any], said: str) -> None:
    asked = UraniaParameters.model_validate(changes)
    request = insights_request(parameters=model_to_json(asked), mechanism="urania")
    record = insights_record(request, second_opinion=second_opinion(planned_events(request), "1e-7"))
    keywords = reading_of_insights(record)[2]
    assert said in keywords
    assert "{" not in keywords
    rule = support_of(record)
    assert rule is not None
    assert f"at least {rule.count} units and a share of {float(rule.share):g} of its size" in keywords


def test_the_report_shows_names_sizes_and_keywords(tmp_path: Path) -> None:
    page = (released(tmp_path, plausible()).draft / REPORT).read_text()
    for words in (
        "The insights",
        "18 insights, named and described by the language model",
        "Insight 1, group, level 1, size 1378",
        "job, essay",
    ):
        assert words in page, words
    assert '<h2 id="texts">The texts</h2>' not in page


def test_texts_keep_their_nodes() -> None:
    nodes = plausible()
    found = texts_of(((text, None) for text in described(nodes)), nodes)
    assert [text.insight for text in found] == list(nodes)
    assert [text.insight for text in texts_of([("a", None)])] == [None]
    assert HEBREW in hostile()[2].keywords


# --- the systems that make insights ----------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [UraniaParameters(), ClioParameters(), ClioParameters(count=20)])
def test_a_release_of_each_system_verifies(tmp_path: Path, asked: UraniaParameters | ClioParameters) -> None:
    """The facts of their plans, and the bounds that their requests name, are those that files and checks know."""
    private = isinstance(asked, UraniaParameters)
    changes: dict[str, Any] = {"parameters": model_to_json(asked), "mechanism": "urania" if private else "simple_clio"}
    if not private:
        changes |= {"governed": False, "epsilon": None, "delta": None}
    request = insights_request(**changes)
    events = planned_events(request)
    opinion = second_opinion(events, "1e-7") if private else None
    record = insights_record(request, second_opinion=opinion, **({} if private else {"lifetime": None}))
    nodes = supported(times=10) if private else plausible()
    made = a_release(tmp_path, record, tuple(described(nodes)), insights=nodes)
    report = verify_release(made.publish(tmp_path / "out").folder, made.key.public_key)
    assert report.holds, [check for check in report.checks if not check.ok]
    card = (made.draft / CARD).read_text()
    assert ("standard deviation of" in card) == ("are left out" in card) == private
    assert ("size_categories" in card) == (private or (isinstance(asked, ClioParameters) and asked.count is not None))
    assert ("counts without noise" in card) == (not private)
