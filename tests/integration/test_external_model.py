"""A release whose texts a model behind an API writes: what it is told, what it costs, and what its failures leave."""

import json
import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

import flows.releases.evaluate_internal
import flows.releases.execute
from models_db.values.amounts import Amount
from tasks.evaluate import SCORER
from tasks.inference.backends.chat_completions import ANSWERS_FILE, HttpBackend
from tasks.inference.backends.text_backend import SEES, Sampling
from tasks.inference.catalogue.registry import ModelNotPulled, find, list_models
from tasks.inference.loading.load_model import located
from tasks.pricing.external_models import FACT
from tasks.systems.base import System
from tasks.systems.registry import SYSTEMS
from tests.integration.canary import CANARIES, PRIVATE_TEXT
from tests.integration.killing import balance, killed
from tests.integration.story import CONFIRMED, Almoner, Told
from tests.support import require, substitute
from tests.support_backend import Counted, ModelServer, completion, hangs, says, says_json

CONCERNS = ("flows/releases", "tasks/inference/backends")

KEY = "sk-integration-do-not-tell"
ASKED: dict[str, Any] = {
    "mechanism": Counted.name,
    "model": "external:office",
    "parameters": {"samples": 5, "max_new_tokens": 8},
    "evaluation": ["length", "distinct", "perplexity"],
}
ADD = "models endpoint add office --model tiny-chat --licence MIT --key-env OFFICE_KEY --attempts 1 --at-once 1"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as made:
        yield made


@pytest.fixture
def office(
    almoner: Almoner, server: ModelServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Almoner]:
    """A home that knows the server; whatever is said anywhere is searched for the key when the test is over."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OFFICE_KEY", KEY)
    substitute(monkeypatch, SYSTEMS, Counted.name, Counted())
    monkeypatch.setattr(flows.releases.evaluate_internal, "load", flows.releases.execute.load)
    told: list[str] = []
    real = Almoner.type

    def typed(self: Almoner, line: str, expected: int | None = 0, *, piped: str | None = CONFIRMED) -> Told:
        heard = real(self, line, expected, piped=piped)
        told.append(heard.out + heard.err)
        return heard

    monkeypatch.setattr(Almoner, "type", typed)
    almoner.ingested()
    almoner.type(f"{ADD} --url {server.url}")
    yield almoner
    files = [path.read_bytes().decode("utf-8", "replace") for path in almoner.folder.rglob("*") if path.is_file()]
    assert KEY not in "\n".join([*told, caplog.text, *files])
    assert server.heard(CANARIES) == []


def approved(almoner: Almoner, **changes: Any) -> Any:
    """A request that may run; its price."""
    price = almoner.ask(f"release request {almoner.request_file(**ASKED | changes)}")["price"]
    almoner.type('approve 1 --gate spend --reason "sees only what is released"')
    return price


def spent_once(almoner: Almoner, price: Any) -> None:
    found = balance(almoner)
    assert found.spent.rho_text == price["rho"]
    assert found.held == Amount()


def test_a_release_by_an_external_model_tells_it_nothing_private_and_says_so(
    office: Almoner, server: ModelServer
) -> None:
    price = approved(office)
    assert price["facts"][FACT] == f"{SEES} (tiny-chat at {server.endpoint().host})"
    assert server.seen == []  # pricing asks nothing
    assert office.ask("run 1")["texts"] == 5
    assert len(server.seen) == 5
    assert len(set(server.prompts)) == 3  # and three of them are equal
    assert all(seen.headers["authorization"] == f"Bearer {KEY}" for seen in server.seen)
    spent_once(office, price)
    assert [folder.name for folder in office.home.quarantine.iterdir()] == ["1-1"]

    office.go_on_to("published", after="produced")
    assert office.ask(f"verify-release {office.bundle}")["rho"] == price["rho"]
    record = json.loads((office.bundle / "release.json").read_bytes())
    assert record["facts"][FACT] == f"{SEES} (tiny-chat at {server.endpoint().host})"
    configured = office.ask("models endpoint list")[0]
    assert record["model"] == {"name": "external:office", "sha256": configured["sha256"], "licence": "MIT"}
    card = (office.bundle / "README.md").read_text()
    assert SEES in card
    assert "the configuration of its endpoint" in card
    assert "dp:endpointSha256" in (office.bundle / "croissant.json").read_text()
    assert "its weights are its provider's" in (office.bundle / "checklist.md").read_text()
    measured = {each["name"]: each for each in json.loads((office.bundle / "evaluation.json").read_bytes())["metrics"]}
    assert measured["perplexity"]["values"]["perplexity"] is not None
    assert "which has not written the texts" in measured["perplexity"]["method"]
    assert "which has not written the texts" not in measured["length"]["method"]


def test_the_price_says_what_would_be_asked_and_what_it_would_cost(office: Almoner, server: ModelServer) -> None:
    office.type(f"{ADD} --url {server.url} --price-in 0.5 --price-out 1000 --currency EUR --per-minute 30 --replace")
    file = office.request_file(**ASKED)
    asked = office.ask(f"release request {file} --dry-run")["price"]["external"]
    tokens = 5 * (40 + len("Short notes that a doctor writes.") // 4 + 1)
    assert asked == {
        "requests": 5, "tokens_in": tokens, "tokens_out_at_most": 40, "money_at_most": "0.05 EUR",
        "seconds_at_least": 10,
    }  # fmt: skip
    shown = office.type(f"release request {file} --dry-run").out
    assert "sees only DP outputs" in shown
    assert "0.05 EUR" in shown
    office.type(f"{ADD} --url {server.url} --replace")
    assert office.ask(f"release request {file} --dry-run")["price"]["external"]["money_at_most"] == (
        "no prices are declared"
    )
    assert server.seen == []


def test_a_system_that_shows_private_text_is_refused_at_pricing_and_at_run(
    office: Almoner, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = office.ask(f"release request {office.request_file(model='external:office')}", 1)
    assert refused["error"] == "ExternalModelRefused"
    approved(office)
    # The same system, but now it says nothing of itself: whoever forgets to say it shows private text.
    substitute(monkeypatch, SYSTEMS, Counted.name, replace(Counted(), shows_private_text=True))
    assert office.ask("run 1", 1)["error"] == "ExternalModelRefused"
    assert balance(office).spent == Amount()
    assert server.seen == []


def test_no_system_of_today_that_reads_rows_with_the_model_may_use_an_external_one() -> None:
    assert System.shows_private_text is True  # of a system that says nothing of itself
    reading = {
        "invisible_ink", "private_prediction", "private_icl", "few_shot_generation", "adapmixed", "public_only",
        "non_private", "token_level_summary", "one_shot_summary", "urania", "simple_clio", "question_histogram",
    }  # fmt: skip
    assert reading <= {name for name, system in SYSTEMS.items() if system.shows_private_text}


def test_the_recorder_would_hear_a_system_that_leaks(
    almoner: Almoner, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that finds nothing anywhere proves nothing."""
    leaking = Counted(told=lambda context: next(text for text in context.corpus.texts() if text == PRIVATE_TEXT))
    substitute(monkeypatch, SYSTEMS, Counted.name, leaking)
    monkeypatch.setenv("OFFICE_KEY", KEY)
    almoner.ingested()
    almoner.type(f"{ADD} --url {server.url}")
    approved(almoner, evaluation=[])
    almoner.type("run 1")
    assert len(server.heard(CANARIES)) > 3


