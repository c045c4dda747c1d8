"""Releases in the dashboard: a real one, on both backends, from the request until it is retracted."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient

from cli.web.access import AccessOptions, access_policy
from cli.web.application import application
from flows.workspace.workspace import signing_key_path
from models_db.services import people
from tasks.release.signatures.ed25519 import SigningKey
from tests.integration.story import SECRETS, Almoner
from tests.integration.test_report import SENTINELS, plant

CONCERNS = ("cli/web", "flows/dashboard", "flows/approvals")


def raised(problem: BaseException) -> None:
    raise problem


def client_of(almoner: Almoner) -> TestClient:
    made = access_policy(AccessOptions())
    return TestClient(application(almoner.home, made, raised), base_url=made.url, follow_redirects=False)


def release(client: TestClient, number: int = 1) -> Mapping[str, Any]:
    found = client.get(f"/releases/{number}.json")
    assert found.status_code == 200, found.text
    said: Mapping[str, Any] = found.json()["release"]
    return said


def section(said: Mapping[str, Any], title: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(one for one in said["sections"] if one["title"] == title)
    return found


def test_a_release_is_followed_from_gate_to_gate(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.submitted()
    client, shown = client_of(almoner), almoner.ask("release show 1")
    said = release(client)
    cost = dict(section(said, "Privacy cost")["rows"])
    claimed = re.fullmatch(r"epsilon 4 at delta 1e-7 \(rho ([0-9.]+)\)", cost["this release"])
    assert claimed is not None
    rho = float(claimed[1])
    assert cost["privacy unit"].startswith("patient_id")
    assert said["digest"] == shown["digest"]
    assert [row[0] for row in section(said, "Mechanisms")["rows"]] == ["noisy_count", "integer_draw"]
    assert (said["waiting"]["step"], said["waiting"]["approvals"]["needed"]) == ("spend", 1)
    assert float(said["waiting"]["price"]) == rho
    assert (said["reports"], said["card"], said["artifact"]) == ([], False, None)
    typed(almoner, said)
    assert release(client)["waiting"]["command"] == "almoner run 1"
    almoner.type("run 1")
    said = release(client)
    assert said["reports"] == ["steward", "public"]
    assert said["artifact"] == almoner.ask("release show 1")["artifact"]
    assert float(said["line"]["rho_spent"]) == rho
    typed(almoner, said)
    said = release(client)
    assert said["waiting"]["step"] == "deliver"
    almoner.type(said["waiting"]["command"].removeprefix("almoner ").replace("DIR", str(almoner.folder / "out")))
    said = release(client)
    assert (said["line"]["state"], said["waiting"]) == ("published", None)
    assert said["reports"] == ["steward", "public"]
    almoner.type("evaluate 1 --internal")
    assert release(client)["reports"] == ["steward", "public", "internal"]
    assert [one["gate"] for one in said["decisions"]] == ["spend", "publish"]
    assert [one["to_state"] for one in said["steps"]] == ["submitted", "approved", "running", "produced", "published"]


def test_a_request_that_was_run_in_time_has_not_expired(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.submitted()
    client = client_of(almoner)
    with monkeypatch.context() as later:
        later.setattr("flows.approvals.review_input.utc_now", lambda: "9999-12-31T00:00:00.000000Z")
        assert "has expired" in client.get("/releases/1").text
    almoner.go_on_to("published")
    monkeypatch.setattr("flows.approvals.review_input.utc_now", lambda: "9999-12-31T00:00:00.000000Z")
    page = client.get("/releases/1").text
    assert "has expired" not in page
    assert "Request 1 is published." in page


def typed(almoner: Almoner, said: Mapping[str, Any]) -> None:
    """The command that the page shows does what it is shown for."""
    almoner.type(said["waiting"]["command"].removeprefix("almoner ").replace("...", "as the page says"))


@pytest.mark.slow
def test_papers_are_those_of_the_commands(almoner: Almoner) -> None:
    almoner.published()
    plant(almoner)
    client = client_of(almoner)
    for version in ("steward", "public", "internal"):
        page = client.get(f"/releases/1/report?version={version}")
        assert page.status_code == 200
        said = client.get(f"/releases/1/report.json?version={version}").json()
        option = "" if version == "steward" else f"--{version}"
        assert said | {"map": None} == almoner.ask(f"report 1 {option}") | {"map": None}
        assert all((sentinel in page.text) == (version == "internal") for sentinel in SENTINELS)
        assert not any(secret in page.text for secret in SECRETS)
        policy = page.headers["content-security-policy"]
        assert policy.startswith("sandbox; default-src 'none'; style-src 'sha256-")
        assert "unsafe-inline" not in policy
        assert page.headers["x-frame-options"] == "DENY"
    card = client.get("/releases/1/card")
    assert card.headers["content-type"] == "text/plain; charset=utf-8"
    assert card.text == (almoner.bundle / "README.md").read_text()
    assert client.get("/releases/1/card.json").json()["card"] == card.text
    asked, shown = almoner.ask("release texts 1")["texts"], client.get("/releases/1/texts.json").json()["texts"]
    assert [(one["number"], one["text"], one["doubts"]) for one in shown["texts"]] == [
        (one["id"], one["text"], one["doubts"]) for one in asked[: len(shown["texts"])]
    ]
    assert shown["of"] == len(asked)


def test_everybody_reads_what_is_out_and_stewards_the_rest(almoner: Almoner) -> None:
    almoner.published()
    with almoner.database.write() as session:
        owner = people.acting_principal(session, SigningKey.load(signing_key_path(almoner.home)).public_key)
        people.revoke(session, owner, owner.name, "steward", "only an analyst now")
    client = client_of(almoner)
    assert (release(client)["reports"], release(client)["card"]) == (["public"], True)
    for path in ("report", "card", "texts"):
        assert client.get(f"/releases/1/{path}").status_code == 200, path
    for version in ("steward", "internal"):
        assert client.get(f"/releases/1/report?version={version}").status_code == 403


def test_files_that_were_changed_are_not_shown(almoner: Almoner) -> None:
    almoner.produced()
    [draft] = almoner.home.quarantine.iterdir()
    for name in ("README.md", "texts.jsonl"):
        (draft / name).write_text("other")
    client = client_of(almoner)
    for path in ("/releases/1/report?version=steward", "/releases/1/report?version=public", "/releases/1/card"):
        found = client.get(path, headers={"accept": "application/json"})
        assert found.status_code == 403
        assert found.json()["error"] in ("ArtifactChanged", "FileUnfit")
    assert release(client)["line"]["state"] == "produced", "its page is still there"


def test_the_whole_request_stands_on_its_page(almoner: Almoner) -> None:
    almoner.submitted()
    page = client_of(almoner).get("/releases/1").text
    body = almoner.ask("release show 1")["canonical"]
    for value in (body["prompt"]["description"], body["model"]["sha256"], body["code"], body["policy"]):
        assert value in page
    assert re.search(r"delta</th><td>0\.0000001", page)
    assert json.dumps(body["nonce"]).strip('"') not in page, "random by design"


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_on_postgresql_nothing_can_be_written(any_almoner: Almoner, backend: str) -> None:
    from sqlalchemy import delete
    from sqlalchemy.exc import InternalError

    from flows.dashboard.viewer import open_viewer
    from models_db.tables import AuditHead

    any_almoner.ingested()
    client, before = client_of(any_almoner), any_almoner.everything()
    for path in ("/", "/datasets/clinic", "/approvals", "/releases", "/audit", "/healthz"):
        assert client.get(path).status_code == 200, path
    assert any_almoner.everything() == before
    with pytest.raises(InternalError, match="read-only transaction"), open_viewer(any_almoner.home).open_view() as look:
        look.session.execute(delete(AuditHead))


def test_a_steward_downloads_the_question_that_the_command_line_exports(almoner: Almoner) -> None:
    almoner.produced()
    client = client_of(almoner)
    for page in ("/approvals", "/releases/1"):
        assert 'href="/approvals/publish/1/ask.json" download' in client.get(page).text
    file = almoner.folder / "ask.json"
    almoner.type(f"approve 1 --gate publish --export {file}")
    sent = client.get("/approvals/publish/1/ask.json")
    assert sent.content == file.read_bytes()
    assert sent.headers["content-disposition"] == 'attachment; filename="ask-publish-1.json"'
    in_json = {"accept": "application/json"}
    for path, code, error in (
        ("publish/99", 404, "RequestUnknown"), ("spend/1", 403, "WrongState"), ("other/1", 400, "InvalidParameter"),
    ):  # fmt: skip
        refused = client.get(f"/approvals/{path}/ask.json", headers=in_json)
        assert (refused.status_code, refused.json()["error"]) == (code, error), path
    owner = almoner.ask("user list")["people"][0]["name"]
    almoner.type(f'user revoke {owner} steward --reason "for the test"')
    withheld = client.get("/approvals/publish/1/ask.json", headers=in_json)
    assert (withheld.status_code, withheld.json()["error"]) == (403, "DocumentWithheld")
    assert "ask.json" not in client.get("/approvals").text
