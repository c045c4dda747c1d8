"""Library of learnt curves: rehearsals on public corpora at several settings, for what `almoner plan` expects of one.

    python -m benchmarks.rehearsals DATA tasks/pricing/rehearsed_shares.jsonl
    python -m benchmarks.rehearsals DATA tasks/pricing/rehearsed_shares.jsonl --model gemma3-270m --form completion

DATA is a folder with `yelp.jsonl` and `mts_dialog.jsonl` (a line has `text`). Only figures are written, one line for
each corpus, model and clip norm of `invisible_ink`. A line that is there already is kept, so an interrupted run goes
on. References are made once for each corpus and model: they depend on neither the claim nor the clip norm.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common.drawn_releases import DEFAULT_MODEL
from benchmarks.common.json_lines import append_lines, read_lines_if_there, write_lines
from flows.rehearsals.rehearse import RehearsalOptions, RehearsalTools, rehearse_request
from flows.rehearsals.stored_results import RehearsalFolder
from flows.releases.propose import price_request
from flows.workspace.workspace import open_workspace
from models_db.home import ProjectHome
from models_db.values.requests import ReleaseRequest, parse_model
from tasks.accounting import zcdp
from tasks.common.extensions import code_digest
from tasks.rehearsal.measures import REFERENCE_WORSE
from tasks.rehearsal.result import configuration_digest

CORPORA = {"yelp": "A review of a business.", "mts_dialog": "A dialogue between a doctor and a patient."}
REFERENCES, TOKENS, REFERENCE_TOKENS, PEOPLE, DELTA = 7, 24, 96, 400, "1e-6"
MECHANISM = "invisible_ink"
CLIP_NORMS = (0.3, 1.0, 2.5)
SHARED = ("split.json", "texts-public_only.json", "texts-non_private.json")


@dataclass(frozen=True)
class Rehearsed:
    """What is rehearsed on each corpus and at each clip norm.

    Attributes:
        form: of the prompt; `completion` for a base model.
        texts: of each rehearsal.
    """

    model: str
    form: str
    texts: int


def main() -> None:
    """Rehearse every setting on every corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--form", default="chat", choices=("chat", "completion"), help="completion for a base model")
    parser.add_argument("--settings", type=float, nargs="+", default=CLIP_NORMS, help="clip norms")
    parser.add_argument("--corpora", nargs="+", default=list(CORPORA), choices=CORPORA)
    parser.add_argument("--texts", type=int, default=48)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    rehearsed = Rehearsed(given.model, given.form, given.texts)
    tools = RehearsalTools.load(given.model, given.device)
    with TemporaryDirectory() as folder:
        home = _home(Path(folder), given.data, given.corpora)
        for setting in given.settings:
            for corpus in given.corpora:
                if (corpus, given.model, setting) not in set(_measured(given.out)):
                    append_lines(given.out, [_rehearse(home, corpus, setting, rehearsed, tools)])


def _home(folder: Path, data: Path, corpora: list[str]) -> ProjectHome:
    """Make a home with the public corpora."""
    home = folder / "home"
    _type(home, "init")
    for corpus in corpora:
        lines = (data / f"{corpus}.jsonl").read_text().splitlines()
        texts = [json.loads(line)["text"] for line in lines]
        chosen = [{"id": f"{corpus}-{number}", "text": text} for number, text in enumerate(texts) if text.strip()]
        source = folder / f"{corpus}.jsonl"
        write_lines(source, chosen[: PEOPLE + 200])
        claim = ("--epsilon", "100", "--delta", "1e-5", "--population", str(PEOPLE))
        _type(home, "dataset", "register", corpus, "--public", "--unit", "id", *claim)
        _type(home, "dataset", "ingest", corpus, str(source))
    return ProjectHome(home)


def _type(home: Path, *words: str) -> None:
    program = "from cli.app import main; main()"
    subprocess.run([sys.executable, "-c", program, *words, "--home", str(home)], check=True, capture_output=True)


