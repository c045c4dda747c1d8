"""Keyphrase seeding at work: its plan and price, what a model is told, what is released once, and its edges."""

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models_db.home import ProjectHome
from models_db.values.amounts import Amount
from models_db.values.requests import ReleaseRequest, model_to_json
from tasks.accounting.zcdp import release_amount
from tasks.common.array_encoding import sums_json, sums_of_json
from tasks.decoding.run_context import NoEngine, ReleaseSteps, RunContext, StepLost
from tasks.inference.backends.text_backend import Completion, LocalBackend, Sampling
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.prompt_spec import PromptSpec
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.core.uncharged import loss_paid_by_parent
from tasks.systems.keyphrase_seeding import KeyphraseSeeding
from tasks.systems.keyphrase_seeding import run as keyphrase_run
from tasks.systems.keyphrase_seeding.run import KeyphraseRun, ReleasedValues
from tasks.systems.keyphrase_seeding.stages import KeyphraseParameters, Stages
from tasks.systems.registry import system_for
from tasks.text.public_topics import PUBLIC_TOPICS
from tasks.values.results import Generated
from tests.faults import FaultyLetters, waits
from tests.refusals import refusal
from tests.tiny_embedder import Letters
from tests.unit.tasks.systems.asking import ask
from tests.unit.tasks.systems.workshop import NoCorpus, Workshop, refusing, store
from tests.watched_journal import WatchedJournal

pytestmark = pytest.mark.dear

SYSTEM = KeyphraseSeeding()
WORDS = ["kettle", "tomato", "violin", "radio"]
SECRET = "zanzibarquux"
LONG = [f"{letter * 55} {letter}" for letter in "abcdef"]
NOTES = [
    {"patient_id": f"p{unit}", "text": f"My {WORDS[unit % 4]} broke. {SECRET}{unit}", "ward": "ab"[unit % 2]}
    for unit in range(40)
]
PUBLIC = {"method": "public", "words": [*WORDS, "giraffe", "mountain"]}
MUCH = release_amount("60", "1e-6", Fraction(1, 10))


def asked(**changes: Any) -> KeyphraseParameters:
    given = {"samples": 6, "references": 40, "features": 30, "phrases_per_text": 2, "vocabulary": PUBLIC}
    return KeyphraseParameters.model_validate(given | changes)


PRIVATE = asked(vocabulary={"method": "private", "size": 10, "per_unit": 2})
COUNTED = asked(vocabulary=PUBLIC | {"method": "counted", "size": 3, "per_unit": 2})
LABELLED = asked(labels=["a", "b", "nobody"])
ITERATIVE = asked(sequences="iterative")


@dataclass
class Recording:
    """A backend that writes down what it is told."""

    name: str = "recording"
    external: bool = True
    prompts: list[str] = field(default_factory=list)
    told: list[Sampling] = field(default_factory=list)

    def require_ready(self, prompts: Sequence[str], how: Sampling) -> None:
        """Always."""

    def write(self, prompts: Sequence[str], how: Sampling) -> list[Completion]:
        self.prompts += prompts
        self.told.append(how)
        return [Completion(f"text {number}", 2, True) for number in range(len(prompts))]


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyphrase_run, "load_embedder", lambda *_: Letters())


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(store(ProjectHome(tmp_path / "home"), tmp_path / "notes.jsonl", NOTES, "ward"))


def shop_of(tmp_path: Path, notes: Any) -> Workshop:
    return Workshop(store(ProjectHome(tmp_path / "home"), tmp_path / "notes.jsonl", notes, "ward"))


def run(
    shop: Workshop, wanted: KeyphraseParameters, amount: Amount = MUCH, **context: Any
) -> tuple[Generated, Recording]:
    backend = Recording()
    worked: Any = NoEngine("external:somebody")
    given = replace(shop.context(OS_RANDOM), engine=worked, outside=backend, **context)
    return SYSTEM.generate(SYSTEM.plan(ask(wanted, amount)), wanted, given), backend


