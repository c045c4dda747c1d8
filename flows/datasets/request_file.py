"""Request files that are written for people: one of a plan's alternatives as YAML."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path

import yaml

from flows.datasets.plan_release import ReleasePlan
from flows.workspace.yaml_files import file_unwritable, new_file
from models_db.values.canonical_json import Json
from models_db.values.requests import EXAMPLE_PLACEHOLDER
from tasks.common.files import write_over

EXAMPLES = [f"{EXAMPLE_PLACEHOLDER}: {text}." for text in ("a text that you invent", "another one")]
"""Examples of a request whose author gave none; it is refused until they are replaced."""


def write_request(path: Path, plan: ReleasePlan, number: int, *, force: bool = False) -> None:
    """Write one of the alternatives as a request file.

    Args:
        force: whether an earlier file is replaced.

    Raises:
        NoSuchAlternative: the plan has fewer.
        FileUnwritable: the file exists, or cannot be written.
    """
    one = plan.choice(number)
    comments = [f"Planned for {plan.terms.dataset} and a population of {plan.terms.population}: {one.name}."]
    request = dict(one.request)
    if plan.needs_examples(number):
        request["prompt"] = {**plan.terms.prompt, "examples": EXAMPLES}
        comments.append("Replace both examples by short texts of the kind you want. Invent them: they are public.")
    comments += [one.judgement, "Price it with `almoner release request FILE --dry-run`; it spends nothing."]
    text = "".join(f"# {_one_line(comment)}\n" for comment in comments) + _yaml(request)
    if not force:
        with new_file(path) as out:
            out.write(text.encode())
        return
    try:
        write_over(path, text.encode(), 0o600)
    except OSError as problem:
        raise file_unwritable(path, problem.strerror or type(problem).__name__) from None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _yaml(request: dict[str, Json]) -> str:
    written: dict[str, object] = {**request, **dict(_numbers(request))}
    parameters = request["parameters"]
    if isinstance(parameters, dict):
        written["parameters"] = {**parameters, **dict(_numbers(parameters))}
    return yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=120)


def _numbers(fields: Mapping[str, Json]) -> Iterator[tuple[str, int | float]]:
    """Yield the decimals of a request as numbers, which is how people write them."""
    for name in ("epsilon", "epsilon_while_secret", "delta", "temperature"):
        value = fields.get(name)
        if isinstance(value, str) and Decimal(repr(float(value))) == Decimal(value):
            yield name, int(value) if "." not in value else float(value)
