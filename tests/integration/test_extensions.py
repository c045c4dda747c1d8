"""A package of others adds a system, a mechanism, a metric, a reader and a family; its code is part of the approval."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

CONCERNS = (
    "flows/releases",
    "tasks/common",
    "tasks/corpus/readers",
    "tasks/mechanisms",
    "tasks/pricing",
    "tests/extension_example",
)
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests" / "extension_example"
PEOPLE = 40
REQUEST = {
    "dataset": "clinic",
    "kind": "synthetic_corpus",
    "mechanism": "laboratory.word_counts",
    "epsilon": 4.0,
    "delta": 1.0e-7,
    "model": "tiny",
    "parameters": {"words": ["cough", "fever", "zebra"], "samples": 3},
    "prompt": {"description": "Notes of a doctor."},
    "evaluation": ["laboratory.digits"],
}


@dataclass(frozen=True)
class Machine:
    """A home, and an environment in which the example may be installed."""

    folder: Path

    @property
    def site(self) -> Path:
        """Where pip installs the example."""
        return self.folder / "site"

    def install(self) -> None:
        """Install the example as a user would, without an index."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        source = shutil.copytree(EXAMPLE, self.folder / "source", dirs_exist_ok=True)
        subprocess.run([*pip, "--no-build-isolation", "--no-index", "--target", self.site, source], check=True)

    def type(self, *lines: str, codes: tuple[int, ...] | None = None) -> list[str]:
        """Type commands in one new process; return what each said, and check its exit code, by default 0."""
        environment = os.environ | {
            "PYTHONPATH": f"{ROOT}{os.pathsep}{self.site}",
            "ALMONER_HOME": str(self.folder / "home"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.integration.commands_process"],
            cwd=self.folder,
            env=environment,
            input="".join(json.dumps(shlex.split(line)) + "\n" for line in lines),
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, done.stderr
        said = [json.loads(line) for line in done.stdout.splitlines()]
        assert tuple(code for code, _ in said) == (codes or (0,) * len(lines)), said
        return [" ".join(words.split()) for _, words in said]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """The example is installed, and a dataset is registered from a file that only its reader can read."""
    machine = Machine(tmp_path)
    machine.install()
    rows = [f"p{person:03}\ta {('cough', 'fever')[person % 2]} again" for person in range(PEOPLE)]
    (tmp_path / "notes.tsv").write_text("\n".join(["patient_id\ttext", *rows]) + "\n")
    (tmp_path / "request.yaml").write_text(yaml.safe_dump(REQUEST))
    return machine


BEGINNING = (
    "init",
    "dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6",
    "dataset ingest clinic notes.tsv",
    "release request request.yaml",
    "approve 1 --gate spend --reason 'a look at the words'",
)


def test_a_release_by_an_extension_from_its_file_to_the_verified_bundle(machine: Machine) -> None:
    said = machine.type(
        *BEGINNING,
        "doctor",
        "release show 1",
        "run 1",
        "approve 1 --gate publish --reason 'counts of three words'",
        "publish 1 --to out",
        "verify-release out/clinic-release-1",
    )
    assert "almoner-laboratory 1.0" in said[5]
    assert "almoner-laboratory 1.0" in said[6]
    bundle = machine.folder / "out" / "clinic-release-1"
    texts = [json.loads(line)["text"] for line in (bundle / "texts.jsonl").read_text().splitlines()]
    counts = {word: int(count) for word, count in (text.split(": ") for text in texts)}
    truth = {"cough": PEOPLE / 2, "fever": PEOPLE / 2, "zebra": 0}
    assert all(abs(counts[word] - true) < 20 for word, true in truth.items())
    assert '"almoner-laboratory":"1.0"' in (bundle / "release.json").read_text()
    shutil.rmtree(machine.site)
    (refused,) = machine.type("verify-release out/clinic-release-1", codes=(1,))
    assert "knows no mechanism 'laboratory.word_histogram'" in refused


def test_a_changed_extension_is_not_what_was_approved(machine: Machine) -> None:
    machine.type(*BEGINNING)
    code = machine.site / "laboratory" / "word_counts.py"
    (information,) = machine.site.glob("*.dist-info/METADATA")
    for file, old, new in ((code, "100", "101"), (information, "Version: 1.0", "Version: 1.1")):
        before = file.read_text()
        file.write_text(before.replace(old, new) + "\n")
        (said,) = machine.type("run 1 --json", codes=(1,))
        assert "PlanChanged" in said
        file.write_text(before)
    shutil.rmtree(machine.site)
    said, budget = machine.type("run 1 --json", "budget show clinic --json", codes=(2, 0))
    assert "UnknownSystem" in said
    assert json.loads(budget)["rho_spent"] == "0"


def test_beside_an_extension_that_cannot_be_used_almoner_works_and_doctor_says_why(machine: Machine) -> None:
    machine.type("init", "dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6")
    (machine.folder / "notes.jsonl").write_text('{"patient_id": "p1", "text": "a cough"}\n')
    (machine.site / "laboratory" / "word_counts.py").write_text("raise ValueError('a private word')\n")
    said = machine.type(
        "dataset ingest clinic notes.jsonl",
        "budget show clinic",
        "audit verify",
        "release list",
        "doctor",
        "release request request.yaml",
        codes=(0, 0, 0, 0, 3, 3),
    )
    for words in said[4:]:
        assert "'almoner-laboratory' extends almoner by 'laboratory.word_counts', which cannot be used" in words
        assert "a private word" not in words
