"""Views: each page reads the ledger once, and shows the same as HTML or JSON."""

import base64
import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from cli.web.chain_status import ChainWatch
from cli.web.charts import budget_bar, burn_chart, burn_rows, visible_series
from cli.web.responses import dataset_path, error_response, html_response, json_response, load_templates, wants_json
from flows.dashboard.audit_page import audit_page
from flows.dashboard.dataset_pages import dataset_page, overview_page
from flows.dashboard.queue_page import queue_page
from flows.dashboard.release_page import load_card, load_question, load_report, release_page, texts_page
from flows.dashboard.request_list import REQUEST_STATES, request_list
from flows.dashboard.viewer import View, Viewer, open_viewer
from models_db.errors import AlmonerError, UsageError
from models_db.home import ProjectHome
from models_db.services import datasets, requests
from models_db.services.audit.chain import read_chain_head
from models_db.tables import Dataset
from models_db.values.request_state import Gate
from models_db.values.untrusted_text import parse_digits
from tasks.reporting.html_report import page
from tasks.reporting.report_parts import Version

SEARCH_FIELDS = ("actor", "kind", "dataset", "request", "mechanism", "since", "until")
LONGEST_PARAMETER = 300
"""Largest number of characters of a parameter."""


@dataclass(frozen=True)
class DashboardViews:
    """The pages of one home; every worker thread has its own `Viewer`."""

    home: ProjectHome
    chain: ChainWatch
    secured: bool
    decides: bool = False
    _own: threading.local = field(default_factory=threading.local)

    def _viewer(self) -> Viewer:
        if not hasattr(self._own, "lookout"):
            self._own.lookout = open_viewer(self.home)
        return cast("Viewer", self._own.lookout)

    def _render_view(self, request: Request, name: str, make: Callable[[View], Any], **more: Any) -> Response:
        with self._viewer().open_view() as view:
            content = make(view)
            head = read_chain_head(view.session).seq if name == "audit" else 0
        chain = self.chain.state(head) if name == "audit" else None
        viewer = {"name": view.actor.name, "roles": sorted(view.roles)}
        if wants_json(request):
            beside = {"chain": chain} if chain else {}
            return json_response({"viewer": viewer, "doubt": view.doubt, name: content, **beside})
        frame: dict[str, Any] = {name: content, "viewer": viewer, "doubt": view.doubt, "broken": self.chain.is_bad()}
        return html_response(f"{name}.html", **frame, chain=chain, current_page=name, secured=self.secured,
                             decides=self.decides, **more)  # fmt: skip

    def overview(self, request: Request) -> Response:
        """Show every dataset with its budget."""
        after, having = _text_parameter(request, "after"), _text_parameter(request, "q") or ""
        return self._render_view(request, "overview", lambda view: overview_page(view, after, having), bar=budget_bar)

    def dataset(self, request: Request) -> Response:
        """Show one dataset."""
        written = request.path_params.get("name")
        name = _text_parameter(request, "name") if written is None else _without_suffix(request, written)
        if name is None:
            return RedirectResponse("/", 303)
        before = _number_parameter(request, "before")
        drawn = {"burn_chart": burn_chart, "burn_rows": burn_rows, "visible_series": visible_series}
        return self._render_view(request, "dataset", lambda view: dataset_page(view, name, before), **drawn)

    def approvals(self, request: Request) -> Response:
        """Show the requests and proposals that wait for a decision or a run."""
        after, proposals_after = (
            _number_parameter(request, "after") or 0,
            _number_parameter(request, "proposals_after") or 0,
        )
        return self._render_view(request, "approvals", lambda view: queue_page(view, after, proposals_after))

    def releases(self, request: Request) -> Response:
        """Show all requests."""
        before, name, state = (
            _number_parameter(request, "before"),
            _text_parameter(request, "dataset") or "",
            _text_parameter(request, "state") or "",
        )
        if state and state not in REQUEST_STATES:
            raise UsageError(
                "There is no such state of a request.",
                f"There are: {', '.join(REQUEST_STATES)}.",
                code="RequestStateUnknown",
            )

        def make(view: View) -> Any:
            dataset_id = datasets.find_dataset(view.session, name).id if name else None
            return request_list(view, before, dataset_id, (state,) if state else ())

        return self._render_view(
            request, "releases", make, states=REQUEST_STATES, filters={"dataset": name, "state": state}
        )

    def release(self, request: Request) -> Response:
        """Show one request."""
        number = _release_number(request)
        return self._render_view(request, "release", lambda view: release_page(view, number))

    def budget(self, request: Request) -> Response:
        """Lead to the budget of a request's dataset, whose name a link from elsewhere does not have."""
        number = _release_number(request)
        with self._viewer().open_view() as view:
            dataset_id = requests.find_request(view.session, number).dataset_id
            name = view.session.get_one(Dataset, dataset_id).name
        where = f"/datasets.json?name={quote(name, safe='')}" if wants_json(request) else f"{dataset_path(name)}#budget"
        return RedirectResponse(where, 303)

    def report(self, request: Request) -> Response:
        """Show a report of a release on a sandboxed page without scripts."""
        version = _text_parameter(request, "version") or "public"
        if version not in ("steward", "public", "internal"):
            raise UsageError(
                "There is no such version of a report.",
                "There are: steward, public, internal.",
                code="ReportVersionUnknown",
            )
        content = load_report(self._viewer(), _release_number(request), cast("Version", version))
        if wants_json(request):
            return json_response(content)
        drawn = page(content)
        return HTMLResponse(drawn, headers={"content-security-policy": report_policy(drawn)})

    def texts(self, request: Request) -> Response:
        """Show a page of the texts of a release."""
        number, page = _release_number(request), _number_parameter(request, "page") or 1
        find, doubtful = _text_parameter(request, "find") or "", _text_parameter(request, "doubtful") == "1"
        return self._render_view(
            request, "texts", lambda view: texts_page(view, self.home, number, page, find, only_doubtful=doubtful)
        )

    def card(self, request: Request) -> Response:
        """Show the card of a release as plain text."""
        number = _release_number(request)
        card = load_card(self._viewer(), number)
        if wants_json(request):
            return json_response({"request": number, "card": card})
        return PlainTextResponse(card, headers={"content-security-policy": "sandbox; default-src 'none'"})

    def question(self, request: Request) -> Response:
        """Send the question on what waits at a gate as a file, as `almoner approve --export` writes it."""
        written, number = request.path_params["gate"], _release_number(request)
        if written not in tuple(Gate):
            raise _invalid_parameter("gate")
        data = load_question(self._viewer(), number, Gate(written))
        return Response(
            data,
            media_type="application/json",
            headers={"content-disposition": f'attachment; filename="ask-{written}-{number}.json"'},
        )

    def audit(self, request: Request) -> Response:
        """Show a page of the audit log, filtered by the search parameters."""
        search = {name: value for name in SEARCH_FIELDS if (value := _text_parameter(request, name))}
        before = _number_parameter(request, "before")
        return self._render_view(
            request, "audit", lambda view: audit_page(view, search, before), searched=SEARCH_FIELDS
        )

    def health(self, request: Request) -> Response:
        """Report whether the ledger can be read, and nothing else."""
        try:
            with self._viewer().open_view():
                return json_response({"ok": True})
        except AlmonerError:
            return json_response({"ok": False}, 503)

    def style(self, request: Request) -> Response:
        """Return the style sheet of reports with the additions of the dashboard."""
        sheets = (load_templates().get_template(name).render() for name in ("style.css", "dashboard.css"))
        return Response("\n".join(sheets), media_type="text/css")

    def icon(self, request: Request) -> Response:
        """Return the icon of the pages."""
        return Response(load_templates().get_template("favicon.svg").render(), media_type="image/svg+xml")

    def missing(self, request: Request, problem: Exception) -> Response:
        """Answer a path that has no page."""
        return error_response(request, 404, "NoPage", "There is no such page.", "The address may be mistyped.")


