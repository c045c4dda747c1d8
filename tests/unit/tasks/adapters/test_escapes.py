"""From the corpus to the noisy sums of summaries: what one unit can move, and what it can be noticed by (PRIVACY §5).

Two corpora differ by one unit. Both are summarised by the shipped path (store, groups, contribution bound, prompts,
engine, adapter, clipping, sums), the noise replaced by public numbers, so that the same tokens come of it. Then the
arguments of every draw are compared: what all of them together moved is no more than what was charged, in the squared
L2 norm that zCDP adds up, and everything else that can be seen of the run is the same.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import flows.attacks.public_twin
import tasks.decoding.loop
from flows.attacks.public_twin import TwinAttackRequest, attack_on_twin
from models_db.home import ProjectHome
from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import model_to_json
from tasks.adapters.adapter import tensors_of
from tasks.adapters.metadata import KnownAdapter
from tasks.adapters.store import save_adapter
from tasks.decoding.journal import Journal, ResumeState
from tasks.decoding.run_context import RunContext
from tasks.decoding.sampling_rule import LOGITS_AT_ONCE
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.session import RowValues
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean
from tasks.release.approved_request import ApprovedRequest
from tasks.systems import summaries
from tasks.systems.invisible_ink import InvisibleInk, InvisibleInkParameters
from tasks.systems.private_decoding import PrivateDecodingSystem
from tasks.systems.summaries import (
    OneShotParameters,
    OneShotSummary,
    TokenLevelParameters,
    TokenLevelSummary,
    UsedAdapter,
)
from tasks.systems.summaries.token_level_rule import TokenLevelRule, noisy_means
from tests.refusals import refusal
from tests.unit.tasks.pricing.test_quote import priced
from tests.unit.tasks.systems.asking import AMOUNT, ask
from tests.unit.tasks.systems.private_decoding.test_neighbours import (
    Notes,
    crowded,
    model_for,
    sick_token,
    with_sick,
    without,
)
from tests.unit.tasks.systems.summaries.planted import adapter
from tests.unit.tasks.systems.workshop import KEY, NOTES, Workshop, store
from tests.watched_journal import WatchedJournal

CONCERNS = ("tasks/mechanisms/vectors", "tasks/systems/summaries")

pytestmark = [pytest.mark.dear, pytest.mark.contract]

UNIT = "patient-006"
"""It wrote in every section but one."""
CAFE = "caf\u00e9"
GROUPS = ("history", "plan", CAFE, "nobody wrote about it", "telephone call")
STEPS, BLOCKS = 9, 2
FORM = "It is {what}, but {what}!"
DIGEST = "d" * 64
GIVEN: dict[str, Any] = {
    "groups": GROUPS,
    "references": 2,
    "max_new_tokens": STEPS,
    "temperature": "1",
    "max_reference_tokens": 40,
    "instalment": 4,
    "top_k": 30,
}
SYSTEMS: dict[str, tuple[PrivateDecodingSystem[Any], Any, dict[str, Any]]] = {
    "hidden": (TokenLevelSummary(), TokenLevelParameters, {"clip_norm": "0.5"}),
    "logits of all": (
        TokenLevelSummary(), TokenLevelParameters,
        {"clip_norm": "0.5", "space": "logits", "centre": "none", "top_k": 0},
    ),
    "form": (
        TokenLevelSummary(), TokenLevelParameters,
        {"clip_norm": "0.5", "form": FORM, "slot_tokens": 3, "max_new_tokens": 24},
    ),
    "one-shot": (OneShotSummary(), OneShotParameters, {"clip_norm": "0.5"}),
    "two shots, three centres": (OneShotSummary(), OneShotParameters, {"clip_norm": "0.5", "shots": 2}),
    "ink": (InvisibleInk(), InvisibleInkParameters, {}),
}  # fmt: skip


@dataclass
class Diary:
    """The exact sums that all draws were made of, and whatever else is seen.

    Attributes:
        sums: int64 [L, K] each.
        norm: S, the most that one unit moves one of them by.
        seen: what was armed, progress, texts, figures.
    """

    sums: list[Tensor] = field(default_factory=list)
    norm: int = 0
    seen: list[object] = field(default_factory=list)

    def mean(self, mechanism: NoisyMean, sums: Tensor, rng: object) -> Tensor:
        """Public numbers in place of a noisy sum."""
        self.norm = mechanism.clip_steps
        self.sums.append(sums.cpu())
        numbers = torch.arange(sums.numel()) * 48271 % 1009 - 504 + 31 * len(self.sums)
        return (numbers * mechanism.clip_steps // 300).reshape(sums.shape)

    def token(self, draw: Any, found: Any, summed: Tensor, rng: object) -> list[int]:
        """Tokens that only candidates and the number of the call decide."""
        sick = sick_token(model_for("float32"))
        if draw.clip_steps > 1:  # a private draw of InvisibleInk
            self.norm = draw.clip_steps
            self.sums.append(summed)
        self.calls = getattr(self, "calls", 0) + 1
        usable = found.allowed & (found.tokens != sick)
        allowed = [tokens[those].sort().values for tokens, those in zip(found.tokens, usable, strict=True)]
        return [int(those[(13 * self.calls + 7 * row) % len(those)]) for row, those in enumerate(allowed)]


def sections_and_cafe(notes: Notes) -> Notes:
    """Everybody with a plan also wrote of the cafe, in two spellings."""
    spelt = [unicodedata.normalize("NFD", CAFE), f" {CAFE}\t"]
    more = [
        {**note, "id": f"{note['id']} {number}", "section": each}
        for note in notes if note["section"] == "plan" for number, each in enumerate(spelt)
    ]  # fmt: skip
    return [*notes, *more]


def summarised(system: str, bound: int, notes: Notes, folder: Path, patch: pytest.MonkeyPatch) -> tuple[Diary, Any]:
    """Three generations at once, private rows four at a time; the diary and the plan."""
    diary = Diary()
    folder.mkdir()
    patch.setattr(tasks.decoding.loop, "generations_at_once", lambda *sizes: 3)
    patch.setattr(utility_scores, "draw_tokens", diary.token)
    patch.setattr(NoisyMean, "draw", lambda *given: diary.mean(*given))
    maker, kind, own = SYSTEMS[system]
    known = planted(system, patch) if kind is OneShotParameters else {}
    wanted = kind.model_validate(GIVEN | own | known | {"groups_per_unit": bound})
    corpus = store(ProjectHome(folder / "home"), folder / "notes.jsonl", sections_and_cafe(notes), "section")
    made = context(corpus, diary)
    plan = maker.plan(ask(wanted, AMOUNT, blocks=BLOCKS))
    generated = maker.generate(plan, wanted, made)
    diary.seen += [generated.released, generated.texts]
    return diary, plan


def context(corpus: Any, diary: Diary) -> RunContext:
    made = Workshop(corpus, BLOCKS).context(arm=lambda *what: diary.seen.append(what))
    tell = lambda *what: diary.seen.append(what)  # noqa: E731
    return type(made)(**{**vars(made), "engine": Engine(model_for("float32"), 4, 2**30), "progress": tell})


def planted(system: str, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    made = adapter(centres=3 if "centres" in system else 1)
    known = KnownAdapter(DIGEST, made.meta)
    patch.setattr(summaries, "find_adapter", lambda named: known)
    patch.setattr(summaries, "load_adapter", lambda known, model: made)
    return {"adapter": model_to_json(UsedAdapter(sha256=DIGEST, meta=made.meta))}


def neighbours() -> Iterator[tuple[str, Notes, Notes]]:
    everybody: Notes = [*NOTES]
    yield "absent", everybody, without(UNIT)
    yield "not a number", with_sick(UNIT), without(UNIT)
    yield "everywhere", crowded(UNIT), without(UNIT)
    alone: Notes = [note for note in NOTES if note["patient_id"] == UNIT]
    yield "alone", alone, [{**NOTES[0], "patient_id": "somebody", "section": "elsewhere"}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "bound"), [*((system, 2) for system in SYSTEMS), ("one-shot", 1), ("one-shot", 5), ("ink", 1)]
)
def test_a_unit_moves_all_sums_together_by_no_more_than_is_charged(
    system: str, bound: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noticed = 0
    for kind, ours, theirs in neighbours():
        here, plan = summarised(system, bound, ours, tmp_path / f"{kind} with", monkeypatch)
        there, _ = summarised(system, bound, theirs, tmp_path / f"{kind} without", monkeypatch)
        assert here.seen == there.seen
        assert [each.shape for each in here.sums] == [each.shape for each in there.sums]
        moved = [one - other for one, other in zip(here.sums, there.sums, strict=True)]
        norms = [int((rows.double().square().sum(1) if system != "ink" else rows.abs().amax(1).double() ** 2).max())
                 for rows in moved]  # fmt: skip
        assert max(norms) <= here.norm**2
        total = sum(int(n > 0) for rows in moved for n in rows.abs().sum(1).tolist())
        count = plan.invocations[-1].event.count
        assert total <= count, f"{kind}: {total} sums moved, {count} are charged"
        assert not (kind == "not a number" and total)
        noticed += total
    assert noticed, "what a unit moves would be noticed"


class Killed(Exception):
    """What ends an attempt."""


class Attempts:
    """A release of token-level summaries across attempts.

    Attributes:
        armed: instalments of draws that are paid.
        draws: how often each group's units met the mechanism, in all attempts, written down or not.
    """

    forgetful = False
    """A broken twin that takes missing draws for not made."""

    def __init__(self, folder: Path, corpus: Any, **changes: Any) -> None:
        self.folder, self.corpus = folder, corpus
        self.wanted = TokenLevelParameters.model_validate(GIVEN | changes)
        self.plan = TokenLevelSummary().plan(ask(self.wanted, AMOUNT))
        self.armed: list[int] = []
        self.draws: Counter[int] = Counter()
        self.number = 0

    def paid(self) -> int:
        """Draws of one group that the armed instalments pay for, each unit being in m of them."""
        each = self.plan.invocations[0].event.loss.rho // self.plan.invocations[0].event.count
        return sum(self.plan.invocations[0].instalments[one].rho for one in self.armed) // (
            each * self.wanted.groups_per_unit
        )

    def run(self, die_at: int | None, *, written: bool) -> Any:
        """One attempt, which dies at a step of its own, after or before that is written down."""
        self.number += 1
        steps = 0
        rule = TokenLevelRule.next_tokens

        def watched(own: TokenLevelRule, step: Any) -> list[int]:
            drawn = rule(own, step)
            for number in step.numbers:
                self.draws[number] += 1
                assert self.draws[number] <= self.paid(), f"group {number} has drawn more than is paid"
            return drawn

        def arm(sequence: int, instalment: int) -> None:
            assert (sequence, instalment) not in [(0, each) for each in self.armed], "paid twice"
            self.armed.append(instalment)

        with Journal(self.folder / "1-unfinished", 1) as journal, pytest.MonkeyPatch.context() as patch:
            patch.setattr(TokenLevelRule, "next_tokens", watched)
            patch.setattr(tasks.decoding.loop, "generations_at_once", lambda *sizes: 2)
            earlier = ResumeState()
            journal.assign("d", self.number, KEY)
            if (left := journal.open()) is not None:
                lost = 0 if self.forgetful else len(left.attempts)
                earlier = ResumeState(left.released, left.tokens, left.kept, len(self.armed), lost)
                journal.go_on()

            def drawn(armed: int, tokens: Any) -> None:
                nonlocal steps
                steps += 1
                if written or steps != die_at:
                    journal.step(armed, tokens)
                if steps == die_at:
                    raise Killed

            made = replace(
                Workshop(self.corpus).context(arm=arm, stops=self.wanted.form is not None),
                earlier=earlier,
                journal=WatchedJournal(journal.begin, drawn),
            )
            return TokenLevelSummary().generate(self.plan, self.wanted, made)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("reviews")
    return store(ProjectHome(folder / "home"), folder / "notes.jsonl", NOTES, "section")


TWO_SLOTS = {"form": FORM, "slot_tokens": 7, "max_new_tokens": 40}


@pytest.mark.slow
@pytest.mark.parametrize("own", [{"max_new_tokens": 11}, TWO_SLOTS], ids=["text", "form"])
def test_killed_at_every_step_no_group_draws_what_is_not_paid(
    reviews: Any, tmp_path: Path, own: dict[str, Any]
) -> None:
    """Groups enter late and stand at different draws; instalments divide neither the draws nor what is charged."""
    going = Attempts(tmp_path, reviews, groups_per_unit=3, instalment=4, **own)
    for die_at in (1, 1, 7, 15):
        with pytest.raises(Killed):
            going.run(die_at, written=die_at == 7)
    made = going.run(None, written=True)
    assert len(made.texts) == len(GROUPS)
    assert max(going.draws.values()) <= going.wanted.draws_per_text
    assert going.armed == list(range(len(going.armed)))


def test_who_takes_missing_draws_for_not_made_is_caught(reviews: Any, tmp_path: Path) -> None:
    going = Attempts(tmp_path, reviews, groups_per_unit=2, instalment=4)
    going.forgetful = True
    for _ in range(3):
        with pytest.raises(Killed):
            going.run(1, written=False)
    with pytest.raises(AssertionError, match="has drawn more than is paid"):
        going.run(None, written=True)


def test_whatever_the_number_of_rows_few_of_their_integers_are_in_memory_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How many rows there are is private, and a run that dies for want of memory would tell it."""
    mechanism, width = calibrate_mean(10**10, 1, "1"), LOGITS_AT_ONCE // 2
    heights: list[int] = []

    def ones(own: NoisyMean, values: Tensor) -> Tensor:
        heights.append(values.numel())
        return torch.ones_like(values, dtype=torch.int64)

    monkeypatch.setattr(NoisyMean, "quantised", ones)
    monkeypatch.setattr(NoisyMean, "draw", lambda own, sums, rng: sums)
    monkeypatch.setattr(NoisyMean, "mean", lambda own, noisy, references: noisy)
    generation = torch.tensor([0, 1, 0, 0, 1])
    rows = RowValues(torch.zeros((5, width)), generation, torch.tensor([True, True, False, True, True]))
    sums = noisy_means(mechanism, rows.values, rows, 3, 4, OS_RANDOM)
    assert max(heights) <= LOGITS_AT_ONCE
    assert sums[:, 0].tolist() == [2, 2, 0]


