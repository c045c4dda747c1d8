"""Experiments of the papers: which addresses count, who is a member, and which passages are read."""

import pytest

from tasks.evaluation.in_context.demonstrations import Example
from tests.tiny_tokenizer import tiny_tokenizer

SCRIPTS = ("reproductions.email_extraction", "in_context.membership_and_labels", "records", "reproductions.court")


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


def test_records_of_one_setting_are_one_line(bench):
    records = bench["records"]
    cell = records.asdict(records.Cell("private_icl", "1", False, 2, 80, 7, "1", "m"))
    row = {
        "cell": cell,
        "texts": [{"text": "{}", "tokens": 3, "complete": True}, {"text": "x", "tokens": 5, "complete": False}],
    }
    (_, _, line) = records.table([row, row | {"cell": cell | {"samples": 4}}])
    assert line.startswith("| `private_icl` | 1 | no | 4 | 2 | 2: 50 % (")
