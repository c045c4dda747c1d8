"""Records from every system: valid by construction, at the same price, and masked by nothing private."""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from models_db.home import ProjectHome
from models_db.values.amounts import Amount
from models_db.values.requests import ReleaseRequest, model_to_json
from tasks.corpus.store import Corpus
from tasks.inference.loading.load_model import ModelTokens
from tasks.inference.structured_output import grammar_constraint
from tasks.inference.structured_output.automaton import TokenTexts
from tasks.inference.structured_output.grammar_constraint import GrammarConstraint, TokenLimitTooSmall
from tasks.inference.structured_output.json_schema import RecordParameters, require_schema_for, schema_of
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.systems.base import System
from tasks.systems.baselines import NonPrivate, PublicOnly
from tasks.systems.few_shot_generation import FewShotGeneration
from tasks.systems.invisible_ink import InvisibleInk, InvisibleInkParameters
from tasks.systems.private_icl import PrivateIcl
from tasks.systems.private_prediction import PrivatePrediction
from tasks.values.results import Generated
from tests.refusals import refusal
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.systems.asking import ask
from tests.unit.tasks.systems.record_schemas import FILM, is_valid
from tests.unit.tasks.systems.workshop import NOTES, Workshop, store

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/decoding", "tasks/systems", "tasks/inference/structured_output")

DRAWS = 90
GIVEN: dict[str, Any] = {
    "samples": 3,
    "references": 4,
    "batches": 3,
    "max_new_tokens": DRAWS,
    "temperature": "1",
    "max_reference_tokens": 24,
    "schema": FILM,
}
OWN: dict[str, dict[str, Any]] = {"private_prediction": {"private_tokens": 5}}


def asked(system: System, **changes: Any) -> Any:
    fields = {f.alias or name for name, f in system.parameters.model_fields.items()}
    given = {name: value for name, value in GIVEN.items() if name in fields}
    return system.parameters.model_validate(given | OWN.get(system.name, {}) | changes)


def make(system: System, corpus: Corpus, parameters: Any = None, workshop: Workshop | None = None) -> Generated:
    wanted = parameters or asked(system)
    plan = system.plan(ask(wanted, governed=False))
    return system.generate(plan, wanted, (workshop or Workshop(corpus)).context(stops=True))


SYSTEMS = [InvisibleInk(), PrivatePrediction(), PrivateIcl(), FewShotGeneration(), PublicOnly(), NonPrivate()]


@pytest.mark.slow_except("invisible_ink")
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_text_of_every_system_is_a_finished_valid_record(system: System, corpus: Corpus) -> None:
    made = make(system, corpus)
    assert [text.complete for text in made.texts] == [True] * 3
    assert all(is_valid(FILM, text.text) for text in made.texts)
    free = make(system, corpus, asked(system, constrained=False))
    assert not any(text.text.startswith("{") for text in free.texts)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_the_constraint_costs_nothing(system: System) -> None:
    plans = [system.plan(ask(asked(system, constrained=held), governed=False)) for held in (True, False)]
    assert plans[0].invocations == plans[1].invocations
    assert plans[0].loss == plans[1].loss
    assert [plan.facts["records"] for plan in plans] == ["held to their schema while they are drawn", "drawn freely"]


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_a_limit_without_room_for_a_record_is_refused_before_anything_is_armed(system: System, corpus: Corpus) -> None:
    workshop = Workshop(corpus)
    with pytest.raises(TokenLimitTooSmall):
        make(system, corpus, asked(system, max_new_tokens=20), workshop)
    assert workshop.seen == []


class Recorder(GrammarConstraint):
    """Keeps every mask with what it was asked."""

    seen: list[tuple[int, tuple[int, ...], Tensor]]

    def allowed(self, number: int, drawn: Sequence[int]) -> Tensor:
        mask = super().allowed(number, drawn)
        self.seen.append((number, tuple(drawn), mask.clone()))
        return mask


