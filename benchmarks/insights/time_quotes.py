"""Quoted time of insights, texts and summaries beside the processor time that a run takes, from start to last row.

    python -m benchmarks.insights.time_quotes --to docs/figures/time_quotes.jsonl   # what is missing
    python -m benchmarks.insights.time_quotes --table                               # of docs/insights-results.md

A run is a process of its own, so that it imports libraries and loads its models; a bench without a ledger, because the
corpus (agnews) is public. `--one` is such a process. Its processor time is that of one thread.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common.json_lines import DATA, append_lines, read_lines, read_lines_if_there

if TYPE_CHECKING:
    from tasks.pricing.quote import Quote

CORPUS, MODEL = "agnews", "smollm2-135m-instruct"
OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "time_quotes.jsonl"
ANSWERS = ("world", "sports", "business", "science")
PUBLIC = ("football", "election", "market", "software", "court", "oil prices")
GROUPS = ("Business", "Sci/Tech", "Sports", "World")
"""Labels of the corpus."""
KINDS = {"token_level_summary": "summaries"} | dict.fromkeys(
    ("keyphrase_seeding", "private_evolution", "steering_vector"), "synthetic_corpus"
)
"""Of mechanisms that make no insights."""
_ASKED: Mapping[str, Any] = {"question": "What is the text about?"}
_BY_KEYWORDS = [{"name": name, "keywords": [name]} for name in ANSWERS]
_BY_MODEL = [{"name": name} for name in ANSWERS]
SYSTEMS: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {
    "urania, `tfidf`": ("urania", 600, {"clusters": {"count": 8}}),
    "urania, `model`": ("urania", 600, {"clusters": {"count": 8}, "keywords": {"method": "model"}}),
    "urania, `public`": (
        "urania", 600, {"clusters": {"count": 8}, "keywords": {"method": "public", "words": PUBLIC}},
    ),
    "simple_clio": ("simple_clio", 600, {"count": 8}),
    "question_histogram, keywords": ("question_histogram", 600, {"questions": [{**_ASKED, "answers": _BY_KEYWORDS}]}),
    "question_histogram, model": (
        "question_histogram", 60, {"questions": [{**_ASKED, "rule": "model", "answers": _BY_MODEL}]},
    ),
    "keyphrase_seeding": ("keyphrase_seeding", 600, {"samples": 16, "references": 600, "max_new_tokens": 64}),
    "private_evolution": ("private_evolution", 600, {"samples": 8, "rounds": 3, "max_new_tokens": 32}),
    "steering_vector": ("steering_vector", 200, {"samples": 16, "references": 200, "max_new_tokens": 48}),
    "token_level_summary": (
        "token_level_summary", 60,
        {
            "groups": GROUPS, "groups_per_unit": 1, "references": 15, "temperature": "0.3",
            "max_new_tokens": 32, "max_reference_tokens": 96,
        },
    ),
}  # fmt: skip
"""Mechanism, units and parameters, by name."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=OUT)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--one", choices=list(SYSTEMS), help="run this system in this process, and print its line")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(run(arguments.one)))
        return
    if not arguments.table:
        there = {line["system"] for line in read_lines_if_there(arguments.to)}
        for name in (name for name in arguments.systems if name not in there):
            command = [sys.executable, "-m", "benchmarks.insights.time_quotes", "--one", name]
            made = subprocess.run(command, check=True, capture_output=True, text=True)
            append_lines(arguments.to, [json.loads(made.stdout.splitlines()[-1])])
    print("\n".join(table(read_lines(arguments.to))))


