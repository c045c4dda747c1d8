"""What is written about almoner is true of it: commands, options, links, examples."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import typer
import yaml
from typer.core import TyperGroup

from cli.app import app
from cli.command_table import ListedCommand
from flows.workspace.policy_file import DEFAULT_POLICY
from models_db.policies.policy import Policy
from models_db.values.requests import ReleaseRequest, model_to_json, parse_model
from tasks.accounting.renyi_account import bounds_of
from tasks.evaluation.policy_bounds import require_measurable
from tasks.evaluation.registry import METRICS
from tasks.evaluation.registry import names as metric_names
from tasks.planning.parameter_choices import CHOSEN_PARAMETERS
from tasks.systems.invisible_ink import InvisibleInkParameters
from tasks.systems.private_decoding import COUNT_SHARE
from tasks.systems.registry import SYSTEMS
from tests.conftest import CONTRACT as CONTRACT_FOLDERS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
ROOMS = ("almoner", "cli", "flows", "tasks", "models_db", "migrations")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
README = (ROOT / "README.md").read_text()
REQUESTS = (ROOT / "docs" / "requests.md").read_text()


def commands(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name."""
    for name, listed in group.commands.items():
        found = listed.load() if isinstance(listed, ListedCommand) else listed
        if isinstance(found, TyperGroup):
            yield from commands(found, (*path, name))
        else:
            yield " ".join((*path, name)), found


ROOT_COMMAND = typer.main.get_command(app)
assert isinstance(ROOT_COMMAND, TyperGroup)
COMMANDS = dict(commands(ROOT_COMMAND))
CONTRACT = (
    "init", "doctor", "dataset register", "dataset ingest", "dataset list", "dataset show",
    "dataset cap", "budget show", "budget forecast", "budget simulate",
    "proposal list", "proposal show",
    "standing propose", "standing list", "standing show", "standing end",
    "release request", "release list", "release show", "release withdraw", "release extend", "release retract",
    "release mark-exposed", "retract",
    "approve", "reject", "run", "report", "publish", "verify-release",
    "policy show", "policy check", "policy adopt", "policy schema",
    "user add", "user list", "user grant", "user revoke",
    "audit log", "audit verify", "audit checkpoint", "audit export",
    "attack run", "attack list", "plan", "rehearse", "models list", "models pull", "models endpoint add",
    "models endpoint list", "models endpoint remove", "dashboard", "demo",
    "adapter train", "adapter list", "adapter show", "backup", "restore",
)  # fmt: skip


def parsed(line: str) -> None:
    """Parse a command line as the shell would hand it over, without running it."""
    words = shlex.split(line, comments=True)[1:]
    if words == ["run", "sweep"] or not words:
        return
    name, length = next(((" ".join(words[:n]), n) for n in (3, 2, 1) if " ".join(words[:n]) in COMMANDS), ("", 0))
    assert name, f"there is no command for: {line}"
    COMMANDS[name].make_context(name, words[length:], parent=typer.Context(ROOT_COMMAND))


@pytest.mark.parametrize("name", CONTRACT)
def test_the_contract_has_its_commands(name: str) -> None:
    assert name in COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_explains_itself(name: str) -> None:
    text = COMMANDS[name].help or ""
    assert len(text.split("\n")[0].split()) >= 3
    example = re.search(r"^Example: (almoner .+)$", text, re.MULTILINE)
    assert example, f"{name} has no example"
    assert example.group(1).startswith(f"almoner {name}")
    parsed(example.group(1))


def test_the_page_of_commands_says_what_their_help_says() -> None:
    """Each command is on docs/commands.md, with the first line of its help and its example, and no other is."""
    page = (ROOT / "docs" / "commands.md").read_text()
    rows = dict(re.findall(r"^\| `almoner ([a-z -]+)` \| (.+) \|$", page, re.MULTILINE))
    helps = {name: command.help or "" for name, command in COMMANDS.items()}
    assert rows == {name: text.split("\n")[0].strip() for name, text in helps.items()}
    examples = [line for block in code_blocks(page) for line in block.splitlines()]
    shown = [re.findall(r"^Example: (almoner .+)$", text, re.MULTILINE)[0] for text in helps.values()]
    assert sorted(examples) == sorted(shown)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_a_home_and_answers_in_json(name: str) -> None:
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert {"--home", "--json", "--json-schema"} <= options


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_is_explained(name: str) -> None:
    for parameter in COMMANDS[name].params:
        assert getattr(parameter, "help", None), f"{name}: {parameter.name}"


def code_blocks(page: str, language: str = "") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


LINES = [
    line.strip()
    for page in PAGES
    for block in code_blocks(page.read_text(), "[a-z]*")
    for line in block.splitlines()
    if line.strip().startswith("almoner ")
]


@pytest.mark.parametrize("line", LINES)
def test_commands_in_the_documentation_can_be_typed(line: str) -> None:
    parsed(line)


