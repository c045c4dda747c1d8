"""A confirmation confirms: every form of `almoner approve`, under every policy, compares the typed name."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest

import cli.framework.prompts
from tests.integration.story import Almoner, Told
from tests.integration.test_policy import outside_its_bounds
from tests.support import fetch

CONCERNS = ("cli/framework", "cli/commands", "flows/approvals")

FORMS = ("spend", "publish", "proposal", "override", "elsewhere", "in a second home", "brought")
ANSWERS = {
    "nothing": None, "empty": "", "blank": "  ", "another name": "wrong-name", "another dataset": "public",
    "yes": "yes", "another case": "CLINIC", "a look-alike": "сlinic", "a longer name": "clinic2", "right": "clinic",
}  # fmt: skip
"""What is typed, piped or given. One of them confirms."""
CHANNELS = ("terminal", "pipe", "--confirm")
WRONG = [what for what in ANSWERS if what != "right"]


def trials(form: str) -> list[tuple[str, str]]:
    """Channels and wrong answers to try: all of them together for one form, for the others each with some other.

    The comparison is one function: a form can only fail to call it, or to heed it, for a channel or for an answer.
    """
    together = list(product(CHANNELS, WRONG))
    first = FORMS.index(form)
    return together if form == "spend" else [pair for n, pair in enumerate(together) if n % 3 == (first + n // 9) % 3]


@dataclass(frozen=True)
class Form:
    """One way to approve, ready to be typed; `mark` is what it would change."""

    name: str
    line: str
    mark: Callable[[], object]


def decisions(almoner: Almoner) -> object:
    return fetch(almoner.database, "SELECT id, decision FROM approval ORDER BY id")


def prepared(almoner: Almoner, form: str) -> Form:
    """Whatever the form needs, up to the confirmation."""
    ask, signed = almoner.folder / "ask.json", almoner.folder / "signed.json"
    if form == "proposal":
        almoner.type('dataset cap clinic --epsilon 9 --delta 1e-6 --reason "one more study"')
        return Form(form, "approve 1 --gate proposal --reason agreed", lambda: decisions(almoner))
    if form in ("elsewhere", "in a second home", "brought"):
        almoner.type(f"approve 1 --gate spend --export {ask}")
    if form == "elsewhere":
        return Form(form, f"approve --from {ask} --reason agreed --export {signed}", signed.exists)
    if form == "in a second home":
        return Form(form, f"approve --from {ask} --reason agreed", lambda: decisions(almoner))
    if form == "brought":
        almoner.type(f"approve --from {ask} --reason agreed --export {signed} --confirm clinic")
        return Form(form, f"approve 1 --gate spend --import {signed}", lambda: decisions(almoner))
    gate = "publish" if form == "override" else form
    why = "--override 'a pilot'" if form == "override" else "--reason agreed"
    return Form(form, f"approve 1 --gate {gate} {why}", lambda: decisions(almoner))


def answered(almoner: Almoner, line: str, channel: str, answer: str | None, patch: pytest.MonkeyPatch) -> Told:
    """The line typed, and the answer given through one of the channels."""
    with patch.context() as inside:
        inside.setattr(cli.framework.prompts, "is_interactive", lambda: channel == "terminal")
        if channel == "--confirm":
            given = "" if answer is None else f" --confirm '{answer}'"
            return almoner.type(f"{line}{given} --json", None, piped=None)
        return almoner.type(f"{line} --json", None, piped=None if answer is None else f"{answer}\n")


@pytest.fixture
def at_gate(almoner: Almoner, request: pytest.FixtureRequest) -> tuple[Almoner, Form]:
    """A home in which one person holds every role, and that form of approval waits; a second dataset is beside it."""
    form: str = request.param
    if form == "override":
        outside_its_bounds(almoner)
    elif form == "publish":
        almoner.produced()
    else:
        almoner.submitted()
    almoner.type("dataset register public --unit id --epsilon 1 --delta 1e-6")
    return almoner, prepared(almoner, form)


@pytest.mark.slow_except("override", "publish", "elsewhere")
@pytest.mark.parametrize("at_gate", FORMS, indirect=True)
def test_only_the_name_itself_confirms(at_gate: tuple[Almoner, Form], monkeypatch: pytest.MonkeyPatch) -> None:
    almoner, form = at_gate
    before, tried = form.mark(), trials(form.name)
    for channel, what in tried:
        answer = ANSWERS[what]
        told = answered(almoner, form.line, channel, answer, monkeypatch)
        wrong = answer is not None and answer.strip() != ""
        assert (told.code, told.json["error"]) == ((1, "ConfirmationWrong") if wrong else (2, "ConfirmationMissing"))
        assert form.mark() == before, (channel, what)
    assert {channel for channel, _ in tried} == set(CHANNELS)
    assert {what for _, what in tried} == set(WRONG)
    assert len(tried) == (27 if form.name == "spend" else 9)
    assert almoner.type(f"{form.line} --confirm clinic", piped="wrong-name\n").code == 0
    assert form.mark() != before