def test_masks_follow_from_released_tokens_whatever_the_private_rows_are(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The masks of a release from one corpus are those that the *texts* alone lead to; and so for another corpus."""
    other = store(ProjectHome(tmp_path / "home"), tmp_path / "n.jsonl", [n | {"text": n["text"][::-1]} for n in NOTES])
    texts = []
    for data in (corpus, other):
        monkeypatch.setattr(Recorder, "seen", [], raising=False)
        monkeypatch.setattr(grammar_constraint, "GrammarConstraint", Recorder)
        made = make(InvisibleInk(), data)
        alone = _constraint()
        for number, drawn, mask in Recorder.seen:
            assert made.texts[number].text.encode().startswith(_spelt(drawn))
            assert torch.equal(mask, alone.allowed(number, drawn))
        texts.append([text.text for text in made.texts])
    assert texts[0] != texts[1]


@cache
def _constraint() -> GrammarConstraint:
    tokenizer = tiny_tokenizer()
    stop = tokenizer.eos_token_id
    return GrammarConstraint.of_schema(FILM, ModelTokens(tokenizer, len(tokenizer), (stop,)), DRAWS)


def _spelt(drawn: Sequence[int]) -> bytes:
    return b"".join(map(_texts().text, drawn))


@cache
def _texts() -> TokenTexts:
    return TokenTexts.of(tiny_tokenizer(), len(tiny_tokenizer()))


@given(seed=st.integers(0, 2**32), top_k=st.integers(0, 300), length=st.integers(0, 40))
def test_candidates_of_a_masked_row_are_allowed_tokens(seed: int, top_k: int, length: int) -> None:
    draw = IntegerTableMechanism(1000, 4, Fraction(1), 4000)
    tokens = tiny_tokenizer()('{"title": "The White Dawn", "year": 1974, "genres": ["D', add_special_tokens=False)[
        "input_ids"
    ]
    mask = _constraint().allowed(0, tokens[:length])
    public = torch.randn((1, len(mask)), generator=torch.Generator().manual_seed(seed)).masked_fill(~mask, -torch.inf)
    found = utility_scores.candidates(public, top_k, draw)
    chosen = found.tokens[0][found.allowed[0]]
    assert len(chosen) >= min(top_k or len(mask), int(mask.sum()))
    assert mask[chosen].all()


def test_a_schema_is_stored_under_its_name_where_it_is_declared() -> None:
    written = model_to_json(asked(InvisibleInk()))
    assert isinstance(written, dict)
    assert written["schema"] == FILM
    assert InvisibleInkParameters.model_validate(written).json_schema == FILM
    assert not {"schema", "json_schema"} & set(model_to_json(asked(InvisibleInk(), schema=None)))  # type: ignore[arg-type]
    assert asked(InvisibleInk(), constrained=False).model_dump()["constrained"] is False


def test_an_unusable_schema_is_refused_by_its_own_name() -> None:
    with refusal("SchemaNotSupported", match="'pattern' is not supported"):
        RecordParameters.model_validate({"schema": {"type": "string", "pattern": "a"}})


@pytest.mark.parametrize(
    ("kind", "given", "error"),
    [
        ("records", {}, "SchemaNeeded"),
        ("synthetic_corpus", {"schema": FILM}, "SchemaUnexpected"),
        ("demonstrations", {"schema": FILM}, "SchemaUnexpected"),
    ],
)
def test_records_have_a_schema_and_texts_have_none(kind: str, given: Any, error: str) -> None:
    with refusal(error):
        require_schema_for(kind, RecordParameters.model_validate(given))
    require_schema_for("records", RecordParameters.model_validate({"schema": FILM}))
    require_schema_for("synthetic_corpus", RecordParameters.model_validate({}))
    assert schema_of(RecordParameters.model_validate({"schema": FILM})) == FILM


def test_the_example_of_the_documentation_can_be_priced() -> None:
    page = (Path(__file__).resolve().parents[5] / "docs" / "records.md").read_text()
    example = yaml.safe_load(page.split("```yaml")[1].split("```")[0])
    request = ReleaseRequest.model_validate(example)
    wanted = InvisibleInkParameters.model_validate(request.parameters)
    require_schema_for(request.kind, wanted)
    assert InvisibleInk().plan(ask(wanted)).loss != Amount()
    assert _fits(wanted)


def _fits(wanted: InvisibleInkParameters) -> bool:
    """Even a model with one token a byte can write a short one."""
    size = len(tiny_tokenizer())
    made = GrammarConstraint.of_schema(
        wanted.json_schema, ModelTokens(tiny_tokenizer(), size, (1,)), wanted.max_new_tokens
    )
    return made.fewest_draws <= wanted.max_new_tokens
