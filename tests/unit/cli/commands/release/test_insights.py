"""`almoner insights compare` on bundles: what it says, and what it refuses."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.app import app
from tasks.common.files import measure
from tasks.release.bundle_format import EVALUATION, RECORD, TEXTS
from tasks.release.signatures.ed25519 import SigningKey
from tasks.values.results import Insight, Topic, margin_of_error
from tests.insights_rows import (
    DEVIATION,
    LEAST,
    described,
    hostile,
    insights_record,
    insights_request,
    known,
    plausible,
    unmeasured,
    with_clusters,
)
from tests.unit.tasks.publishing.builders import a_release
from tests.unit.tasks.publishing.forging import edit, reseal, seal_as_it_is

CONCERNS = ("flows/reports", "tasks/systems/insights")
STEERING = ("\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\u2028")


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known(monkeypatch)
    monkeypatch.setenv("ALMONER_HOME", str(tmp_path / "no home"))


Publish = Callable[..., Path]


@pytest.fixture
def publish(tmp_path: Path) -> Publish:
    """A published bundle of these rows."""

    key = SigningKey.create(tmp_path / "publisher.pem")

    def make(
        name: str,
        nodes: Sequence[Insight],
        changes: dict[str, Any] | None = None,
        *,
        key: SigningKey = key,
        **papers: Any,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        record = insights_record(insights_request(**(changes or {})))
        release = replace(a_release(folder, record, tuple(described(nodes)), insights=nodes), key=key)
        return Path(release.publish(folder / "out", **papers).folder)

    return make


def grown(nodes: Sequence[Insight], name: str, factor: float) -> tuple[Insight, ...]:
    """The hierarchy with one cluster of another size."""
    changed = [replace(node, size=round((node.size or 0) * factor)) if node.topic.name == name else node
               for node in nodes]  # fmt: skip
    return tuple(
        replace(node, size=sum(below.size or 0 for below in changed if below.parent == node.number))
        if node.level
        else node
        for node in changed
    )


def run(*words: object) -> Result:
    done = CliRunner().invoke(app, ["insights", "compare", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def ask(*words: object) -> Any:
    return json.loads(run(*words, "--json").stdout)


def plain(text: str) -> str:
    return " ".join(text.split())


def test_a_doubled_topic_grew_and_so_did_its_group(publish: Publish) -> None:
    old, new = publish("a", plausible()), publish("b", grown(plausible(), "SQL queries", 2))
    told = ask(old, new)
    told_of = {change["new"]["name"]: change["verdict"] for change in told["changes"]}
    assert {name for name, verdict in told_of.items() if verdict == "grew"} == {"SQL queries", "Programming"}
    assert set(told_of.values()) == {"grew", "no change beyond noise"}
    (change,) = [one for one in told["changes"] if one["new"]["name"] == "SQL queries"]
    assert change["difference"] == change["old"]["size"] == change["new"]["size"] - change["difference"]
    assert change["old"]["size_deviation"] == pytest.approx(float(DEVIATION))
    assert change["difference_deviation"] == pytest.approx(float(DEVIATION) * 2**0.5, rel=1e-5)
    assert (told["new_topics"], told["gone_topics"], told["cautions"], told["levels"]) == ([], [], [], [0, 1])
    assert told["old"]["size_deviation"] == float(DEVIATION)
    assert told["old"]["smallest_cluster"] == LEAST
    shrunk = {change["new"]["name"]: change["verdict"] for change in ask(new, old)["changes"]}
    assert {name for name, verdict in shrunk.items() if verdict == "shrank"} == {"SQL queries", "Programming"}


def test_the_screen_has_verdicts_first_and_noise_beside_every_size(publish: Publish) -> None:
    nodes = with_clusters(plausible()[:-1])
    nodes = grown(nodes, "SQL queries", 2)
    done = run(publish("a", plausible()), publish("b", nodes))
    assert done.exit_code == 0
    lines = [line for line in done.stdout.splitlines() if "±" in line]
    clusters = done.stdout.index("Level 0: clusters")
    assert done.stdout.index("Level 1: groups") < clusters
    assert "SQL queries" in done.stdout[clusters:].splitlines()[4]
    assert "grew" in done.stdout[clusters:].splitlines()[4]
    margins = {int(margin) for line in lines for margin in re.findall(r"±(\d+)", line)}
    of_sizes, of_differences = (
        [margin_of_error(Decimal(DEVIATION), n * count) for n in range(1, 9)] for count in (1, 2)
    )
    assert {of_sizes[0], of_differences[0]} <= margins <= {*of_sizes, *of_differences}
    assert "± is the margin of error: 95 %" in done.stdout
    gone = plain(done.stdout[done.stdout.index("Level 0: clusters: gone") :])
    assert "History" in gone
    assert f"Clusters below {LEAST} (old) and {LEAST} (new) are left out" in gone


def test_too_few_topics_have_no_verdict_beyond_redrawn_clusters(publish: Publish) -> None:
    few, more = publish("c", _three(100)), publish("d", _three(300))
    told = ask(few, more)
    assert {change["verdict"] for change in told["changes"]} == {"may be redrawn clusters"}
    assert "too few to tell a change" in told["cautions"][0]
    assert all(change["p_value"] < 0.05 for change in told["changes"])


def test_sizes_that_differ_as_those_of_redrawn_clusters_do_are_no_change(publish: Publish) -> None:
    names = [node.topic.name for node in plausible() if node.level == 0]
    nodes = plausible()
    for place, name in enumerate(names):
        nodes = grown(nodes, name, 1.5 if place % 2 else 0.7)
    told = ask(publish("a", plausible()), publish("b", nodes))
    assert "may be redrawn clusters" in {change["verdict"] for change in told["changes"]}
    assert not {"grew", "shrank"} & {change["verdict"] for change in told["changes"]}
    assert told["redrawn_spread"] > 0.2
    assert "sizes of matched topics differ by a factor of about" in told["cautions"][0]


def _three(size: int) -> tuple[Insight, ...]:
    words = ("kettle", "tomato", "violin")
    return tuple(Insight(n, None, 0, Topic(word, ""), (word,), size) for n, word in enumerate(words, 1))


def test_declared_numbers_of_units_that_differ_make_shares(publish: Publish) -> None:
    old = publish("a", plausible(), {"population": 5000})
    new = publish("b", grown(plausible(), "Sleep", 2), {"population": 10_000})
    told = ask(old, new)
    change = told["changes"][0]
    assert change["shares"]["old"] == pytest.approx(change["old"]["size"] / 5000, rel=1e-5)
    assert change["shares"]["new_deviation"] == pytest.approx(float(DEVIATION) / 10_000, rel=1e-5)
    assert (told["old"]["population"], told["new"]["population"]) == (5000, 10_000)
    assert "share of declared units" in run(old, new).stdout


def test_a_release_that_does_not_state_its_noise_gets_no_verdict(
    publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = publish("a", plausible())
    monkeypatch.setattr("tests.insights_rows.SIZE_DEVIATION", "some other fact")
    new = publish("b", grown(plausible(), "Sleep", 2))
    told = ask(old, new)
    assert {change["verdict"] for change in told["changes"]} == {None}
    assert told["new"]["size_deviation"] is None
    assert told["cautions"][0] == "The new release does not state the noise of its sizes: there are no verdicts."
    screen = run(old, new).stdout
    assert screen.count("noise not stated") == 19
    assert "grew" not in screen


def test_sizes_that_were_not_measured_are_said_not_to_be(publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.insights_rows.SMALLEST_CLUSTER", "some other fact")
    told_screen = run(publish("a", unmeasured()), publish("b", with_clusters(unmeasured()[:2]))).stdout
    assert "size not measured" in told_screen
    assert "no threshold (old)" in plain(told_screen)


def test_what_differs_in_the_requests_and_keys_is_said(publish: Publish, tmp_path: Path) -> None:
    old = publish("a", plausible())
    changes = {"parameters": {"clusters": {"count": 4999}}, "prompt": {"description": "other chats"}}
    told = ask(old, publish("b", grown(plausible(), "Sleep", 2), changes, key=SigningKey.create(tmp_path / "b.pem")))
    assert told["cautions"] == [
        "The requests differ in prompt, parameters.clusters; topics may differ for that reason.",
        "The bundles are signed by different keys.",
    ]


# --- hostile rows ------------------------------------------------------------------------------------------


def test_hostile_rows_reach_the_screen_as_text(publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.insights_rows.SMALLEST_CLUSTER", "some other fact")
    steering = "\x1b[2J\x1b]0;owned\x07\x9b31m[bold red]x[/]" + "".join(STEERING)
    nodes = [replace(node, topic=Topic(f"{steering}{node.topic.name}", node.topic.description),
                     keywords=(*node.keywords, f"shared{node.number}", steering)) for node in hostile()]  # fmt: skip
    changed = [replace(node, topic=replace(node.topic, name=f"again {steering}")) for node in nodes]
    for number, new in enumerate((changed, hostile(), ())):
        done = run(publish(f"a{number}", nodes), publish(f"b{number}", new))
        assert done.exit_code == 0
        assert not [sign for sign in STEERING if sign in done.stdout + done.stderr]
        assert not {sign for sign in done.stdout if ord(sign) < 32} - {"\n"}
        assert "\\x1b[2J\\x1b]0;owned\\x07\\x9b31m[bold" in done.stdout


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["row", "size", "record", "missing", "extra", "link"])
def test_an_altered_bundle_is_refused(publish: Publish, change: str, tmp_path: Path) -> None:
    old, new = publish("a", plausible()), publish("b", grown(plausible(), "Sleep", 2))
    rows = new / TEXTS
    if change == "row":
        rows.write_bytes(rows.read_bytes() + b"{}\n")
    elif change == "size":
        rows.write_bytes(rows.read_bytes().replace(b'"size":385', b'"size":386'))
        seal_as_it_is(new, SigningKey.create(tmp_path / "forger.pem"))
    elif change == "record":
        (new / RECORD).write_bytes(b"{")
    elif change == "missing":
        (new / EVALUATION).unlink()
    elif change == "extra":
        (new / "more.txt").write_text("more")
    else:
        shutil.copy(rows, tmp_path / "elsewhere")
        rows.unlink()
        rows.symlink_to(tmp_path / "elsewhere")
        assert measure(tmp_path / "elsewhere")
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    done = run(old, new, "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["error"]) == (1, "BundleAltered")
    assert told["facts"]["bundle"] == str(new)
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before


def test_a_release_that_the_other_bundle_lists_as_retracted_is_refused(publish: Publish) -> None:
    old = publish("a", plausible())
    artifact = json.loads((old / "checkpoint.json").read_text())["artifact_sha256"]
    new = publish("b", grown(plausible(), "Sleep", 2), revoked=(artifact,))
    for pair in ((old, new), (new, old)):
        assert ask(*pair)["error"] == "Retracted"


def test_two_releases_of_other_units_or_of_another_kind_are_refused(publish: Publish, tmp_path: Path) -> None:
    old = publish("a", plausible())
    new = publish("b", grown(plausible(), "Sleep", 2), {"unit": "conversation"})
    refused = ask(old, new)
    assert (refused["error"], refused["facts"]) == ("UnitsDiffer", {"old": "id", "new": "conversation"})
    (tmp_path / "texts").mkdir()
    texts = a_release(tmp_path / "texts").publish(tmp_path / "texts" / "out").folder
    refused = ask(old, texts)
    assert (refused["error"], refused["facts"]["kind"]) == ("NotInsights", "synthetic_corpus")


def test_another_format_is_refused_by_name(publish: Publish, tmp_path: Path) -> None:
    old, new = publish("a", plausible()), publish("b", grown(plausible(), "Sleep", 2))
    edit(new, RECORD, lambda record: record.update(format="almoner-release/2"))
    reseal(new, SigningKey.create(tmp_path / "forger.pem"))
    refused = ask(old, new)
    assert refused["error"] == "BundleAltered"
    assert "almoner-release/2; this almoner reads almoner-release/1" in refused["message"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "ReleasesUnclear"),
        (("A",), "ReleasesUnclear"),
        (("A", "A", "--last", "clinic"), "ReleasesUnclear"),
        (("A", "--last", "clinic"), "ReleasesUnclear"),
        (("A", "A"), "SameRelease"),
        (("A", "nowhere"), "NoBundle"),
        (("A", ""), "ReleasesUnclear"),
        (("A", "1"), "HomeMissing"),
        (("--last", "clinic"), "HomeMissing"),
        (("A", "²"), "NoBundle"),
        (("A", "9" * 19), "NoBundle"),
        (("A", "ftp://somewhere/else"), "SchemeUnknown"),
        (("A", "/proc/self/mem"), "NoBundle"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(
    publish: Publish, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], error: str
) -> None:
    bundle = publish("a", plausible())
    monkeypatch.chdir(tmp_path)
    told = ask(*(bundle if word == "A" else word for word in words))
    assert told["error"] == error
    assert told["message"]
    assert told["advice"]
