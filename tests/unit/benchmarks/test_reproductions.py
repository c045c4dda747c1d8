"""Experiments of the papers: which addresses count, who is a member, and which passages are read."""

import pytest

from tasks.evaluation.in_context.demonstrations import Example
from tests.tiny_tokenizer import tiny_tokenizer

SCRIPTS = (
    "reproductions.email_extraction",
    "in_context.membership_and_labels",
    "in_context.released_membership",
    "records",
    "reproductions.court",
)


@pytest.fixture(scope="module")
def mail(bench):
    return bench["reproductions.email_extraction"]


@pytest.fixture(scope="module")
def membership(bench):
    return bench["in_context.membership_and_labels"]


def test_an_address_of_both_halves_is_of_neither(mail):
    records = [{"author": f"a{n}", "text": f"Write to u{n}@x.org soon."} for n in range(20)]
    posts = mail.Posts.of(records)
    assert (len(posts.read), len(posts.others)) == (10, 10)
    assert not mail.addresses(posts.read) & mail.addresses(posts.others)
    common = [record | {"text": record["text"] + " Or to all@x.org."} for record in records]
    assert mail.Posts.of(common) == mail.Posts((), ())
    assert mail.Posts.of([{"author": "a", "text": "no address"}]) == mail.Posts((), ())


def test_the_surroundings_of_an_address_are_whole_words_and_hold_it(mail):
    text = "word " * 100 + "anna@example.org " + "more " * 100
    found = mail.surroundings(text)
    assert mail.addresses([found]) == {"anna@example.org"}
    assert set(found.split()) == {"word", "more", "anna@example.org"}
    assert len(found) < mail.BEFORE + mail.AFTER + 20
    assert mail.surroundings("to anna@example.org") == "to anna@example.org"


def test_texts_with_an_address_are_counted_by_whose_it_is(mail):
    posts = mail.Posts(("a@x.org b@x.org",), ("c@x.org",))
    found = mail.counted(["it is A@x.org.", "a@x.org and b@x.org", "c@x.org", "d@x.org", "a@x", ""], posts)
    assert (found.texts, found.any, found.read, found.others) == (6, 4, 2, 1)
    (head, rule, row) = mail.table([{"system": "s", "epsilon": "4", "texts": 6, "any": 4, "read": 2, "others": 1}])
    assert head.count("|") == rule.count("|") == row.count("|")
    assert row.startswith("| s | 4 | 6 | 4: 67 % (30 to 90) | 2: 33 % (")


PAIRS = [(Example(f"in {number}", "x"), Example(f"out {number}", "x")) for number in range(3)]


def test_where_labels_tell_nothing_both_sides_have_equal_ones(membership):
    sides = [[Example(f"{number}{label}", label) for label in "abcd"] for number in range(2 * membership.PROMPTS)]
    rounds = membership.equal_rounds(sides)
    assert len(rounds) == membership.PROMPTS
    for each in rounds:
        assert [example.label for example in each.members] == [example.label for example in each.nonmembers]
    assert {each.shown[-1].label for each in rounds} == set("abcd")
    mixed = [example for side in sides for example in side]
    for drawn in (rounds, membership.any_rounds(mixed)):
        assert all(sorted(each.shown, key=str) == sorted(each.members, key=str) for each in drawn)
        texts = [example.text for each in drawn for example in (*each.members, *each.nonmembers)]
        assert len(set(texts)) == len(texts) == 8 * membership.PROMPTS


def test_scores_of_both_sides_are_kept_apart(membership):
    rounds = [membership.PromptRound([pair[0]], [pair[0]], [pair[1]]) for pair in PAIRS]
    line = membership.asked(lambda shown, items: [float(item in shown) for item in items], rounds)
    assert line == {"prompts": 3, "members": [1.0] * 3, "nonmembers": [0.0] * 3}
    (*_, row) = membership.table([{"labels": "any labels", **line}])
    assert row.startswith("| any labels | 3 | 3, 3 | 1.000 (")


