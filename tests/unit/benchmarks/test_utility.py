"""The utility benchmark computes what it says: on the tiny model, against formulas written out here."""

import math
from dataclasses import replace
from fractions import Fraction
from types import ModuleType

import pytest
import torch
from torch import Tensor

from tasks.inference.engine.engine import Engine
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.render import prompts_for
from tasks.mechanisms.tokens.sparse_vector import NORM, SparseVector
from tests.tiny_model import tiny_model

SCRIPTS = ("utility.next_tokens", "utility.systems", "utility.texts")
TEXTS = tuple(f"patient {number} came with a cough and went home well" for number in range(12))
ROWS = 3


@pytest.fixture(scope="module")
def logits() -> Tensor:
    """Public row and three private ones at four positions."""
    return torch.randn((1 + ROWS, 4, 60), generator=torch.Generator().manual_seed(3)) * 2


def figures(bench: dict[str, ModuleType], logits: Tensor, **setting: object) -> dict[str, Tensor]:
    utility, systems = bench["utility.next_tokens"], bench["utility.systems"]
    chosen = systems.Setting(references=ROWS, epsilon=None, **setting)
    private = chosen.system in (*systems.PRIVATE_SYSTEMS, systems.AMIN_PRIVATE)
    bound = systems.bind(chosen, tokens=8) if private else None
    found: dict[str, Tensor] = utility.figures(
        chosen, bound, utility.Logits(logits, torch.tensor([5, 0, 59, 7])), "seed"
    )
    return found


@pytest.mark.parametrize("system", ["ink", "ink_paper", "amin_private"])
def test_without_a_bound_that_matters_nothing_is_lost(
    bench: dict[str, ModuleType], logits: Tensor, system: str
) -> None:
    found = figures(bench, logits, system=system, top_k=0, clip="500")
    assert found["kl"].abs().max() < 1e-4
    assert found["reverse"].abs().max() < 1e-4
    assert found["covered"].eq(1).all()


@pytest.mark.parametrize(("system", "least"), [("ink", 0.01), ("ink_paper", 0.01), ("amin_private", 0.5), ("icl", 0.5)])
def test_a_tight_bound_costs_something(bench: dict[str, ModuleType], logits: Tensor, system: str, least: float) -> None:
    assert figures(bench, logits, system=system, top_k=0, clip="0.01")["kl"].mean() > least


def expected(system: str, logits: Tensor, clip: float, temperature: float) -> Tensor:
    """The papers' formulas in floating point, whole vocabulary."""
    public, rows = logits[0].double(), logits[1:].double()

    def recentred(values: Tensor) -> Tensor:
        return (values - values.amax(-1, keepdim=True) + clip).clamp_min(-clip)

    if system == "ink_paper":
        scores = public + (rows - public).clamp(-clip, clip).mean(0)
    elif system == "ink":
        scores = public + (rows.log_softmax(-1) - public.log_softmax(-1)).clamp(-clip, clip).mean(0)
    else:
        scores = recentred(rows).mean(0)
        scores = (scores + recentred(public)) / 2 if system == "icl" else scores
    return (scores / temperature).log_softmax(-1)


@pytest.mark.parametrize("temperature", ["0.7", "1.5"])
@pytest.mark.parametrize("system", ["ink", "ink_paper", "amin_private", "icl"])
def test_the_rules_draw_from_the_papers_formulas(
    bench: dict[str, ModuleType], logits: Tensor, system: str, temperature: str
) -> None:
    systems = bench["utility.systems"]
    setting = systems.Setting(system, None, ROWS, temperature, 0, "0.8")
    found = systems.distribution(setting, systems.bind(setting, 8), logits[0], logits[1:], "seed")
    aim = expected(system, logits, 0.8, float(temperature)).gather(1, found.tokens)
    assert torch.allclose(found.log, aim, atol=1e-3)


def test_epsilon_buys_the_clip_norm_that_the_formula_says(bench: dict[str, ModuleType]) -> None:
    """C = tau B sqrt(2 rho / T); epsilon 10, delta 1e-5, T = 500, B = 7: 0.5911 (PRIVACY §4.1)."""
    systems = bench["utility.systems"]
    assert float(systems.bind(systems.Setting("ink", "10", 7), 500).draw.clip_norm) == pytest.approx(0.5911, abs=1e-4)


def test_top_k_loses_what_is_cut_off_and_says_what_it_covers(bench: dict[str, ModuleType], logits: Tensor) -> None:
    found = figures(bench, logits, system="mean", top_k=10)
    kept = logits[1:].mean(0).double().log_softmax(1).exp().topk(10).values.sum(1)
    assert torch.allclose(found["reverse"], -kept.log(), atol=1e-5)
    assert found["kl"].abs().max() < 1e-6
    assert found["covered"].sum() < 4


