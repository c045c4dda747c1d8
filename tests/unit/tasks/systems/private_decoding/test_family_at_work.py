"""Decoders with private rows at work on a tiny model: what is read, when, and on whom each text depends."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from models_db.home import ProjectHome
from models_db.values.requests import Prompt
from tasks.corpus.store import Corpus
from tasks.decoding import loop
from tasks.decoding.loop import GenerationJob
from tasks.inference.engine.session import Session
from tasks.inference.prompt_rendering import NoChatTemplate
from tasks.inference.prompt_spec import PromptSpec
from tasks.mechanisms.core.rng import OperatingSystemRandom
from tasks.systems.few_shot_generation import FewShotGeneration, FewShotGenerationParameters
from tasks.systems.invisible_ink import InvisibleInk, InvisibleInkParameters
from tasks.systems.private_decoding import PrivateDecodingSystem
from tasks.systems.private_icl import PrivateIcl, PrivateIclParameters
from tasks.systems.private_prediction import PrivatePrediction, PrivatePredictionParameters
from tasks.values.results import Generated
from tests.unit.tasks.systems.asking import AMOUNT, ask
from tests.unit.tasks.systems.private_decoding.test_invisible_ink import UNIT, notes_with
from tests.unit.tasks.systems.workshop import Step, Workshop, draw_by_one_number_each, refusing, store

pytestmark = pytest.mark.dear
CONCERNS = (
    "tasks/decoding",
    "tasks/systems",
)

GIVEN: dict[str, Any] = {
    "samples": 4,
    "references": 3,
    "max_new_tokens": 12,
    "temperature": "1",
    "max_reference_tokens": 48,
    "batches": 4,
    "instalment": 4,
}
AMIN = (PrivatePrediction(), PrivatePredictionParameters, {"private_tokens": 6, "threshold": "0.1"})
ICL = (PrivateIcl(), PrivateIclParameters, {})
TANG = (FewShotGeneration(), FewShotGenerationParameters, {})
INK = (InvisibleInk(), InvisibleInkParameters, {})
each_system = pytest.mark.parametrize(
    ("system", "kind", "own"), [AMIN, ICL, TANG, INK], ids=["amin", "icl", "tang", "ink"]
)


def make(
    system: PrivateDecodingSystem[Any],
    kind: Any,
    own: Any,
    workshop: Workshop,
    budget: int = 1,
    *,
    stops: bool = False,
    **context: Any,
) -> Generated:
    changes = context.pop("changes", {})
    wanted = kind.model_validate(GIVEN | own | dict(changes))
    plan = system.plan(ask(wanted, AMOUNT * budget, blocks=workshop.blocks))
    return system.generate(plan, wanted, workshop.context(stops=stops, **context))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Every time private rows are scored goes onto this list (put it into a Workshop)."""
    seen: list[Step] = []
    score = Session.private_logits

    def private_logits(self: Session, candidates: Any = None) -> Any:
        seen.append(("read",))
        return score(self, candidates)

    monkeypatch.setattr(Session, "private_logits", private_logits)
    return seen


@each_system
def test_one_text_for_each_sample(system: Any, kind: Any, own: Any, corpus: Corpus) -> None:
    made = make(system, kind, own, Workshop(corpus), rng=OperatingSystemRandom())
    assert [text.tokens for text in made.texts] == [12] * 4
    assert made.released["batches_per_block"] == "4"


@pytest.mark.slow_except("ink")
@each_system
def test_a_text_ends_strictly_at_the_end_token(system: Any, kind: Any, own: Any, corpus: Corpus) -> None:
    made = make(system, kind, own, Workshop(corpus), stops=True, changes={"max_new_tokens": 300, "temperature": "50"})
    assert all(text.complete == (text.tokens < 300) for text in made.texts)
    assert any(text.complete for text in made.texts)


@each_system
def test_a_model_without_an_end_token_writes_to_the_limit(system: Any, kind: Any, own: Any, corpus: Corpus) -> None:
    """No token ends a text: stated behaviour, every text is cut at the limit and says so."""
    made = make(system, kind, own, Workshop(corpus), stops=False)
    assert not any(text.complete for text in made.texts)


def test_a_draw_of_private_icl_is_armed_before_rows_are_read(corpus: Corpus, reads: list[Step]) -> None:
    workshop = Workshop(corpus, seen=reads)
    make(*ICL, workshop)
    kinds = [step if step[0] == "arm" else step[0] for step in workshop.seen]
    assert kinds == [
        ("arm", 0, 0), "batches", *["read"] * 4, ("arm", 0, 1), *["read"] * 4, ("arm", 0, 2), *["read"] * 4,
    ]  # fmt: skip


def test_both_mechanisms_of_a_run_are_armed_before_its_first_test(corpus: Corpus, reads: list[Step]) -> None:
    workshop = Workshop(corpus, seen=reads)
    made = make(*AMIN, workshop, 1000)  # next to no noise: the tests see that texts of few units are far
    arms = [step for step in workshop.seen if step[0] == "arm"]
    assert arms == [("arm", 0, 0), ("arm", 1, 0), ("arm", 0, 1), ("arm", 1, 1)]
    assert made.released["private_tokens_per_text"] == "6.00"
    before = workshop.seen[: workshop.seen.index(("arm", 0, 1))]
    assert before.count(("read",)) == 4  # four private tokens a text are paid for
    assert workshop.seen.count(("read",)) == 6  # after the last private token nothing is read


