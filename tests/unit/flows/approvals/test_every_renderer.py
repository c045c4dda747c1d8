"""A fact is told once: every subject through every renderer, for every audience."""

import html
import io
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from rich.console import Console

from cli.framework.review_screen import render_sections
from flows.approvals.build_review import build_spend_review
from flows.approvals.price_sections import price_sections
from flows.approvals.proposal_review import build_proposal_review
from flows.reports.ledger_facts import ledger_parts
from models_db.services import requests
from models_db.values.amounts import Amount
from models_db.values.canonical_json import digest, encode_canonical
from tasks.release.sections import Audience, Section, Warnings, sections_for, sections_to_json, sections_to_text
from tasks.reporting.html_report import page, sections_html
from tasks.reporting.report_parts import AudienceFact, contents
from tests.unit.flows.approvals.test_price_sections import PRICE
from tests.unit.flows.approvals.test_proposal_review import a_proposal
from tests.unit.flows.asking import BUDGET, a_question, produced
from tests.unit.tasks.publishing.builders import a_request
from tests.unit.tasks.reporting.a_report import the_facts

NEARLY_SPENT = {"rho_spent": str(int(BUDGET["rho_cap"]) * 9 // 10)}
QUESTION = a_question(
    budget=NEARLY_SPENT,
    request=a_request(population=None),
    notices=("almoner itself has changed since this request: a run would be refused.", "<b>Careful</b> & slowly."),
    given=({"by": "sue", "decision": "reject", "reason": "no", "counts": True},),
    expires_at="2020-01-01T00:00:00.000000Z",
)


def a_standing_authorisation() -> Iterable[Section]:
    configuration = requests.configuration(json.loads(encode_canonical(a_request(population=None))))
    proposal = {"config_digest": digest(configuration)}
    return build_proposal_review(a_proposal("standing", proposal=proposal, configuration=configuration), None).sections


AUDIENCES: tuple[Audience, ...] = ("reader", "steward")
SUBJECTS: dict[str, Callable[[Path], Iterable[Section]]] = {
    "price": lambda folder: price_sections(PRICE | {"warnings": ["WEAK PROMISE: delta.", "<b>Careful</b> & slowly."]}),
    "request at the spend gate": lambda folder: build_spend_review(QUESTION, None).sections,
    "request at the publish gate": lambda folder: produced(folder, QUESTION).sections,
    "proposal of a cap": lambda folder: build_proposal_review(a_proposal("cap"), None).sections,
    "proposal of a standing authorisation": lambda folder: a_standing_authorisation(),
    "retraction": lambda folder: build_proposal_review(a_proposal("retraction"), None).sections,
}


def terminal(sections: Iterable[Section]) -> str:
    console = Console(width=4000, file=io.StringIO(), record=True, color_system=None)
    console.print(*render_sections(sections))
    return console.export_text()


def fragment(sections: Iterable[Section]) -> str:
    return html.unescape(sections_html("A subject", sections))


def report(sections: Iterable[Section]) -> str:
    facts = [*the_facts(), *(AudienceFact("ledger", section) for section in sections)]
    return html.unescape(page(contents("steward", facts)))


RENDERERS: dict[str, Callable[[Iterable[Section]], str]] = {
    "terminal": terminal,
    "lines": lambda sections: sections_to_text("A subject", sections),
    "HTML": fragment,
    "report": report,
    "JSON": lambda sections: str(sections_to_json(sections)),
}


def in_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("audience", AUDIENCES)
@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_warning_of_every_subject_is_shown(
    tmp_path: Path, subject: str, renderer: str, audience: Audience
) -> None:
    sections = tuple(SUBJECTS[subject](tmp_path))
    visible = sections_for(sections, balances=audience == "steward")
    shown = in_one_line(RENDERERS[renderer](visible))
    warned = [line for section in sections if isinstance(section, Warnings) for line in section.lines]
    withheld = set(warned) - {line for section in visible if isinstance(section, Warnings) for line in section.lines}
    assert all((in_one_line(line) in shown) == (line not in withheld) for line in warned)
    assert warned or subject == "retraction"
    nearly_spent = {line for line in warned if "is used up" in line}
    assert bool(nearly_spent) == subject.startswith("request")
    assert withheld == (nearly_spent if audience == "reader" else set())


@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name not in ("price", "retraction")])
def test_a_balance_is_for_stewards_alone(tmp_path: Path, subject: str) -> None:
    """A price is made without the balance for who may not see it (`Quote.to_json`)."""
    sections = tuple(SUBJECTS[subject](tmp_path))
    shown = {
        audience: sections_to_text("A subject", sections_for(sections, balances=audience == "steward"))
        for audience in AUDIENCES
    }
    said = "epsilon spent so far" if "cap" in subject else "Lifetime budget of clinic"
    assert [said in shown[audience] for audience in AUDIENCES] == [False, True]


def test_a_report_leaves_no_warning_of_the_gate_out(tmp_path: Path) -> None:
    review = produced(tmp_path, QUESTION)
    told = {one for one in ledger_parts(QUESTION, review, Amount(), ()) if isinstance(one, Warnings)}
    assert told == {one for one in review.sections if isinstance(one, Warnings)}
    assert len(told) == 2