def report_policy(drawn: str) -> str:
    """Return the content security policy of a report: its own style sheet and nothing else."""
    style = drawn.partition("<style>")[2].partition("</style>")[0]
    style_digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"sandbox; default-src 'none'; style-src 'sha256-{style_digest}'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )


def _release_number(request: Request) -> int:
    written = _without_suffix(request, str(request.path_params["number"]))
    return _parse_number(written)


def _without_suffix(request: Request, written: str) -> str:
    return written.removesuffix(".json") if request.url.path.endswith(".json") else written


def _text_parameter(request: Request, name: str) -> str | None:
    value = request.query_params.get(name)
    if value is not None and (len(value) > LONGEST_PARAMETER or "\0" in value):
        raise _invalid_parameter(name)
    return value or None


def _number_parameter(request: Request, name: str) -> int | None:
    written = _text_parameter(request, name)
    if written is None:
        return None
    return _parse_number(written)


def _parse_number(written: str) -> int:
    number = parse_digits(written)
    if number is None:
        raise UsageError(
            f"{written[:LONGEST_PARAMETER]!r} is not a number.", "Follow the links of the pages.", code="InvalidNumber"
        )
    return number


def _invalid_parameter(name: str) -> UsageError:
    return UsageError(
        f"The parameter {name} is too long, or not text.", "Follow the links of the pages.", code="InvalidParameter"
    )