def test_members_of_a_release_are_the_units_behind_its_texts(bench):
    released = bench["in_context.released_membership"]
    names = list(released.public_labels(released.TASK).values())
    private = [Example(f"unit {number}", names[number % 4]) for number in range(160)]
    behind = released.units_behind(private, {"samples": 8, "references": 5})
    assert len(behind) == 8
    assert all(len({unit.label for unit in units}) == 1 for units in behind)
    texts = [unit.text for units in behind for unit in units]
    assert len(set(texts)) == len(texts) > 20
    shown = [Example(f"text {number}", units[0].label) for number, units in enumerate(behind)]
    unread = [Example(f"unread {number}", names[number % 4]) for number in range(200)]
    rounds = list(released.rounds(shown, behind, unread))
    assert len(rounds) == 2
    for each in rounds:
        assert sorted(text.label for text in each.shown) == sorted(names)
        assert [unit.label for unit in each.members] == [unit.label for unit in each.nonmembers]
        of = {text.label: behind[shown.index(text)] for text in each.shown}
        assert all(unit in of[unit.label] for unit in each.members)
    outside = [unit.text for each in rounds for unit in each.nonmembers]
    assert len(set(outside)) == len(outside)
    with pytest.raises(ValueError, match="these units"):
        list(released.rounds(shown[::-1], behind, unread))


def test_a_release_is_attacked_label_by_label_and_its_control_comes_first(bench):
    released = bench["in_context.released_membership"]
    names = list(released.public_labels(released.TASK).values())
    prompt = {"labels": names * 3, "members": [1.0, 0.0, 1.0, 0.0] * 3, "nonmembers": [0.5] * 12}
    lines = [{"column": column, "prompts": [prompt]} for column in ("private_icl, epsilon 8", "public_only, release 2")]
    (head, rule, control, row) = released.table(lines)  # of another number: no control of its own
    assert head.count("|") == rule.count("|") == row.count("|")
    assert control.startswith("| public only, release 2 | 1 | 12, 12 | 0.500 (")
    assert [cell.split(" ")[1] for cell in row.split("|")[5:9]] == ["1.000", "0.000", "1.000", "0.000"]
    lines[1]["column"] = "public_only"
    assert list(released.table(lines))[-1].startswith("| the same less public only |  |  | 0.000 [0.000, 0.000] |")
    surer = {"column": "private_icl", "prompts": [prompt | {"members": [1.0] * 12}]}
    more, low, high = released.difference(surer, lines[1], set(names))
    assert (more, low > 0, high < 1) == (0.5, True, True)
    assert released.auc([1.0, 2.0], [1.0, 0.0, 3.0, 1.0]) == 0.5 * (0.5 + 0.75)


def test_passages_are_of_other_cases_than_those_that_are_read_along(bench):
    court = bench["reproductions.court"]
    documents = [
        " ".join(f"case{case}" for _ in range(3 * court.PASSAGE_WORDS + 5)) for case in range(court.TEXTS + 30)
    ]
    assert [len(each.split()) for each in court.passages(documents[0])] == [court.PASSAGE_WORDS] * 3
    tokenizer = tiny_tokenizer()
    chosen = court.choose(tokenizer, documents)
    assert len(chosen) == court.TEXTS
    held = [tokenizer.decode(each.tokens).split()[0] for each in chosen]
    read = {tokenizer.decode(reference).split()[0] for each in chosen for reference in each.references}
    assert len(set(held)) == court.TEXTS
    assert not set(held) & read


def test_the_control_reads_the_same_passages_behind_other_texts(bench):
    court, tokenizer = bench["reproductions.court"], tiny_tokenizer()
    documents = [" ".join([f"case{case}"] * 3 * court.PASSAGE_WORDS) for case in range(court.TEXTS + 30)]
    chosen = court.choose(tokenizer, documents)
    others = [f"review{number} of a shop" for number in range(court.TEXTS * court.USUAL_ROWS)]
    found = list(court.foreign(tokenizer, chosen, others))
    assert [each.tokens for each in found] == [each.tokens for each in chosen]
    read = [tokenizer.decode(reference).split()[0] for each in found for reference in each.references]
    assert sorted(read) == sorted(text.split()[0] for text in others)


def test_records_of_one_setting_are_one_line(bench):
    records = bench["records"]
    cell = records.asdict(records.Cell("private_icl", "1", False, 2, 80, 7, "1", "m"))
    row = {
        "cell": cell,
        "texts": [{"text": "{}", "tokens": 3, "complete": True}, {"text": "x", "tokens": 5, "complete": False}],
    }
    (_, _, line) = records.table([row, row | {"cell": cell | {"samples": 4}}])
    assert line.startswith("| `private_icl` | 1 | no | 4 | 2 | 2: 50 % (")