def test_public_words_are_embedded_again_after_a_temporary_fault(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_faults, _ = run(workshop, COUNTED)
    arms = [step for step in workshop.seen if step[0] == "arm"]
    workshop.seen.clear()
    embed = FaultyLetters(lambda text: text in COUNTED.vocabulary.words)
    monkeypatch.setattr(keyphrase_run, "load_embedder", lambda *_: embed)
    with waits() as seconds:
        made, _ = run(workshop, COUNTED)
    assert (len(made.texts), seconds) == (len(without_faults.texts), [10])
    assert [step for step in workshop.seen if step[0] == "arm"] == arms


def test_a_temporary_fault_among_private_phrases_ends_the_run(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = {"", *COUNTED.vocabulary.words}
    monkeypatch.setattr(keyphrase_run, "load_embedder", lambda *_: FaultyLetters(lambda text: text not in public))
    with waits() as seconds, pytest.raises(OSError):
        run(workshop, COUNTED)
    assert seconds == []


def test_it_is_a_system_that_shows_no_private_text():
    for kind in ("synthetic_corpus", "demonstrations"):
        assert isinstance(system_for("keyphrase_seeding", kind), KeyphraseSeeding)
    assert SYSTEM.shows_private_text is False


@pytest.mark.parametrize(
    ("wanted", "mechanisms"),
    [
        (asked(), ["kde"]),
        (ITERATIVE, ["kde"]),
        (COUNTED, ["set_histogram", "kde"]),
        (PRIVATE, ["gaussian_selection", "kde"]),
    ],
)
def test_the_plan_spends_the_amount_and_no_more(wanted, mechanisms):
    plan = SYSTEM.plan(ask(wanted, MUCH, blocks=3))
    assert [invocation.event.mechanism for invocation in plan.invocations] == mechanisms
    assert plan.loss.fits(MUCH)
    assert plan.loss.rho > 0.99 * MUCH.rho
    assert (plan.blocks, plan.samples, plan.amount) == ((0, 1, 2), 6, MUCH)
    assert all(len(invocation.instalments) == 1 for invocation in plan.invocations)
    assert plan == SYSTEM.plan(ask(wanted, MUCH, blocks=3))


def test_a_unit_costs_time_for_each_stage_that_reads_it_and_none_where_a_release_is_extended():
    once, ranked = SYSTEM.seconds_per_unit(asked()), SYSTEM.seconds_per_unit(asked(ranked_by="embedding"))
    assert 0 < once < ranked < SYSTEM.seconds_per_unit(asked(ranked_by="embedding", embedder="never measured"))
    assert SYSTEM.seconds_per_unit(asked(extends={"release": 1, "artifact": "a" * 64, "values": "b" * 64})) == 0


def test_only_a_selected_vocabulary_may_fail():
    assert SYSTEM.failure_delta_share(PRIVATE) == Fraction(1, 10)
    assert SYSTEM.failure_delta_share(COUNTED) == SYSTEM.failure_delta_share(asked()) == 0


def test_iterative_sequences_share_rho_evenly():
    one, many = (Stages.of(wanted, MUCH).sketches for wanted in (asked(), ITERATIVE))
    assert (one.positions, many.positions) == (1, 2)
    assert float(many.sigma / one.sigma) == pytest.approx(2**0.5, rel=1e-3)


def test_the_facts_tell_what_a_split_buys():
    facts = SYSTEM.plan(ask(PRIVATE, release_amount("6", "1e-6", Fraction(1, 10)))).facts
    chosen, half, twice = (
        facts[f"split, {name}"] for name in ("chosen", "half for the vocabulary", "twice for the vocabulary")
    )
    assert chosen.startswith("30% of rho")
    assert half.startswith("15% of rho")
    assert twice.startswith("60% of rho")
    noise = [float(said.split("noise of a score ")[1].split()[0]) for said in (half, chosen, twice)]
    units = [int(said.split("where ")[1].split()[0]) for said in (half, chosen, twice)]
    assert noise == sorted(noise)
    assert units == sorted(units, reverse=True)
    stages = Stages.of(PRIVATE, release_amount("6", "1e-6", Fraction(1, 10)))
    assert noise[1] == pytest.approx(float(stages.sketches.sigma) / 40 * math.sqrt(8) * 100, abs=0.001)
    greedy = asked(vocabulary=PRIVATE.vocabulary, shares={"vocabulary": "6", "sketches": "4"})
    assert SYSTEM.plan(ask(greedy, MUCH)).facts["split, twice for the vocabulary"] == "leaves nothing for the sketches"
    assert not [name for name in SYSTEM.plan(ask(asked(), MUCH)).facts if name.startswith("split")]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [(asked(), "NoiseInvalid"), (PRIVATE, "KeywordBudgetTooSmall"), (COUNTED, "VocabularyBudgetTooSmall")],
)
def test_too_small_a_budget_is_a_named_error_of_the_plan(wanted, error):
    with refusal(error) as refused:
        SYSTEM.plan(ask(wanted, Amount(2, 0)))
    assert refused.value.advice


def test_a_tiny_budget_shows_in_the_trade_too():
    little = Amount(rho=10**8, delta=10**9)
    said = SYSTEM.plan(ask(PRIVATE, little)).facts
    assert all(
        "rho for the vocabulary" in said[name] or "not to be had" in said[name] for name in said if "split" in name
    )


def test_fewer_texts_than_labels_are_refused():
    with refusal("LabelWithoutSample"):
        SYSTEM.plan(ask(asked(samples=2, labels=["a", "b", "c"]), MUCH))


@pytest.mark.parametrize(
    "wanted", [asked(), ITERATIVE, COUNTED, PRIVATE, LABELLED], ids=lambda one: one.vocabulary.method
)
def test_texts_are_written_from_released_values(workshop, wanted):
    made, backend = run(workshop, wanted)
    assert len(made.texts) == len(backend.prompts) == 6
    known = {*PUBLIC["words"], *PUBLIC_TOPICS, "kettle broke", "tomato broke", "violin broke", "radio broke", "broke"}
    for prompt in backend.prompts:
        assert seeds_in(prompt, known) == 2
    assert SECRET not in "".join(backend.prompts)


def test_what_nobody_but_one_said_never_reaches_a_prompt(workshop):
    """A canary of every unit, with a vocabulary that is selected from the units themselves."""
    made, backend = run(workshop, PRIVATE.model_copy(update={"samples": 60}))
    assert int(made.released["keywords_released"]) > 0
    assert not [note for note in NOTES if note["text"].split()[-1] in "".join(backend.prompts)]


def test_everything_is_paid_before_anything_is_read(workshop):
    run(workshop, PRIVATE)
    kinds = [step for step in workshop.seen if step[0] != "arm" or step[1] >= 0]
    assert kinds[0] == ("arm", 0, 0)
    assert kinds[1][0] == "each"
    assert [step[:2] for step in kinds if step[0] == "arm"] == [("arm", 0), ("arm", 1)]


def test_a_refused_payment_reads_nothing():
    shop = Workshop(NoCorpus())
    with pytest.raises(PermissionError):
        run(shop, asked(), arm=refusing((0, 0)))


def test_texts_have_their_labels_and_are_told_them(workshop):
    made, backend = run(workshop, LABELLED, prompt=PromptSpec("notes", public="{description}. About {label}."))
    labels = [text.label for text in made.texts]
    assert labels == ["a", "a", "b", "b", "nobody", "nobody"]  # nobody's label has texts, too
    assert [prompt.split("\n")[0] for prompt in backend.prompts] == [f"notes. About {label}." for label in labels]


def test_a_system_prompt_of_each_label_is_asked_apart(workshop):
    spec = PromptSpec("notes", system="You know {label}.", public="{description}.")
    made, backend = run(workshop, LABELLED, prompt=spec)
    assert [how.system for how in backend.told] == ["You know a.", "You know b.", "You know nobody."]
    assert [text.text for text in made.texts] == ["text 0", "text 1"] * 3


def test_the_local_model_writes_too(workshop):
    wanted = asked(samples=2, max_new_tokens=6)
    context = workshop.context(OS_RANDOM)
    made = SYSTEM.generate(SYSTEM.plan(ask(wanted, MUCH)), wanted, context)
    assert len(made.texts) == 2
    assert all(text.text for text in made.texts)


@pytest.mark.parametrize("wanted", [asked(samples=2, max_new_tokens=5000), asked(samples=2, max_new_tokens=1024)])
def test_a_model_that_cannot_be_asked_is_found_out_before_anything_is_paid(workshop, wanted):
    with pytest.raises(ContextTooLong):
        SYSTEM.generate(SYSTEM.plan(ask(wanted, MUCH)), wanted, workshop.context(OS_RANDOM))
    assert workshop.seen == []


def test_phrases_for_which_a_model_has_no_room_are_left_out(workshop, monkeypatch):
    """They were paid for: a model that cannot read all of them is told some, at last none."""
    context = workshop.context(OS_RANDOM)
    long = asked(samples=3, phrases_per_text=4, max_new_tokens=6, vocabulary={"method": "public", "words": LONG})
    bare = len(context.prompt.fill("public", None))
    for room, told in ((10, 0), (100, 1), (150, 2), (900, 4)):
        heard: list[str] = []

        def write(self, prompts, how, room=room, heard=heard):
            if max(map(len, prompts)) > bare + room:
                raise ContextTooLong(bare + room + 1, bare + room)
            heard.extend(prompts)
            return [Completion("text", 1, True) for _ in prompts]

        monkeypatch.setattr(LocalBackend, "write", write)
        made = SYSTEM.generate(SYSTEM.plan(ask(long, MUCH)), long, context)
        assert len(made.texts) == 3
        assert [sum(word in prompt for word in LONG) for prompt in heard] == [told] * 3


def test_labels_follow_their_own_units(workshop):
    """Kettles and violins are of ward a, tomatoes and radios of ward b; nearly without noise."""
    wanted = asked(labels=["a", "b"], samples=80, phrases_per_text=1, features=400, bandwidth="0.2")
    made, backend = run(workshop, wanted, Amount(10**16, 0))
    own = {"a": {"kettle", "violin"}, "b": {"tomato", "radio"}}
    right = [told(prompt) in own[str(text.label)] for text, prompt in zip(made.texts, backend.prompts, strict=True)]
    assert sum(right) > 0.7 * len(right)


def told(prompt: str) -> str:
    """The phrases that a prompt in the default wording asks for."""
    return prompt.split("\n\n")[0].removeprefix("Write a text about ").split(". Its category is ")[0].rstrip(".")


def seeds_in(prompt: str, words: Iterable[str]) -> int:
    """How many of these words a prompt asks for; 0 if it asks for anything else. Some topics have commas in them."""
    left, found = told(prompt), 0
    for word in sorted(words, key=len, reverse=True):
        found += word in left
        left = left.replace(word, "", 1)
    return found if not left.replace(", ", "") else 0


SILENT = [{"patient_id": "p", "text": " . ! ", "ward": "a"}]


@pytest.mark.parametrize("wanted", [asked(), PRIVATE, COUNTED, ITERATIVE, LABELLED])
def test_nobody_with_anything_to_say_is_no_error(tmp_path, wanted):
    made, backend = run(shop_of(tmp_path, SILENT), wanted)
    assert len(made.texts) == len(backend.prompts) == 6


def test_an_empty_vocabulary_falls_back_to_public_topics_and_says_so(tmp_path):
    made, backend = run(shop_of(tmp_path, SILENT), PRIVATE)
    assert made.released["keywords_released"] == "0"
    assert made.released["public_topics_added"] == str(len(PUBLIC_TOPICS))
    for prompt in backend.prompts:
        assert len([topic for topic in PUBLIC_TOPICS if topic in prompt]) >= 2


@pytest.mark.parametrize(("size", "added"), [(3, 0), (400, len(PUBLIC_TOPICS))])
def test_a_vocabulary_with_room_for_more_is_filled_up_with_public_topics(workshop, size, added):
    made, _ = run(workshop, asked(vocabulary={"method": "private", "size": size, "per_unit": 2}), MUCH)
    assert 0 < int(made.released["keywords_released"]) <= size
    assert made.released["public_topics_added"] == str(added)


def test_scores_that_are_all_noise_are_drawn_uniformly_and_counted(tmp_path):
    wanted = asked(samples=300, least_deviations="10", phrases_per_text=1)
    made, backend = run(shop_of(tmp_path, SILENT), wanted)
    assert made.released["phrases_drawn_without_a_score"] == "300"
    drawn = [told(prompt) for prompt in backend.prompts]
    assert {drawn.count(word) > 15 for word in PUBLIC["words"]} == {True}


def test_labels_that_were_not_kept_are_refused_before_anything_is_paid(tmp_path):
    shop = Workshop(store(ProjectHome(tmp_path / "home"), tmp_path / "notes.jsonl", NOTES))
    with refusal("LabelsNotKept"):
        run(shop, LABELLED)
    assert shop.seen == []


class Kept:
    """The journal of a run: what a later attempt finds."""

    def __init__(self) -> None:
        self.released: dict[str, Any] = {}
        self.begun: set[str] = set()

    def steps(self, paid: int) -> ReleaseSteps:
        return ReleaseSteps(
            paid=(1,) * paid + (0,) * (3 - paid),
            released=json.loads(json.dumps(self.released)),
            begun=frozenset(self.begun),
        )

    @property
    def journal(self) -> WatchedJournal:
        return WatchedJournal(drawing=self.begun.add, result=self.released.__setitem__)


PARENT = {"release": 4, "artifact": "a" * 64, "values": "b" * 64}


def extending(wanted: KeyphraseParameters, **changes: Any) -> KeyphraseParameters:
    return KeyphraseParameters.model_validate(model_to_json(wanted) | {"extends": PARENT} | changes)  # type: ignore[operator]


@pytest.mark.parametrize("wanted", [asked(), ITERATIVE, COUNTED, PRIVATE, LABELLED])
def test_further_texts_read_nothing_pay_nothing_and_come_from_the_same_values(workshop, wanted):
    made, first = run(workshop, wanted)
    stored = json.loads(json.dumps(made.values))
    shop = Workshop(NoCorpus())
    more, backend = run(shop, extending(wanted, samples=30), kept=stored)
    assert (len(more.texts), more.values) == (30, None)
    assert [step for step in shop.seen if step[0] == "arm"] == [("arm", 0, 0)]
    words = [*stored["vocabulary"], *(PUBLIC_TOPICS if wanted.vocabulary.method == "private" else ())]
    assert all(seeds_in(prompt, words) for prompt in first.prompts + backend.prompts)


def test_further_texts_are_one_event_that_says_what_its_parent_has_paid():
    plan = SYSTEM.plan(ask(extending(PRIVATE, samples=9), MUCH, blocks=3))
    (invocation,) = plan.invocations
    assert (invocation.instalments, plan.loss, plan.samples) == ((Amount(),), Amount(), 9)
    assert loss_paid_by_parent([invocation.event]) == SYSTEM.plan(ask(PRIVATE, MUCH)).loss
    assert plan.facts["extends"].startswith("release 4, artifact aaaa")


def test_requests_without_a_parent_name_none():
    stored = model_to_json(asked())
    assert isinstance(stored, dict)
    assert "extends" not in stored
    extended = model_to_json(extending(asked()))
    assert isinstance(extended, dict)
    assert extended["extends"] == PARENT


def test_further_texts_that_go_on_ask_the_same(workshop):
    kept, values = Kept(), run(workshop, PRIVATE)[0].values
    _, first = run(Workshop(NoCorpus()), extending(PRIVATE), steps=kept.steps(0), journal=kept.journal, kept=values)
    _, again = run(Workshop(NoCorpus()), extending(PRIVATE), steps=kept.steps(1), journal=kept.journal)
    assert again.prompts == first.prompts


def test_a_run_that_goes_on_reads_nothing_again_and_asks_the_same(workshop):
    kept = Kept()
    _, first = run(workshop, PRIVATE, steps=kept.steps(0), journal=kept.journal)
    assert list(kept.released) == ["vocabulary 0", "sketches", "sequences"]
    _, again = run(Workshop(NoCorpus()), PRIVATE, steps=kept.steps(3), journal=kept.journal)
    assert again.prompts == first.prompts


def test_a_run_goes_on_between_the_steps(workshop):
    kept = Kept()
    with pytest.raises(PermissionError):
        run(workshop, PRIVATE, steps=kept.steps(0), journal=kept.journal, arm=refusing((1, 0)))
    assert list(kept.released) == ["vocabulary 0"]
    workshop.seen.clear()
    made, _ = run(workshop, PRIVATE, steps=kept.steps(1), journal=kept.journal)
    assert [step for step in workshop.seen if step[0] == "arm"] == [("arm", 1, 0)]
    assert len(made.texts) == 6
    kept.released.pop("sketches")
    with pytest.raises(StepLost):
        run(workshop, PRIVATE, steps=kept.steps(2), journal=kept.journal)


def test_a_death_among_the_sequences_costs_nothing(workshop):
    """They are drawn before their step begins, so that nothing is lost with them."""
    kept = Kept()
    run(workshop, asked(), steps=kept.steps(0), journal=kept.journal)
    kept.released.pop("sequences")
    kept.begun.discard("sequences")
    made, _ = run(Workshop(NoCorpus()), asked(), steps=kept.steps(1), journal=kept.journal)
    assert len(made.texts) == 6


def test_released_values_are_all_that_texts_need(workshop):
    kept = Kept()
    run(workshop, PRIVATE, steps=kept.steps(0), journal=kept.journal)
    values = ReleasedValues(tuple(kept.released["vocabulary 0"]["keywords"]), sums_of_json(kept.released["sketches"]))
    stored = json.loads(json.dumps(values.to_json()))
    again = ReleasedValues.from_json(stored)
    assert again.vocabulary == values.vocabulary
    assert (again.sums == values.sums).all()
    assert again.to_json() == stored
    assert values.sums.shape == (1, 1, 60)


def test_sums_are_kept_exactly():
    sums = np.array([[[2**62, -5], [0, -(2**62)]]])
    assert (sums_of_json(sums_json(sums)) == sums).all()
    broken = {"shape": [1], "sums": b64encode(b"123").decode()}
    with pytest.raises(ValueError, match=r"buffer|size"):
        sums_of_json(broken)


def test_a_plan_of_other_stages_is_not_carried_out(workshop):
    other = SYSTEM.plan(ask(asked(features=31), MUCH))
    with pytest.raises(ValueError, match="not those of the plan"):
        SYSTEM.generate(other, asked(), workshop.context(OS_RANDOM))


def test_a_request_is_written_out_with_its_words():
    request = ReleaseRequest(
        dataset="clinic",
        kind="synthetic_corpus",
        mechanism="keyphrase_seeding",
        epsilon=Decimal(1),
        delta=Decimal("1e-6"),
        model="tiny",
        parameters={"samples": 1, "references": 1, "vocabulary": {"method": "public"}},
        prompt={"description": "notes"},
    )
    assert SYSTEM.resolve_names(request).parameters["vocabulary"]["words"] == list(PUBLIC_TOPICS)


def test_a_counted_vocabulary_keeps_the_words_that_units_come_near_to(workshop):
    wanted = asked(vocabulary=PUBLIC | {"method": "counted", "size": 4, "per_unit": 5})
    kept = Kept()
    run(workshop, wanted, Amount(10**16, 0), steps=kept.steps(0), journal=kept.journal)
    assert len(kept.released["vocabulary 0"]) == 4
    assert len({"kettle", "tomato", "violin", "radio"} & set(kept.released["vocabulary 0"])) >= 3


def test_the_run_is_made_without_reading(workshop):
    context: RunContext = workshop.context(OS_RANDOM)
    make: Callable[..., KeyphraseRun] = KeyphraseRun.of
    make(PRIVATE, Stages.of(PRIVATE, MUCH), SYSTEM.plan(ask(PRIVATE, MUCH)), context)
    assert workshop.seen == []


DRAWN = ("vocabulary", "sketches", "sequences")


def test_every_draw_is_reported(workshop: Workshop) -> None:
    told: list[tuple[str, int, int]] = []
    context = replace(workshop.context(OS_RANDOM), progress=lambda *given: told.append(given))
    KeyphraseRun.of(PRIVATE, Stages.of(PRIVATE, MUCH), SYSTEM.plan(ask(PRIVATE, MUCH)), context).generated()
    drawn = [given for given in told if given[0].startswith("drawing")]
    assert drawn == [(f"drawing {name}", done, 1) for name in DRAWN for done in (0, 1)]