def _request(corpus: str, setting: float, rehearsed: Rehearsed) -> dict[str, object]:
    """Return a request whose clip norm is about `setting`: C = B sqrt(2 rho / T) at temperature 1."""
    rho = (setting / REFERENCES) ** 2 * TOKENS / 2
    epsilon = f"{zcdp.epsilon_of(round(rho * 10**12), DELTA):.4f}"
    parameters = {
        "samples": rehearsed.texts, "max_new_tokens": TOKENS, "temperature": 1, "references": REFERENCES,
        "max_reference_tokens": REFERENCE_TOKENS,
    }  # fmt: skip
    return {
        "dataset": corpus, "kind": "synthetic_corpus", "mechanism": MECHANISM, "epsilon": epsilon,
        "delta": DELTA, "model": rehearsed.model, "parameters": parameters,
        "prompt": {"description": CORPORA[corpus], "form": rehearsed.form},
    }  # fmt: skip


def _rehearse(
    home: ProjectHome, corpus: str, setting: float, rehearsed: Rehearsed, tools: RehearsalTools
) -> dict[str, Any]:
    begun, processor = time.time(), time.process_time()
    request = _request(corpus, setting, rehearsed)
    priced = price_request(open_workspace(home), parse_model(ReleaseRequest, request, "The request"))
    _share_references(home, configuration_digest(priced.body), priced.dataset.version_uid)
    result = rehearse_request(home.root, RehearsalOptions(request, corpus, rehearsed.texts), tools=tools).result
    spent = {"seconds": round(time.time() - begun), "processor_seconds": round(time.process_time() - processor)}
    print(corpus, setting, result.sentence, spent, flush=True)
    return {
        "corpus": corpus, "model": rehearsed.model, "form": rehearsed.form, "mechanism": MECHANISM,
        "wanted": setting, "clip_norm": priced.plan.facts["clip norm C"], "references": REFERENCES,
        "tokens": TOKENS, "texts": rehearsed.texts,
        "people": result.people, "held_out": result.held_out, "code": code_digest()[:12], **spent,
        "metrics": [one.model_dump(mode="json", exclude_none=True) for one in result.metrics],
    }  # fmt: skip


def _share_references(home: ProjectHome, configuration: str, uid: str) -> None:
    """Give a rehearsal the people and the references of an earlier one on the same corpus."""
    folder = RehearsalFolder.of(home, configuration, uid)
    earlier = sorted(home.root.glob(f"rehearsals/*-{uid[:12]}"))
    if earlier and not folder.path.exists():
        for name in SHARED:
            folder.write(name, json.loads((earlier[0] / name).read_bytes()))


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A row for each clip norm and corpus."""
    heads = {"mauve": "share", "perplexity_gap": "by perplexity gap", "coverage": "by coverage"}
    yield f"| model | clip norm | corpus | MAUVE: public, request, no privacy | {' | '.join(heads.values())} |"
    yield "| --- | --- | --- | --- |" + " --- |" * len(heads)
    models = list(dict.fromkeys(line["model"] for line in lines))
    for line in sorted(
        lines, key=lambda line: (models.index(line["model"]), line["wanted"], list(CORPORA).index(line["corpus"]))
    ):
        metrics = {one["metric"]: one for one in line["metrics"]}
        systems = (f"{Decimal(metrics['mauve'][name]):.3f}" for name in ("public_only", "request", "non_private"))
        found = [f"{line['wanted']:g}", line["corpus"], ", ".join(systems), *(_share(metrics[name]) for name in heads)]
        yield "| " + " | ".join([line["model"], *found]) + " |"


def _share(metric: Mapping[str, Any]) -> str:
    if "share" in metric:
        return f"{metric['share']} % [{metric['low']}, {metric['high']}]"
    return "undefined" if metric["reason"] == REFERENCE_WORSE else "indistinguishable"


def _measured(out: Path) -> Iterator[tuple[str, str, float]]:
    for line in read_lines_if_there(out):
        yield line["corpus"], line["model"], line["wanted"]


if __name__ == "__main__":
    main()
