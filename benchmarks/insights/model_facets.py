"""Facets by the built-in model: what its answers say of their texts, with and without a contrast.

    python -m benchmarks.insights.model_facets           # appends what docs/figures/model_facets.jsonl lacks; minutes
    python -m benchmarks.insights.model_facets --table   # the table of docs/facets.md

TEXTS of the 4,233 texts of dolly_prompts, user_prompts_open and oasst_en100, evenly spread over them, each a unit. A
line has the answer to one text, and what can be counted of it without a judge:

    valid       some field is not empty: an answer that is not JSON of the schema leaves all of them empty
    own words   the share of its keywords whose words are all in the text
    preferred   the share of all other texts to which the summary is less close, by the cosine, than to its own
    examples    whether keywords, summary and any field have a word of the examples' facets that the text lacks

The control are the other texts: an answer that says nothing of its text has as many words of another one, and its
summary is as close to half of them. `rake` stands beside the model.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from scipy.stats import binomtest

from benchmarks.common.controls import preference, rotated
from benchmarks.common.figures_parser import figures_parser
from benchmarks.common.intervals import interval_of_difference, interval_of_mean, written
from benchmarks.common.json_lines import DATA, append_lines, read_lines, read_lines_if_there
from benchmarks.insights.cells import MODEL
from tasks.analysis.facets.extractor import extractor_for
from tasks.analysis.facets.parameters import EXAMPLES, FacetSettings
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.loading import load
from tasks.text.keyword_normalisation import roots
from tasks.text.vague_words import VAGUE_WORDS
from tasks.values.insight import KEYWORDS, SUMMARY, Facets

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "model_facets.jsonl"
FILES, TEXTS = ("dolly_prompts", "user_prompts_open", "oasst_en100"), 32
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "model": {"extractor": "model"},
    "model, contrast 0": {"extractor": "model", "contrast": 0},
    "rake": {"extractor": "rake"},
}
OF_EXAMPLES = ("keywords", "summary", "any")
Line = Mapping[str, Any]


def main() -> None:
    parser = figures_parser(__doc__, OUT)
    parser.add_argument("--texts", type=int, default=TEXTS)
    arguments = parser.parse_args()
    if not arguments.table:
        there = {line["setting"] for line in read_lines_if_there(arguments.out)}
        ids, texts = chosen(arguments.texts)
        engine, embed = Engine(load(MODEL, "auto")), load_embedder()
        for setting, given in SETTINGS.items():
            if setting not in there:
                extract = extractor_for(FacetSettings.model_validate(given), engine)
                append_lines(arguments.out, measured(setting, ids, texts, extract(texts), embed))
                print(setting, flush=True)
    print("\n".join(table(read_lines(arguments.out))))


def chosen(count: int, data: Path = DATA) -> tuple[list[str], list[str]]:
    """Return ids and texts, spread evenly over all files."""
    found = [line for name in FILES for line in read_lines(data / f"{name}.jsonl")]
    some = found[:: len(found) // count][:count]
    return [line["id"] for line in some], [line["text"] for line in some]


def measured(
    setting: str, ids: Sequence[str], texts: Sequence[str], found: Sequence[Facets], embed: Any
) -> Iterator[dict[str, Any]]:
    """Yield a line for each text."""
    cosines = points_of(embed, [each.summary or "-" for each in found]) @ points_of(embed, list(texts)).T
    for place, (text, other, facets) in enumerate(zip(texts, rotated(texts), found, strict=True)):
        own, others = float(cosines[place, place]), [*cosines[place, :place], *cosines[place, place + 1 :]]
        copied = {name: bool(words_of_examples(facets, name) - roots(text)) for name in OF_EXAMPLES}
        yield {
            "setting": setting, "id": ids[place], "facets": {} if setting == "rake" else dict(facets.values),
            "valid": any(facets.values.values()), "keywords": len(facets.keywords),
            "own_words": within(facets.keywords, text), "others_words": within(facets.keywords, other),
            "cosine": round(own, 4), "preferred": round(preference(own, others), 4), "examples": copied,
        }  # fmt: skip


def within(keywords: Sequence[str], text: str) -> int:
    """Return how many of the keywords consist of words of the text."""
    return sum(bool(roots(keyword)) and roots(keyword) <= roots(text) for keyword in keywords)


def words_of_examples(facets: Facets, name: str) -> set[str]:
    """Return the words of the examples' facets, without intents and summaries, that a field has, or any field."""
    known = {
        word
        for example in EXAMPLES
        for field, phrases in example.facets.items()
        if field not in ("intent", SUMMARY)
        for phrase in phrases
        for word in roots(phrase) - VAGUE_WORDS
    }
    text = {"keywords": " ".join(facets.values.get(KEYWORDS, ())), "summary": facets.summary, "any": facets.text}[name]
    return known & roots(text)


def table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield Markdown, a row for each setting; Wilson's intervals, Student's of means, and bootstraps of both sums."""
    heads = ("extractor", "n", "an answer", "keywords a text", "of words of the text", "of words of another text",
             "summary nearer to its text")  # fmt: skip
    yield f"| {' | '.join((*heads, *(f'examples in {name}' for name in ('keywords', 'summary', 'any field'))))} |"
    yield "|" + " --- |" * (len(heads) + len(OF_EXAMPLES))
    for setting in dict.fromkeys(line["setting"] for line in lines):
        own = [line for line in lines if line["setting"] == setting]
        cells = [str(len(own)), shares([line["valid"] for line in own])]
        cells.append(written(interval_of_mean([line["keywords"] for line in own]), 1))
        cells += [_percent(ratio(own, name)) for name in ("own_words", "others_words")]
        cells.append(_percent([100 * value for value in interval_of_mean([line["preferred"] for line in own])]))
        copied = [shares([line["examples"][name] for line in own]) for name in OF_EXAMPLES]
        name, comma, rest = setting.partition(",")
        yield f"| `{name}`{comma}{rest} | {' | '.join((*cells, *copied))} |"


def ratio(lines: Sequence[Line], name: str) -> list[float]:
    """Return the share of all keywords, in per cent, and a bootstrap over texts."""

    def share(some: Sequence[Line], _: Sequence[Line]) -> float:
        return float(100 * sum(line[name] for line in some) / max(1, sum(line["keywords"] for line in some)))

    return interval_of_difference(lines, lines[:1], share, seed=0)


def shares(values: Sequence[bool]) -> str:
    """Return the share that is true, with Wilson's 95 % interval."""
    interval = binomtest(sum(values), len(values)).proportion_ci(method="wilson")
    return _percent([100 * fmean(values), 100 * interval.low, 100 * interval.high])


def _percent(values: Sequence[float]) -> str:
    return written(values, 0, " %")


if __name__ == "__main__":
    main()
