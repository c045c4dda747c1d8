"""Experiments of the papers: which addresses count, who is a member, and which passages are read."""

import pytest

SCRIPTS = (
    "reproductions.email_extraction",
    "records",
)


@pytest.fixture(scope="module")
def mail(bench):
    return bench["reproductions.email_extraction"]


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


def test_records_of_one_setting_are_one_line(bench):
    records = bench["records"]
    cell = records.asdict(records.Cell("private_icl", "1", False, 2, 80, 7, "1", "m"))
    row = {
        "cell": cell,
        "texts": [{"text": "{}", "tokens": 3, "complete": True}, {"text": "x", "tokens": 5, "complete": False}],
    }
    (_, _, line) = records.table([row, row | {"cell": cell | {"samples": 4}}])
    assert line.startswith("| `private_icl` | 1 | no | 4 | 2 | 2: 50 % (")