@pytest.mark.slow
def test_an_endpoint_that_fails_costs_nothing_twice_and_the_run_goes_on(office: Almoner, server: ModelServer) -> None:
    price = approved(office)
    honest = [says_json(completion(f"text {number}")) for number in range(1, 6)]
    troubles = [
        ("EndpointServerError", says(500)),
        ("EndpointBusy", says(429, Retry_After="9000")),
        ("EndpointAnswerMalformed", says(200, b"<html>Sign in</html>")),
        ("EndpointRedirects", says(302, Location="https://elsewhere.example.org/")),
    ]
    for number, (name, trouble) in enumerate(troubles):
        server.next = [honest[number], trouble]
        assert office.ask("run 1", 3)["error"] == name
        spent_once(office, price)
        kept = office.home.quarantine / "1-unfinished" / ANSWERS_FILE
        assert len(kept.read_text().splitlines()) == number + 1
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    server.next = [honest[4]]
    assert "nothing is paid twice" in office.type("run 1").err
    assert len(server.seen) == 5 + len(troubles)  # each text once, and each trouble once
    spent_once(office, price)
    texts = [
        json.loads(line)["text"] for line in (office.home.quarantine / "1-5" / "texts.jsonl").read_text().splitlines()
    ]
    assert texts == [f"text {number}" for number in range(1, 6)]
    assert not (office.home.quarantine / "1-unfinished").exists()
    counted = {seen.prompt.split()[3] for seen in server.seen}
    assert len(counted) == 1  # drawn once
    assert office.ask("doctor")["ok"] is True


def test_a_run_that_is_killed_asks_for_what_is_missing_and_for_nothing_else(
    office: Almoner, server: ModelServer
) -> None:
    price = approved(office)
    killed("run 1", "after three answers are kept", systems=[Counted])
    asked = len(server.seen)
    assert asked in (3, 4)  # the next one may have been on its way
    with (office.home.quarantine / "1-unfinished" / ANSWERS_FILE).open("ab") as file:
        file.write(b'{"key": "half a li')
    assert office.ask("run 1")["texts"] == 5
    assert len(server.seen) == asked + 2
    assert len({seen.prompt.split()[3] for seen in server.seen}) == 1  # the count was drawn once
    spent_once(office, price)


def test_a_slow_endpoint_may_be_given_more_time_without_a_new_approval(office: Almoner, server: ModelServer) -> None:
    office.type(f"{ADD} --url {server.url} --timeout 1 --replace")
    approved(office)
    server.always = hangs
    assert office.ask("run 1", 3)["error"] == "EndpointTimeout"
    server.always = None
    office.type(f"{ADD} --url {server.url} --timeout 900 --replace")
    assert office.ask("run 1")["texts"] == 5