def test_the_loss_of_public_only_is_the_models(bench: dict[str, ModuleType], logits: Tensor) -> None:
    loss = figures(bench, logits, system="public", top_k=0)["loss"]
    real = torch.nn.functional.cross_entropy(logits[0], torch.tensor([5, 0, 59, 7]), reduction="none")
    assert torch.allclose(loss, real.double(), atol=1e-5)


def test_traces_hold_what_the_engine_sees(bench: dict[str, ModuleType]) -> None:
    """Forced token by token through a session of the engine, all rows have the same logits."""
    texts, model = bench["utility.texts"], tiny_model(stops=False)
    forced = texts.choose(model.tokenizer, TEXTS, 2, rows=ROWS, needed=9)[1]
    trace = texts.read(model, "Notes of a doctor.", forced, stride=2)
    public, private = prompts_for(model.tokenizer, PromptSpec("Notes of a doctor."))
    session = Engine(model).session(Sizes.of([public], [private], 128, 9, ROWS), 1)
    session.enter(0, public, private, forced.references)
    for place, token in enumerate(forced.tokens[:-1]):
        rows = torch.cat([session.public_logits(), session.private_logits().values])
        if place % 2 == 0:
            assert torch.allclose(trace.logits(model)[:, place // 2], rows, atol=1e-3)
            assert trace.following[place // 2] == token
        session.advance([token])


def test_held_out_texts_are_no_references(bench: dict[str, ModuleType]) -> None:
    model = tiny_model()
    chosen = bench["utility.texts"].choose(model.tokenizer, TEXTS, 3, rows=4, needed=20)
    references = {reference[:20] for text in chosen for reference in text.references}
    assert not references & {text.tokens for text in chosen}
    assert [len(text.references) for text in chosen] == [4, 4, 4]
    with pytest.raises(ValueError, match="only 12 texts"):
        bench["utility.texts"].choose(model.tokenizer, TEXTS, 13, rows=4, needed=20)


def test_tests_without_noise_tell_near_from_far(bench: dict[str, ModuleType]) -> None:
    """Distances 0, 1.5, 0, 1.5, 1.5 against 0.7; after the second private token no test is made."""
    systems = bench["utility.systems"]
    bound = systems.bind(systems.Setting("amin", "10", ROWS))
    bound = replace(bound, tests=SparseVector(Fraction(1, 1024), ROWS), private_tokens=2)
    distances = [0, 3 * ROWS * NORM // 2, 0, 3 * ROWS * NORM // 2, 3 * ROWS * NORM // 2]
    assert systems.private_share(bound, distances, "seed") == [0, 1, 0, 1, 0]


def test_public_tokens_are_mixed_in_by_their_share(bench: dict[str, ModuleType], logits: Tensor) -> None:
    systems = bench["utility.systems"]
    setting = systems.Setting("amin", "10", ROWS, top_k=0)
    bound = systems.bind(setting)
    alone, distances = systems.private_distribution(setting, bound, logits[0], logits[1:])
    share = torch.tensor(systems.private_share(bound, distances, "seed"))[:, None]
    public = logits[0].double().softmax(1).gather(1, alone.tokens)
    mixed = systems.distribution(setting, bound, logits[0], logits[1:], "seed").log.exp()
    assert torch.allclose(mixed, share * alone.log.exp() + (1 - share) * public, atol=1e-6)
    assert 0 < share.mean() < 1


def test_rows_that_are_saved_are_read_off_a_power_law(bench: dict[str, ModuleType]) -> None:
    utility = bench["utility.next_tokens"]
    levels = {rows: 5.0 / rows**2 for rows in (3, 7, 15, 31)}
    for wanted in (2, 3, 5, 20, 40):
        assert utility.rows_needed(levels, 5.0 / wanted**2) == pytest.approx(wanted, rel=1e-6)


def test_intervals_hold_the_mean_and_shrink_with_the_spread(bench: dict[str, ModuleType]) -> None:
    values = [math.sin(number) for number in range(40)]
    middle, low, high = bench["utility.next_tokens"].interval(values)
    assert low < middle < high
    assert bench["utility.next_tokens"].interval([1.0] * 40) == (1.0, 1.0, 1.0)


def test_the_fewest_rows_that_are_not_shown_to_be_worse_are_found(bench: dict[str, ModuleType]) -> None:
    utility, systems = bench["utility.next_tokens"], bench["utility.systems"]
    levels = {
        ("ink", 3): 0.3,
        ("ink", 7): 0.2,
        ("ink", 15): 0.1,
        ("ink", 31): 0.05,
        ("amin", 31): 0.2,
        ("amin", 15): 0.0,
    }
    mine = {}
    for (system, rows), level in levels.items():
        setting = systems.Setting(system, "3", rows)
        values = [level + 0.01 * (number % 3) for number in range(30)]
        mine[setting] = utility.Measured("yelp", setting, None, {"kl": values})
    assert utility.against_amin(mine, "3", 31) == (7, pytest.approx([0, 0, 0]))
    assert utility.against_amin(mine, "3", 15) is None