@pytest.mark.parametrize("refused", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_a_refused_instalment_keeps_what_it_pays_for_unread(
    corpus: Corpus, reads: list[Step], refused: tuple[int, int]
) -> None:
    workshop = Workshop(corpus, seen=reads)
    with pytest.raises(PermissionError):
        make(*AMIN, workshop, 1000, arm=refusing(refused))
    assert workshop.seen[-1] == ("arm", *refused)
    assert workshop.seen.count(("read",)) == 4 * refused[1]


@pytest.mark.slow_except("removed-ink", "lengthened-icl", "removed-amin", "lengthened-amin")
@each_system
@pytest.mark.parametrize("change", ["removed", "lengthened"])
def test_what_one_unit_does_reaches_one_text_only(
    system: Any, kind: Any, own: Any, corpus: Corpus, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same random numbers, one draw a text and step, one unit changed: all texts but its batch's are the same."""
    draw_by_one_number_each(monkeypatch)
    changed = store(ProjectHome(tmp_path / "home"), tmp_path / "notes.jsonl", notes_with(change))
    _, _, batch = Workshop(corpus).place(UNIT, 4)
    # One token: which random numbers later tokens meet depends on how many the tests before them took.
    length = 1 if system.name == "private_prediction" else 30
    options = {"references": 1, "max_new_tokens": length, "top_k": 40}
    before, after = (
        [text.text for text in make(system, kind, own, Workshop(source), 1000, changes=options).texts]
        for source in (corpus, changed)
    )
    assert {n for n in range(4) if before[n] != after[n]} <= {batch}
    if length > 1:
        assert before[batch] != after[batch]


@each_system
def test_a_batch_without_a_unit_is_decoded_like_any_other(system: Any, kind: Any, own: Any, corpus: Corpus) -> None:
    made = make(system, kind, own, Workshop(corpus), changes={"samples": 40, "batches": 40, "max_new_tokens": 2})
    assert [text.tokens for text in made.texts] == [2] * 40


@pytest.mark.slow_except("ink")
@each_system
def test_more_candidates_than_the_vocabulary_are_the_whole_vocabulary(
    system: Any, kind: Any, own: Any, corpus: Corpus
) -> None:
    huge, all_of_it = (make(system, kind, own, Workshop(corpus), changes={"top_k": k}) for k in (10**6, 0))
    assert huge.texts == all_of_it.texts


@each_system
def test_a_model_without_a_chat_template_is_refused_before_anything_is_armed(
    system: Any, kind: Any, own: Any, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = Workshop(corpus)
    wanted = kind.model_validate(GIVEN | own)
    context = workshop.context()
    monkeypatch.setattr(context.engine.model.tokenizer, "chat_template", None)
    with pytest.raises(NoChatTemplate, match="no chat template"):
        system.generate(system.plan(ask(wanted)), wanted, replace(context))
    assert workshop.seen == []


@each_system
def test_a_base_model_goes_on_with_private_text_in_private_rows_alone(
    system: Any, kind: Any, own: Any, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A completion: the public row and all that stands around a reference are the same whatever the corpus holds."""
    jobs: list[GenerationJob] = []

    def job(*parts: Any) -> GenerationJob:
        jobs.append(GenerationJob(*parts))
        return jobs[-1]

    monkeypatch.setattr(loop, "GenerationJob", job)
    wanted = kind.model_validate(GIVEN | own)
    spec = PromptSpec.of(Prompt(description="Short notes.", form="completion", examples=("No fever.",)))
    context = replace(Workshop(corpus).context(), prompt=spec)
    tokenizer = context.engine.model.tokenizer
    monkeypatch.setattr(tokenizer, "chat_template", None)
    made = system.generate(system.plan(ask(wanted)), wanted, context)
    assert [text.tokens for text in made.texts] == [12] * 4
    beginning = "Short notes.\n###\nNo fever.\n###\n"
    for each in jobs:
        assert each.private is not None
        assert (tokenizer.decode(each.public.tokens), each.public.suffix) == (beginning, ())
        assert (tokenizer.decode(each.private.prefix), tokenizer.decode(each.private.suffix)) == (beginning, "\n###\n")
    assert sum(len(each.references) for each in jobs) == corpus.unit_count()
    assert all(row for each in jobs for row in each.references)


@each_system
def test_a_drawn_separator_ends_a_text_of_every_system(
    system: Any, kind: Any, own: Any, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of a separator, which a model of random weights does not draw, three characters end a text."""
    wanted = kind.model_validate(GIVEN | own)
    ends: list[str | None] = []

    def spy(separator: str, text: str) -> str | None:
        ends.append(separator)
        return text[:3] if len(text) >= 3 else None

    monkeypatch.setattr(loop, "text_before", spy)
    spec = PromptSpec.of(Prompt(description="Short notes.", form="completion"))
    made = system.generate(system.plan(ask(wanted)), wanted, replace(Workshop(corpus).context(), prompt=spec))
    assert set(ends) == {"###"}
    assert all(3 <= text.tokens < 12 and text.complete for text in made.texts)


@each_system
def test_figures_are_means_over_the_texts(system: Any, kind: Any, own: Any, corpus: Corpus) -> None:
    made = make(system, kind, own, Workshop(corpus), changes={"top_k": 20})
    figures = {name: float(value) for name, value in made.released.items()}
    match system.name:
        case "private_prediction":
            mean = sum(text.facts["private_tokens"] for text in made.texts) / 4
            assert figures["private_tokens_per_text"] == pytest.approx(mean, abs=0.01)
        case "invisible_ink":
            assert figures["effective_k"] >= 20
            assert 0 <= figures["share_from_expansion"] < 1
        case _:
            assert set(figures) == {"batches_per_block"}
