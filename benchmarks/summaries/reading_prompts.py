"""Reading prompts of adapters: whether a product's mean hidden state finds the product again, and which words it gives.

    python -m benchmarks.summaries.reading_prompts           # appends what docs/figures/reading_prompts.jsonl lacks
    python -m benchmarks.summaries.reading_prompts --table   # the tables of docs/adapters.md

The model reads every review once by each wording. Spaces, their centres and clip norms are fitted to the public half of
the products (`summaries/data.py`), and all figures are of the other half, by which nothing was chosen.

`found`: of a product's eight reviews, the mean of four is compared with the means of the other four of every product of
the same category (cosine, less the mean of all public groups), in each of the 35 halvings and in both directions. Who
knows nothing finds one in as many as the category has products, the control. With noise, the searching mean has NOISE
clip norms in each coordinate.

`words`: the first ten of the logit lens for the mean of all eight reviews, by the default wording. Words are counted
that occur in the product's reviews; the control are the reviews of each other product of its category.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.common.controls import own_and_others
from benchmarks.common.figures_parser import figures_parser
from benchmarks.common.intervals import interval_of_mean, written
from benchmarks.common.json_lines import DATA, append_lines, read_lines, read_lines_if_there
from benchmarks.summaries.data import Product, products
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.hidden_states import last_hidden
from tasks.inference.engine.shapes import Sizes
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.render import reference_tokens
from tasks.summarization.adapter_training.settings import TrainingSettings, default_wording
from tasks.summarization.adapters.adapter import Space, words_of
from tasks.summarization.adapters.logit_lens import lens_of
from tasks.summarization.adapters.metadata import AdapterWording
from tasks.summarization.adapters.projection import clipped, fit_space
from tasks.summarization.adapters.prompts import reading_pieces
from tasks.text.keyword_normalisation import roots

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "reading_prompts.jsonl"
MODEL = "smollm2-135m-instruct"
DEFAULT, PAPER = "title, begun", "summary"
SUMMARY = "{reference}\n\nWrite a summary."
WORDINGS: Mapping[str, tuple[str, str, str, str]] = {
    PAPER: ('"Write a summary", the answer not begun (as in the paper)', "You summarise texts.", SUMMARY, ""),
    "title": (
        '"Give this text a title", not begun', "You give titles to texts.",
        "{reference}\n\nGive this text a title.", "",
    ),
    DEFAULT: ('"Give this text a title", begun with `Title:` (the default)', "", "", ""),
}  # fmt: skip
"""What the table says, and the system line, the turn and the opening; of the default they are almoner's own."""
DIMENSIONS, NOISE = 32, 0.15
LENS_DIMENSIONS, LENS_WORDS, LENS_NOISE = 64, 10, 0.05
SHOWN: Mapping[str, str] = {
    "B000V7CPJG": "a scanner of slides", "B004U3Y9FU": "capsules of fish oil", "B005JS7KME": "insoles against odour",
    "B006CO18RM": "a vacuum cleaner", "B000BYGGBW": "blank DVDs", "B006UF64CW": "sandals",
    "B003U8K0N6": "a laptop charger",
}  # fmt: skip
"""Products of the table of words, as a person names them: the first seven of the file."""
Line = Mapping[str, Any]
Reals = NDArray[np.float32]


def main() -> None:
    arguments = figures_parser(__doc__, OUT).parse_args()
    if not arguments.table:
        there = {line["wording"] for line in read_lines_if_there(arguments.out)}
        model = load(MODEL, "auto", "bfloat16")
        public, test = products(DATA, "public"), products(DATA, "test")
        for name in WORDINGS:
            if name not in there:
                fitted, tested = (states(model, wording_of(name), some) for some in (public, test))
                rows = list(found(name, fitted, test, tested))
                if name == DEFAULT:
                    rows += words_found(model, fitted, test, tested)
                append_lines(arguments.out, rows)
                print(name, fmean(row["found"] for row in rows if "found" in row), flush=True)
    lines = read_lines(arguments.out)
    print("\n".join([*found_table(lines), "", *words_table(lines)]))


def wording_of(name: str) -> AdapterWording:
    """Return a wording; prompts around soft tokens do not matter here."""
    default = default_wording(labelled=False)
    if name == DEFAULT:
        return default
    _, system, turn, opening = WORDINGS[name]
    reading = {"reading_system": system, "reading_private": turn, "reading_opening": opening}
    return default.model_copy(update=reading)


def states(model: LanguageModel, wording: AdapterWording, some: Sequence[Product]) -> list[Tensor]:
    """Return the hidden states of the reviews of each product, float32 [n, D]."""
    limit = TrainingSettings().max_reference_tokens
    pieces = [reading_pieces(model.tokenizer, wording, product.about) for product in some]
    rows = [[reference_tokens(model.tokenizer, text, limit) for text in product.reviews] for product in some]
    sizes = Sizes.of(pieces[:1], pieces, limit, 1, references=max(map(len, rows)))
    return [hidden.values[hidden.valid].float().cpu() for hidden in last_hidden(Engine(model), pieces, rows, sizes)]