def run(name: str) -> dict[str, Any]:
    """Run one system, and return its time from the start of this process, with the times of each kind of progress."""
    import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
    import torch

    from benchmarks.common.open_bench import KEY, open_bench
    from models_db.home import ProjectHome
    from tasks.corpus.ingest import ingest
    from tasks.corpus.store import open_corpus
    from tasks.inference.engine.engine import Engine
    from tasks.inference.loading.loading import load

    torch.set_num_threads(1)
    priced = quoted(name)
    with tempfile.TemporaryDirectory() as folder:
        before = time.process_time()
        home, source = ProjectHome(Path(folder) / "home"), Path(folder) / "texts.jsonl"
        home.create()
        rows = read_lines(DATA / f"{CORPUS}.jsonl")[: SYSTEMS[name][1]]
        source.write_text(
            "".join(
                json.dumps({"unit": str(n), "text": row["text"], "label": row["label"]}) + "\n"
                for n, row in enumerate(rows)
            )
        )
        label = "label" if "groups" in SYSTEMS[name][2] else None
        corpus = open_corpus(home, ingest(home, source, "unit", KEY, label_field=label).uid)
        ingesting = time.process_time() - before
        seen: list[tuple[str, int, int, float]] = []

        def progress(what: str, done: int, total: int) -> None:
            seen.append((what, done, total, time.process_time()))

        bench = replace(open_bench(Engine(load(MODEL, "auto")), corpus, priced.prompt), progress=progress)
        made = priced.system.generate(priced.plan, priced.parameters, bench)
    return {
        "system": name,
        "units": SYSTEMS[name][1],
        "rows": len(made.texts),
        "quoted": priced.seconds,
        "processor": round(time.process_time() - ingesting, 1),
        "progress": [[what, steps, round(took, 1)] for what, steps, took in _stages(seen)],
    }


def _stages(seen: Sequence[tuple[str, int, int, float]]) -> Iterator[tuple[str, int, float]]:
    """Yield the stages that reported progress: how often, and processor seconds from first to last report."""
    for what in dict.fromkeys(each[0] for each in seen):
        own = [each[3] for each in seen if each[0] == what]
        yield what, len(own), own[-1] - own[0]


def quoted(name: str) -> "Quote":
    """The price of one system's request, as `almoner release request` has it."""
    from models_db.services.lifecycle.ledger import Balance
    from models_db.values.amounts import Amount
    from models_db.values.requests import ReleaseRequest, parse_model
    from tasks.accounting.budget_facts import BudgetFacts
    from tasks.accounting.lifetime_claims import lifetime_claim
    from tasks.accounting.zcdp import lifetime_cap
    from tasks.pricing.model_facts import model_facts
    from tasks.pricing.quote import DatasetFacts, quote

    mechanism, units, parameters = SYSTEMS[name]
    request = {
        "dataset": CORPUS, "kind": KINDS.get(mechanism, "insights"), "mechanism": mechanism, "model": MODEL,
        "parameters": dict(parameters),
        "prompt": {"description": "news"}, "evaluation": [],
        **({} if mechanism == "simple_clio" else {"epsilon": 8.0, "delta": 1.0e-6}),
    }  # fmt: skip
    cap = lifetime_cap("8", "1e-6").amount
    facts = DatasetFacts(
        name=CORPUS, unit_field="unit", relation="add_or_remove_one", governed=mechanism != "simple_clio",
        population=units, blocks=1, version=1, version_uid="u" * 32,
        budget=BudgetFacts(lifetime_claim("8", "1e-6"), Balance(cap, Amount(), Amount(), cap)),
    )  # fmt: skip
    return quote(parse_model(ReleaseRequest, request, "The request"), facts, model_facts(MODEL), "p" * 64, "c" * 64)


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown: quoted and measured seconds, and which stages report progress."""
    yield "| system | units | quoted, s | processor, s | quoted / measured | stages with progress (reports) |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for line in lines:
        stages = ", ".join(f"{what} ({steps})" for what, steps, _ in line["progress"])
        factor = line["quoted"] / line["processor"]
        yield (
            f"| {line['system']} | {line['units']} | {line['quoted']} | {line['processor']:.0f} | {factor:.2f} "
            f"| {stages} |"
        )


if __name__ == "__main__":
    main()
