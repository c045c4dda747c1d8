"""The measurement from end to end, on a tiny model and on the real one."""

from dataclasses import replace

import pytest
import torch

from tasks.evaluation.in_context.demonstrations import CONTENT_FREE, Example, PromptWriter, choose
from tasks.evaluation.in_context.measure import InContextTest
from tasks.inference.catalogue.registry import list_models
from tasks.inference.loading.load_model import load
from tests.refusals import refusal
from tests.support import require
from tests.unit.tasks.evaluation.in_context.conftest import ANIMALS, NOTES, WEATHER, Pair

pytestmark = pytest.mark.dear

REAL = "smollm2-135m-instruct"
ITEMS = tuple(Example(f"{example.text} more", example.label) for example in NOTES)


def by_hand(pair: Pair, demonstrations, calibrated: bool) -> int:
    """Right answers, from probabilities: every prompt read anew, W = diag(p_cf)^-1 written out."""
    writer = PromptWriter(WEATHER, pair.model.tokenizer, 64)
    prompt = writer.shared(demonstrations, 900).tokens

    def p(text: str) -> torch.Tensor:
        question = prompt + writer.question(text)[0]
        found = torch.tensor([pair.log_probability(question, word) for word in writer.label_words()]).double().exp()
        return found / found.sum()

    bias = sum(p(text) for text in CONTENT_FREE) / len(CONTENT_FREE)
    scale = torch.diag(1 / bias) if calibrated else torch.eye(3, dtype=torch.float64)
    answers = [WEATHER.labels[int((scale @ p(item.text)).argmax())] for item in ITEMS]
    return sum(answer == item.label for answer, item in zip(answers, ITEMS, strict=True))


def test_a_classification_is_what_one_works_out_by_hand(pair: Pair) -> None:
    test = InContextTest(pair.model, WEATHER, ITEMS, max_text_tokens=64)
    found = test.few_shot("real", NOTES, 3, seeds=(0, 1))
    for run in found.runs:
        demonstrations = choose(WEATHER, NOTES, 3, run.seed)
        assert run.score.raw == by_hand(pair, demonstrations, calibrated=False)
        assert run.score.calibrated == by_hand(pair, demonstrations, calibrated=True)
    assert (found.column, found.shots, found.tested, found.constant) == ("real", 3, 12, 4)
    zero = test.zero_shot()
    assert [run.score.calibrated for run in zero.runs] == [by_hand(pair, [], calibrated=True)]
    assert (zero.column, zero.shots) == ("zero_shot", 0)


def test_labels_may_be_named_instead_of_shown(pair: Pair) -> None:
    told = replace(WEATHER, naming="Say what the weather is: Wet, Dry or Dry and cold.")
    test = InContextTest(pair.model, told, ITEMS)
    found = test.zero_shot_named()
    same = InContextTest(pair.model, replace(told, instruction=told.naming), ITEMS).zero_shot()
    assert (found.column, found.runs) == ("zero_shot_named", same.runs)
    with pytest.raises(ValueError, match="no line that names labels"):
        InContextTest(pair.model, WEATHER, ITEMS).zero_shot_named()


def test_the_same_test_gives_the_same_result(pair: Pair) -> None:
    test = InContextTest(pair.model, WEATHER, ITEMS)
    done: list[tuple[int, int]] = []
    first = test.few_shot("real", NOTES, 4, (3, 4), progress=lambda *step: done.append(step))
    assert first == test.few_shot("real", NOTES, 4, (3, 4))
    assert done == [(1, 2), (2, 2)]