def test_the_readme_tells_the_whole_story() -> None:
    story = ["init", "dataset register", "dataset ingest", "release request", "approve", "run", "publish"]
    told = [line for line in LINES if line in README]
    at = [next(i for i, line in enumerate(told) if line.startswith(f"almoner {step}")) for step in story]
    assert at == sorted(at)


MENTION = re.compile(r"`almoner ([a-z-]+)(?: ([a-z-]+))?")


def exists(first: str, second: str) -> bool:
    named = f"{first} {second}".strip()
    if first.startswith("-"):
        return any(first in option.opts for option in ROOT_COMMAND.params) or first == "--help"
    return first in ("help", *COMMANDS) or any(name == named or name.startswith(f"{named} ") for name in COMMANDS)


def test_commands_that_are_mentioned_exist() -> None:
    """In the documentation, and in the advice of errors."""
    found = [
        f"{path.relative_to(ROOT)}: almoner {first} {second}"
        for path in (*PAGES, *SOURCES)
        for first, second in MENTION.findall(path.read_text())
        if not exists(first, second)
    ]
    assert found == []


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Every link of a page to a file of ours: as written, the file, the heading."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            file, _, anchor = target.partition("#")
            yield target, (page.parent / file).resolve() if file else page, anchor


def headings(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in found}


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target, file, anchor in links(page)
        if not file.exists() or (anchor and anchor not in headings(file))
    ]
    assert broken == []


MARKED = re.compile(r"^pytestmark = .*pytest\.mark\.contract", re.MULTILINE)
PATHS = re.compile(r"docs/[\w./-]*\w")


def test_pages_that_code_and_documentation_cite_exist() -> None:
    """`docs/decisions/0002` stands for the file that begins so."""
    missing = [
        f"{path.relative_to(ROOT)}: {cited}"
        for path in (*PAGES, *SOURCES)
        for cited in PATHS.findall(path.read_text())
        if not list(ROOT.glob(f"{cited}*"))
    ]
    assert missing == []


def test_every_extra_is_on_the_page_of_installing() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "install.md").read_text()
    listed = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {name for row in listed for name in re.findall(r"`(\w+)`", row)} == set(extras)
    named = {name for other in (*PAGES, *SOURCES) for name in re.findall(r"almoner\[(\w+)\]", other.read_text())}
    assert named <= set(extras)


def test_make_targets_that_are_mentioned_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        assert set(re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", page.read_text(), re.MULTILINE)) <= {
            pair for target in targets for pair in ((target, ""), ("", target))
        }


def test_every_clause_of_the_contract_names_the_tests_that_hold_it() -> None:
    sections = (ROOT / "docs" / "contract.md").read_text().split("\n## ")[1:]
    proofs = [set(re.findall(r"^- `(tests/[\w/.]+)`$", section, re.MULTILINE)) for section in sections]
    assert [int(section.partition(".")[0]) for section in sections] == list(range(1, 18))
    assert all(proofs)
    named = {
        file
        for each in proofs
        for path in each
        for file in ((ROOT / path).rglob("test_*.py") if (ROOT / path).is_dir() else [ROOT / path])
    }
    marked = {
        file
        for file in (ROOT / "tests").rglob("test_*.py")
        if MARKED.search(file.read_text()) or set(CONTRACT_FOLDERS) & set(file.parents)
    }
    assert named == marked


def request_examples() -> list[str]:
    return [block for page in PAGES for block in code_blocks(page.read_text(), "yaml") if block.startswith("dataset:")]


def test_the_request_in_the_readme_is_one() -> None:
    examples = request_examples()
    assert examples
    for example in examples:
        request = parse_model(ReleaseRequest, yaml.safe_load(example), "The example")
        parse_model(SYSTEMS[request.mechanism].parameters, request.parameters, "Its parameters")


