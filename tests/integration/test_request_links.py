"""The artifact beside a run on Prefect's page: its links lead into a dashboard that runs, and name no dataset."""

import re
from urllib.parse import urlsplit

import httpx
import pytest

from cli.web.access import AccessOptions
from flows.orchestration.worker_settings import DASHBOARD_VARIABLE, describe_links
from tests.dashboard_homes import Home
from tests.integration.story import Almoner
from tests.integration.test_dashboard import many  # noqa: F401
from tests.integration.test_dashboard_door import serving
from tests.support import free_port

CONCERNS = ("flows/orchestration", "flows/dashboard")
LINK = re.compile(r"\]\((http[^)]*)\)")
STAGES = ("submitted", "produced", "published")


def opened(client: httpx.Client, link: str) -> tuple[str, str, str]:
    """Where a link leads: the path, the page's text, and the place in it."""
    found = client.get(link, follow_redirects=True)
    assert found.status_code == 200, (link, found.text)
    return found.url.path, found.text, found.url.fragment


@pytest.mark.parametrize("stage", STAGES)
def test_links_lead_to_the_request_its_price_its_report_and_its_budget(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    asked = AccessOptions(port=free_port())
    monkeypatch.setenv(DASHBOARD_VARIABLE, f"http://127.0.0.1:{asked.port}/")
    getattr(almoner, stage)()
    data = describe_links(1)
    links = LINK.findall(data)
    assert len(links) == 5
    assert "clinic" not in data
    with (
        serving(almoner.home, asked, monkeypatch),
        httpx.Client(transport=httpx.HTTPTransport(retries=8), trust_env=False) as client,
    ):
        pages = [opened(client, link) for link in links]
    assert [path for path, _, _ in pages] == ["/releases/1"] * 3 + ["/datasets/clinic", "/audit"]
    assert [place for _, _, place in pages] == ["", "claim", "report", "budget", ""]
    for path, text, place in pages:
        assert not place or len(re.findall(f'id="{place}"', text)) == 1, path
    request, price, report, budget, _ = (text for _, text, _ in pages)
    assert "epsilon 4 at delta" in price
    assert "Left" in budget
    assert ("report?version=steward" in report) == (stage != "submitted")
    assert "Request 1" in request


def test_every_request_leads_to_the_budget_of_its_dataset(many: Home) -> None:  # noqa: F811
    """Also of datasets whose names no path can carry."""
    client = many.client()
    names: dict[int, str] = {}
    page = client.get("/releases.json").json()["releases"]
    names |= {row["number"]: row["dataset"] for row in page["requests"]}
    assert len(set(names.values())) > 1
    for number, name in names.items():
        found = client.get(f"/releases/{number}/budget", follow_redirects=True)
        assert (found.status_code, found.url.fragment) == (200, "budget"), name
        assert found.text.count('id="budget"') == 1
        said = client.get(f"/releases/{number}/budget.json", follow_redirects=True).json()
        assert said["dataset"]["name"] == name


def test_a_request_that_is_none_has_no_budget(many: Home) -> None:  # noqa: F811
    client = many.client()
    assert client.get("/releases/999999/budget").status_code == 404
    assert client.get("/releases/x/budget").status_code == 400
    assert urlsplit(str(client.get("/releases/1/budget").headers["location"])).netloc == ""