def found(
    wording: str, fitted: Sequence[Tensor], some: Sequence[Product], tested: Sequence[Tensor]
) -> Iterator[dict[str, Any]]:
    """Yield a line for each product: how often its mean is the nearest, without and with noise."""
    space, clip_norm = fit_space(fitted, DIMENSIONS, 1, 0)
    vectors = [(clipped(space.represent(rows), clip_norm)).numpy() for rows in tested]
    kinds = [product.about for product in some]
    source, middle = np.random.default_rng(0), space.group_mean.numpy()
    for product, kind, own in zip(range(len(some)), kinds, vectors, strict=True):
        rivals = [place for place, other in enumerate(kinds) if other == kind]
        hits: dict[float, list[bool]] = {0.0: [], NOISE: []}
        for half in halves(len(own)):
            for noise, right in hits.items():
                mean = own[half].mean(0) + noise * clip_norm * source.standard_normal(DIMENSIONS)
                others = [_rest(vectors[place], half).mean(0) for place in rivals]
                right.append(rivals[nearest(mean - middle, np.stack(others) - middle)] == product)
        yield {
            "wording": wording, "product": some[product].id, "products": len(rivals), "reviews": len(own),
            "found": round(fmean(hits[0.0]), 4), "found_with_noise": round(fmean(hits[NOISE]), 4),
        }  # fmt: skip


def halves(count: int) -> list[list[int]]:
    """Return every choice of half the places; the rest of a choice is another one."""
    return [list(half) for half in combinations(range(count), count // 2)]


def _rest(rows: Reals, half: Sequence[int]) -> Reals:
    return np.delete(rows, half, axis=0)


def nearest(point: NDArray[Any], others: NDArray[Any]) -> int:
    """Return the place of the row with the largest cosine."""
    lengths = np.maximum(np.linalg.norm(others, axis=1), 1e-12)
    return int(np.argmax(others @ point / lengths))


def words_found(
    model: LanguageModel, fitted: Sequence[Tensor], some: Sequence[Product], tested: Sequence[Tensor]
) -> Iterator[dict[str, Any]]:
    """Yield a line for each product and level of noise: the words of its mean, and in whose reviews they are."""
    space, clip_norm = fit_space(fitted, LENS_DIMENSIONS, 1, 0)
    lens, source = lens_of(model), torch.Generator().manual_seed(0)
    reviews = {product.id: roots("\n".join(product.reviews)) for product in some}
    kinds = {product.id: product.about for product in some}
    for noise in (0.0, LENS_NOISE):
        for product, rows in zip(some, tested, strict=True):
            mean = clipped(space.represent(rows), clip_norm).mean(0)
            noisy = mean + noise * clip_norm * torch.randn(mean.shape, generator=source)
            shrunk = Space.shrink(space, noisy[None], torch.tensor([noise * clip_norm]))
            tokens = lens.tokens[words_of(shrunk, space.mean, lens, LENS_WORDS)[0]].tolist()
            words = [model.tokenizer.decode([token]).strip() for token in tokens]
            shares = own_and_others(partial(_share_of, reviews, words), product.id, kinds)
            yield {
                "wording": DEFAULT, "product": product.id, "noise": noise, "words": words,
                "own": shares.own, "others": round(fmean(shares.others), 4), "preferred": round(shares.preference, 4),
            }  # fmt: skip


def _share_of(reviews: Mapping[str, frozenset[str]], words: Sequence[str], product: str) -> float:
    return fmean(roots(word) <= reviews[product] for word in words)


def found_table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield Markdown, a row for each wording: means over products with Student's 95 % intervals, differences paired."""
    yield "| reading prompt | products | found | more than the paper's | with noise | more than the paper's |"
    yield "| --- | --- | --- | --- | --- | --- |"
    of = {name: [line for line in lines if line["wording"] == name and "found" in line] for name in WORDINGS}
    for name, own in of.items():
        cells = [WORDINGS[name][0], str(len(own))]
        for figure in ("found", "found_with_noise"):
            values, usual = ([line[figure] for line in some] for some in (own, of[PAPER]))
            more = [value - other for value, other in zip(values, usual, strict=True)]
            cells += [written(interval_of_mean(values), 2), "" if name == PAPER else written(interval_of_mean(more), 2)]
        yield f"| {' | '.join(cells)} |"
    chance = fmean(1 / line["products"] for line in of[PAPER])
    yield f"| by chance | {len(of[PAPER])} | {chance:.2f} |  | {chance:.2f} |  |"


def words_table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield Markdown: some products with their words, and the means of all with intervals, without and with noise."""
    yield "| product | words | in its own reviews | in those of another product | difference | own preferred |"
    yield "| --- | --- | --- | --- | --- | --- |"
    own = [line for line in lines if "words" in line]
    for line in own:
        if line["noise"] == 0 and line["product"] in SHOWN:
            shares = f"{line['own']:.2f} | {line['others']:.2f}"
            yield f"| {SHOWN[line['product']]} | {', '.join(line['words'])} | {shares} |  |  |"
    for noise in dict.fromkeys(line["noise"] for line in own):
        some = [line for line in own if line["noise"] == noise]
        cells = [written(interval_of_mean([line[name] for line in some]), 2) for name in ("own", "others")]
        cells.append(written(interval_of_mean([line["own"] - line["others"] for line in some]), 2))
        cells.append(written(interval_of_mean([line["preferred"] for line in some]), 2))
        level = f"noise of {noise} clip norms" if noise else "no noise"
        yield f"| all {len(some)}, {level} |  | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