@pytest.mark.parametrize("mechanism", ["token_level_summary", "one_shot_summary", "invisible_ink"])
def test_a_request_for_summaries_is_not_attacked_on_a_stage_that_knows_no_groups(
    mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its members and canaries would be in no group, so that every attack failed."""
    monkeypatch.setattr(flows.attacks.public_twin, "open_workspace", lambda home: None)
    (tmp_path / "home").mkdir()
    request = {"dataset": "reviews", "kind": "summaries", "mechanism": mechanism, "model": "tiny", "epsilon": 1}
    asked = {**request, "delta": "1e-6", "parameters": {"groups": ["a"]}, "prompt": {"description": "a summary"}}
    with refusal("SummariesNotAttacked", match="without regard to groups"):
        attack_on_twin(tmp_path / "home", TwinAttackRequest(asked, twin="public"))
    assert not list((tmp_path / "home").iterdir())


def test_that_an_adapter_learned_from_public_text_is_a_declaration_which_stewards_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Training is not charged and no software can see from whose text an adapter came."""
    wanted = OneShotParameters.model_validate(GIVEN | planted("one-shot", monkeypatch) | {"clip_norm": "1"})
    said = OneShotSummary().plan(ask(wanted, AMOUNT)).facts["adapter trained on"]
    assert said == f"train.jsonl, SHA-256 {'a' * 64}, declared to be public, licence: CC0-1.0"


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("prompt", {"system": "Be kind."}),
        ("prompt", {"private": "{reference} {label} {description}"}),
        ("prompt", {"description": "a long summary"}),
        ("model", {"sha256": "e" * 64}),
        ("model", {"name": "another"}),
    ],
)
def test_a_record_cannot_tell_of_another_prompt_or_model_than_its_adapters(
    part: str, changes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader has the adapter's digest alone; what the record says beside it must be what that covers."""
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path))
    made = adapter()
    save_adapter(made.meta, tensors_of(made.space, made.decoder), {})
    parameters = {name: GIVEN[name] for name in ("groups", "references", "max_new_tokens", "temperature")}
    request = priced(
        kind="summaries", mechanism="one_shot_summary", model=made.meta.model,
        parameters=parameters | {"adapter": "planted"}, prompt={"description": "a short summary"},
    )  # fmt: skip
    model = {"name": made.meta.model, "revision": "1", "sha256": made.meta.model_digest, "licence": "Apache-2.0"}
    named = {"nonce": "n" * 32, "policy": "a" * 64, "code": "c" * 64, "model": model}
    body: Any = json.loads(encode_canonical(request.body)) | named
    ApprovedRequest.model_validate(body).require_planned()
    with refusal("PlanMismatch", match="its adapter"):
        ApprovedRequest.model_validate(body | {part: body[part] | changes}).require_planned()