def test_slots_count_exact_matches(pair: Pair) -> None:
    """The model is random, so the right answer is defined as what it answers: all are right, then none."""
    pool = [Example(f"a cat sits {number}", "cat") for number in range(4)]
    items = tuple(Example(f"the dog barks {number}", "?") for number in range(3))
    from tasks.evaluation.in_context.questions import first_token_bias, greedy_answers, read_prompt

    writer = PromptWriter(ANIMALS, pair.model.tokenizer, 64)
    prompt = read_prompt(pair.model, writer.shared(choose(ANIMALS, pool, 2, 0), 900).tokens)
    bias = first_token_bias(prompt, [writer.question(text)[0] for text in CONTENT_FREE])
    raw, calibrated = greedy_answers(prompt, [writer.question(item.text)[0] for item in items], 6, bias)

    def score(answers: list[str], change: str = "") -> tuple[int, int]:
        asked = tuple(Example(item.text, f"{answer}{change}") for item, answer in zip(items, answers, strict=True))
        (run,) = InContextTest(pair.model, ANIMALS, asked, max_text_tokens=64).few_shot("real", pool, 2, (0,)).runs
        return run.score.raw, run.score.calibrated

    assert score([answer.upper() for answer in raw])[0] == 3
    assert score(calibrated)[1] == 3
    assert score(raw, change="?") == (0, 0)


def test_demonstrations_that_do_not_fit_are_dropped_and_flagged(pair: Pair) -> None:
    test = InContextTest(pair.model, WEATHER, ITEMS, max_text_tokens=64)
    assert [run.dropped for run in test.few_shot("real", NOTES, 12, (0,)).runs] == [0]
    (run,) = replace(test, context=220).few_shot("real", NOTES, 12, (0,)).runs
    assert run.dropped > 0
    assert run.shots + run.dropped == 12
    with refusal("PromptTooLong"):
        replace(test, context=60).zero_shot()


def test_a_context_beyond_the_models_is_the_models(pair: Pair) -> None:
    short = replace(pair.model, positions=220)
    (run,) = InContextTest(short, WEATHER, ITEMS, context=100_000).few_shot("real", NOTES, 12, (0,)).runs
    assert run.dropped > 0


def test_cut_texts_are_counted(pair: Pair) -> None:
    (run,) = InContextTest(pair.model, WEATHER, ITEMS, max_text_tokens=5).few_shot("real", NOTES, 3, (0,)).runs
    assert run.cut == 3 + 12


def test_what_is_refused(pair: Pair) -> None:
    with refusal("NoTestItems"):
        InContextTest(pair.model, WEATHER, ())
    with refusal("UnknownLabel"):
        InContextTest(pair.model, WEATHER, (Example("hail", "h"),))
    test = InContextTest(pair.model, WEATHER, ITEMS)
    for shots, seeds in ((0, (0,)), (1, ())):
        with pytest.raises(ValueError, match="at least one seed and one shot"):
            test.few_shot("real", NOTES, shots, seeds)


def test_a_refused_seed_costs_no_reading(pair: Pair, monkeypatch) -> None:
    """Every seed's choice is made before anything is read."""
    monkeypatch.setattr(InContextTest, "_run", lambda *_: pytest.fail("something was read"))
    without = [example for example in NOTES if example.label != "d"]
    with refusal("LabelWithoutDemonstration"):
        InContextTest(pair.model, WEATHER, ITEMS).few_shot("real", without, 3, (0, 1))


FILMS = [
    ("a space film directed by ridley scott with a cat", "ridley scott"),
    ("which movie by steven spielberg has a shark", "steven spielberg"),
    ("the 1960 film that alfred hitchcock made about a motel", "alfred hitchcock"),
    ("quentin tarantino directed this film about two hit men", "quentin tarantino"),
    ("in this james cameron movie a ship sinks", "james cameron"),
    ("a tim burton film about a man with scissors for hands", "tim burton"),
]


@pytest.mark.slow
def test_the_real_model_finds_names_after_two_demonstrations() -> None:
    """It would fail if questions, answers or shared prompt were put together wrongly."""
    from tasks.evaluation.in_context.demonstrations import TASKS

    require(any(m.name == REAL and m.installed for m in list_models()), f"not pulled: almoner models pull {REAL}")
    films = [Example(*film) for film in FILMS]
    test = InContextTest(load(REAL, "cpu"), TASKS["mit_movies_director"], tuple(films[2:]))
    (run,) = test.few_shot("real", films[:2], 2, (0,)).runs
    assert max(run.score.raw, run.score.calibrated) >= 3