def table_of(page: str, heading: str) -> dict[str, list[str]]:
    """The rows below a heading, by what stands in their first cell between backquotes."""
    part = page.partition(heading)[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| `")]
    return {name: [cell.strip() for cell in row] for row in rows for name in re.findall(r"`([\w.]+)`", row[0])}


def test_every_field_of_a_request_is_documented() -> None:
    fields = table_of(REQUESTS.partition("## Parameters")[0], "# The request file")
    assert {name.split(".")[0] for name in fields} == set(ReleaseRequest.model_fields)


def test_every_parameter_is_documented_with_its_default() -> None:
    documented = table_of(REQUESTS, "## Parameters of `invisible_ink`")
    assert set(documented) == set(map(InvisibleInkParameters.written_name, InvisibleInkParameters.model_fields))
    for name, field in InvisibleInkParameters.model_fields.items():
        default = documented[InvisibleInkParameters.written_name(name)][1].strip("`")
        if field.is_required():
            assert name in CHOSEN_PARAMETERS
            assert default == "[chosen](#what-almoner-chooses)"
        elif field.default not in (None, ()):
            assert default == str(field.default)


def test_every_choice_is_documented() -> None:
    assert set(table_of(REQUESTS, "## What almoner chooses")) == set(CHOSEN_PARAMETERS)


def test_every_level_of_the_judgement_is_documented() -> None:
    planning = (ROOT / "docs" / "planning.md").read_text()
    clippings = ({}, {"clipping": "logit"})
    for levels in {system.influence_levels(clipping) for system in SYSTEMS.values() for clipping in clippings}:
        for level in levels[:-1]:
            low, high = sorted(level.closer)
            assert f"from {level.clip_norm} ({low if low == high else f'{low} to {high}'} %)" in planning


@pytest.mark.parametrize("name", ["private_prediction", "private_icl", "few_shot_generation", "adapmixed"])
def test_every_parameter_of_the_other_decoders_is_documented_with_its_default(name: str) -> None:
    """Those that InvisibleInk has not, and those with another default."""
    documented, fields = table_of(REQUESTS, f"## Parameters of `{name}`"), SYSTEMS[name].parameters.model_fields
    ink = InvisibleInkParameters.model_fields
    other = {field for field in fields if field not in ink or fields[field].default != ink[field].default}
    assert set(documented) - {"top_k"} == other - {"top_k"}
    for field in documented:
        if fields[field].default is not None:
            assert documented[field][1].strip("`") == str(fields[field].default)


def test_what_the_readme_says_answers_a_question_is_there() -> None:
    rows = re.findall(r"^\| .*? \| `(\w+)`, (`.+?`) \| .*? \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    named = [(kind, mechanism) for kind, cell in rows for mechanism in re.findall(r"`(\w+)`", cell)]
    assert named[:2] == [("insights", "question_histogram"), ("insights", "urania")]
    assert [(kind, mechanism) for kind, mechanism in named if kind not in SYSTEMS[mechanism].kinds] == []


def test_every_mechanism_and_every_metric_for_requests_is_documented() -> None:
    fields = table_of(REQUESTS, "# The request file")
    assert set(re.findall(r"`(\w+)`", fields["mechanism"][1])) == set(SYSTEMS)
    assert re.findall(r"`(\w+)`", fields["evaluation"][1]) == metric_names("charged")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted((metric.name, metric.exposure) for metric in METRICS.values())
    assert f"1/{COUNT_SHARE} of its rho" in REQUESTS


POLICY_PAGE = (ROOT / "docs" / "policy.md").read_text()


def test_the_policy_that_init_writes_shows_every_field_and_says_its_defaults() -> None:
    """A line that is switched off is one that may be switched on."""
    assert set(re.findall(r"^(?:# )?(\w+): ", DEFAULT_POLICY, re.MULTILINE)) == set(Policy.model_fields)
    switched_on = re.sub(r"^# (\w+: .*)$", r"\1", DEFAULT_POLICY, flags=re.MULTILINE)
    for text in (DEFAULT_POLICY, switched_on):
        assert parse_model(Policy, yaml.safe_load(text), "policy.yaml").several_roles is True
    assert set(yaml.safe_load(switched_on)) == set(Policy.model_fields)


def test_every_field_of_a_policy_is_documented_with_its_default() -> None:
    documented = table_of(POLICY_PAGE, "## Fields")
    assert set(documented) == set(Policy.model_fields)
    for name, field in Policy.model_fields.items():
        default = documented[name][1].strip("`")
        shown = yaml.safe_load(default) if default != "none" else None
        written = model_to_json(field.get_default(call_default_factory=True))
        assert (shown or None) == (written or None), name


def test_the_policies_in_the_documentation_are_policies() -> None:
    examples = [block for block in code_blocks(POLICY_PAGE, "yaml") if block.startswith("version: 1")]
    assert len(examples) >= 2
    for example in examples:
        policy = parse_model(Policy, yaml.safe_load(example), "The example")
        for name in ("", *policy.datasets):
            require_measurable(policy.rules_for(name).required)
            bounds_of(policy.rules_for(name))


SIGNED = re.compile(
    r"""almoner approve (\d+) --gate publish --reason|(?<!def )\bapprove\("publish", |"approve", "read"""
)
READ = re.compile(r"almoner release texts \d+|\.texts\(\)|\.topics\(\)|read_release_texts\(")
EXAMPLES = {
    **{path.relative_to(ROOT).as_posix(): path.read_text() for path in PAGES},
    "almoner/__init__.py": (ROOT / "almoner" / "__init__.py").read_text(),
    **{
        path.name: "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
        for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    },
}


def signed_unread(text: str) -> list[str]:
    """The lines that approve texts of which the last twenty lines have shown none."""
    lines = text.splitlines()
    return [
        line
        for number, line in enumerate(lines)
        if SIGNED.search(line) and not READ.search("\n".join(lines[max(0, number - 20) : number]))
    ]


def test_no_example_signs_what_nobody_has_read() -> None:
    assert {page: unread for page, text in EXAMPLES.items() if (unread := signed_unread(text))} == {}
    assert sum(bool(SIGNED.search(text)) for text in EXAMPLES.values()) >= 10
    assert signed_unread('almoner run 1\nalmoner approve 1 --gate publish --reason "fine"')
    assert signed_unread('release.run()\nrelease.approve("publish", reason="fine")')
