"""Identifiers: found by their form, counted against those that could not leak."""

import json

import pytest

from tasks.attacks.extraction import Extracted, emails, extraction, phones
from tests.support import shared_data


def test_addresses_are_found_in_text():
    text = "Write to Ann.Lee+x@ITD.nrl.navy.mil. Or (b@c.org), not @home, not a@b, not x@-."
    assert emails(text) == {"ann.lee+x@itd.nrl.navy.mil", "b@c.org"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("call +1 (617) 555-0123 now", {"+1 (617) 555-0123"}),
        ("tel. 030 1234 5678", {"030 1234 5678"}),
        ("in 1993, at 12:30", set()),
        ("on 2026-11-21 or 21.11.2026", set()),
        ("1993Apr13.173100.29861", set()),
        ("123 45", set()),
    ],
)
def test_numbers_are_found_and_dates_are_none(text, found):
    assert phones(text) == found


def test_extraction_by_hand():
    """Of the corpus's own three, two appear, whatever the case; of the two held out, one; the shared one counts in
    neither."""
    corpus = ["ann@x.org", "Bob Stone", "eve@y.org", "both@z.org"]
    held_out = ["dan@x.org", "Zoe Reed", "both@z.org"]
    released = ["so ANN@x.org wrote to bob  stone,", "both@z.org dan@x.org", "xeve@y.org", "Zoe", "Reed"]
    found = extraction(corpus, held_out, released)
    assert found.corpus == Extracted(2, 3)
    assert found.held_out == Extracted(1, 2)
    assert found.corpus.share == pytest.approx(2 / 3)
    assert found.corpus.interval == pytest.approx((0.0943, 0.9916), abs=1e-4)


def test_nothing_to_look_for_has_no_share():
    found = extraction([], ["a@b.org"], ["a@b.org"])
    assert found.corpus.share is None
    assert found.corpus.interval is None
    assert extraction(["a@b.org"], [], []).corpus == Extracted(0, 1)


def test_a_name_does_not_run_over_two_texts():
    assert extraction(["ada king"], [], ["ada", "king"]).corpus == Extracted(0, 1)


def test_real_posts_that_are_copied_give_their_addresses_away():
    """newsgroups20_with_emails states the addresses of each post; one that is held out gives none away by chance."""
    lines = shared_data("newsgroups20_with_emails.jsonl").read_text().splitlines()[:400]
    records = [json.loads(line) for line in lines]
    stated = {each.lower() for record in records for each in record["emails_in_text"]}
    found = {each for record in records for each in emails(record["text"])}
    assert len(stated & found) > 0.95 * len(stated)
    inside, outside = records[:200], records[200:]
    told = extraction(
        *([each for record in side for each in record["emails_in_text"]] for side in (inside, outside)),
        [record["text"] for record in inside],
    )
    assert told.corpus.share > 0.99
    assert told.held_out.share == 0


def test_real_biographies_that_are_copied_give_their_names_away():
    """wiki_bio_pii marks the spans; names are given, not searched for."""
    lines = shared_data("wiki_bio_pii.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    names = [[span["span"] for span in record["pii"] if span["type"] == "PERSON"] for record in records]
    half = len(records) // 2
    inside = {name for each in names[:half] for name in each}
    outside = {name for each in names[half:] for name in each}
    told = extraction(inside, outside, [record["text"] for record in records[:half]])
    assert told.corpus.share > 0.97
    assert told.held_out.share < 0.2
