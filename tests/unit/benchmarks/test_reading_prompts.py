"""The benchmark of reading prompts: products are found by planted states and not by noise; words and their control."""

from types import ModuleType

import numpy as np
import pytest
import torch

SCRIPTS = ("summaries.reading_prompts", "summaries.data")
WIDTH = 40


def planted(seed: int, groups: int, apart: float) -> list[torch.Tensor]:
    """Hidden states of eight reviews of each group, whose means are so far apart."""
    source = np.random.default_rng(seed)
    means = apart * source.normal(size=(groups, 1, WIDTH))
    return [torch.tensor(rows, dtype=torch.float32) for rows in means + source.normal(size=(groups, 8, WIDTH))]


def test_halves_are_every_choice_and_its_rest(bench: dict[str, ModuleType]) -> None:
    halves = bench["summaries.reading_prompts"].halves(8)
    assert len(halves) == 70
    assert [4, 5, 6, 7] in halves


@pytest.mark.parametrize(("apart", "least", "most"), [(3.0, 0.95, 1.0), (0.0, 0.05, 0.5)])
def test_a_product_is_found_if_its_reviews_agree(
    bench: dict[str, ModuleType], apart: float, least: float, most: float
) -> None:
    module, product = bench["summaries.reading_prompts"], bench["summaries.data"].Product
    some = [product(f"p{number}", "home" if number % 2 else "cloth", (), ()) for number in range(10)]
    lines = list(module.found(module.PAPER, planted(1, 12, 1.0), some, planted(2, 10, apart)))
    assert {(line["products"], line["reviews"]) for line in lines} == {(5, 8)}
    assert least <= np.mean([line["found"] for line in lines]) <= most


def test_tables_pair_wordings_by_product(bench: dict[str, ModuleType]) -> None:
    module = bench["summaries.reading_prompts"]
    lines = [
        {"wording": name, "product": product, "products": 4, "found": share + step, "found_with_noise": share}
        for step, name in enumerate(module.WORDINGS)
        for product, share in (("p", 0.2), ("q", 0.4))
    ]
    head, rule, paper, other, *_, chance = module.found_table(lines)
    assert {row.count("|") for row in (head, rule, paper, other, chance)} == {7}
    assert "| 1.00 [1.00, 1.00] |" in other
    assert chance == "| by chance | 2 | 0.25 |  | 0.25 |  |"
    words = [
        {"wording": module.DEFAULT, "product": product, "noise": noise, "words": ["magnet"], "own": own, "others": 0.1}
        | {"preferred": 1.0}
        for noise in (0.0, 0.05)
        for product, own in (("p", 0.3), ("q", 0.5))
    ]
    head, _, exact, noisy = module.words_table(words)
    assert head.count("|") == exact.count("|")
    assert exact.startswith("| all 2, no noise |")
    assert noisy.startswith("| all 2, noise of 0.05 clip norms |")