def test_what_was_approved_is_what_is_asked(office: Almoner, server: ModelServer) -> None:
    approved(office)
    with ModelServer() as elsewhere:
        office.type(f"{ADD} --url {elsewhere.url} --replace")
        assert office.ask("run 1", 1)["error"] == "PlanChanged"
        office.type("models endpoint remove office")
        assert office.ask("run 1", 2)["error"] == "EndpointUnknown"
        assert elsewhere.seen == []
    assert balance(office).spent == Amount()
    assert server.seen == []


def test_without_its_key_nothing_begins(office: Almoner, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    approved(office)
    monkeypatch.delenv("OFFICE_KEY")
    refused = office.ask("run 1", 3)
    assert (refused["error"], refused["facts"]["variable"]) == ("EndpointKeyMissing", "OFFICE_KEY")
    assert balance(office).spent == Amount()
    assert server.seen == []
    monkeypatch.setenv("OFFICE_KEY", KEY)
    assert office.ask("run 1")["texts"] == 5


def test_without_a_local_model_its_figures_are_null(
    office: Almoner, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str, *more: object) -> None:
        assert name == SCORER
        raise ModelNotPulled(name)

    monkeypatch.setattr(flows.releases.evaluate_internal, "load", load)
    monkeypatch.setattr(flows.releases.execute, "load", load)
    approved(office, evaluation=["length", "perplexity", "judge"])
    office.type("run 1")
    written = json.loads((office.home.quarantine / "1-1" / "evaluation.json").read_bytes())["metrics"]
    found = {each["name"]: each for each in written}
    assert found["length"]["values"]["texts"] == 5
    assert found["perplexity"]["values"]["perplexity"] is None
    assert found["judge"]["values"]["rating"] is None
    assert "no language model" in found["perplexity"]["line"]


def test_a_policy_names_external_models_like_others(office: Almoner, server: ModelServer) -> None:
    path = office.home.policy
    path.write_text(path.read_text() + "\nmodels: [tiny]\n")
    file = office.request_file(**ASKED)
    office.type(f"policy adopt {path}")
    assert office.ask(f"release request {file} --dry-run", 1)["error"] == "PolicyForbids"
    path.write_text(path.read_text().replace("models: [tiny]", "models: [tiny, 'external:office']"))
    office.type(f"policy adopt {path}")
    assert office.ask(f"release request {file} --dry-run")["price"]["external"]["requests"] == 5


def test_attacks_name_no_external_model(office: Almoner) -> None:
    office.type(f"attack run {office.request_file(**ASKED)} --twin clinic", None)
    approved(office)
    assert office.ask("attack run 1", 1)["error"] == "ExternalModelNotAttacked"


def test_endpoints_are_kept_without_secrets_and_for_their_owner_alone(office: Almoner, server: ModelServer) -> None:
    path = office.home.endpoints
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(yaml.safe_load(path.read_text())["office"]) == {
        "url", "model", "licence", "key_env", "attempts", "at_once",
    }  # fmt: skip
    assert office.ask(f"{ADD} --url {server.url}", 2)["error"] == "EndpointExists"
    assert office.ask("models endpoint add other --url http://10.0.0.1/v1 --model m", 2)["error"] == "FileInvalid"
    office.type("models endpoint add other --url http://10.0.0.1/v1 --model m --allow-http")
    assert [each["name"] for each in office.ask("models endpoint list")] == ["office", "other"]
    assert "OFFICE_KEY" in office.type("models endpoint list").out
    office.type("models endpoint remove other")
    assert office.ask("models endpoint remove other", 2)["error"] == "EndpointUnknown"
    for damaged in ("office: 7\n", "- a\n", "office: {url: 'https://u:p@h/v1', model: m}\n", "a: [\n"):
        path.write_text(damaged)
        assert office.ask("models endpoint list", 2)["error"] == "FileInvalid"
    path.write_text("")
    assert office.ask("models endpoint list") == []
    os.unlink(path)
    assert office.ask("models endpoint list") == []


@pytest.mark.slow
def test_a_real_model_behind_an_endpoint_writes_what_it_is_asked_for() -> None:
    """SmolLM2-135M through transformers, the way an operator would serve it."""
    require(any(model.name == SCORER and model.installed for model in list_models()), f"{SCORER} is not pulled")
    folder = located(find(SCORER))[0]
    model = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with ModelServer(lambda: model) as server:
        backend = HttpBackend.of(server.endpoint(timeout=900), None, lambda what, done, total: None)
        prompts = ["Write one sentence about a kettle.", "Write one sentence about a cat."]
        found = backend.write(prompts, Sampling(40, Decimal("0.2")))
    assert "kettle" in found[0].text.lower()
    assert "cat" in found[1].text.lower()
    assert all(1 <= text.tokens <= 40 for text in found)
