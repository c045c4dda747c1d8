"""Responses: a page or the same as JSON, and errors by name; no response contains a traceback."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import wraps
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from flows.audit.verify import ledger_altered
from models_db.errors import AlmonerError, EnvironmentProblem, Refused
from models_db.home import ProjectHome
from models_db.services.datasets import DatasetUnknown
from models_db.services.requests import RequestUnknown
from models_db.values.untrusted_text import json_text
from tasks.planning.block_selection import describe_cohorts
from tasks.reporting.html_report import environment

JSON_TYPE = "application/json"
LONGEST_ADVICE = 400

Endpoint = Callable[[Request], Response]
FaultReporter = Callable[[BaseException], None]


def load_templates() -> Environment:
    """Load the dashboard's templates, with the style and the charts of reports."""
    templates = environment("cli.web", "tasks.reporting")
    templates.globals |= {"dataset_path": dataset_path}
    templates.filters |= {
        "at": lambda moment: str(moment)[:16].replace("T", " "),
        "day": lambda moment: str(moment)[:10],
    }
    templates.filters["describe_cohorts"] = describe_cohorts
    return templates


def dataset_path(name: str) -> str:
    """Return the path of a dataset's page; a name that a path cannot carry becomes a parameter."""
    if name in (".", "..") or name.endswith(".json"):
        return f"/datasets?name={quote(name, safe='')}"
    return f"/datasets/{quote(name, safe='')}"


def wants_json(request: Request) -> bool:
    """Return whether the client wants JSON: by the end of the path, or by the Accept header."""
    if request.url.path.endswith(".json"):
        return True
    accepted = [part.split(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")]
    return JSON_TYPE in accepted and "text/html" not in accepted


def json_response(content: Any, status: int = 200) -> Response:
    """Return a JSON response, with dataclasses and models as objects."""
    plain = json_text(content, default=_json_default, indent=2) + "\n"
    return Response(plain, status, media_type=JSON_TYPE)


def _json_default(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(type(value).__name__)


def html_response(template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """Render a template as an HTML response."""
    frame = {"decides": False, **context}
    return HTMLResponse(load_templates().get_template(template).render(**frame), status)


def error_response(request: Request, status: int, name: str, message: str, advice: str = "") -> Response:
    """Return an error by its name, as a page or as JSON."""
    advice = advice if len(advice) <= LONGEST_ADVICE else f"{advice[:LONGEST_ADVICE]}..."
    fields: Mapping[str, Any] = {"error": name, "message": message, "advice": advice}
    if wants_json(request):
        return json_response(fields, status)
    return html_response("error.html", status, decides=getattr(request.state, "decides", False), **fields)


def status_of(problem: AlmonerError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(problem, DatasetUnknown | RequestUnknown):
        return 404
    if isinstance(problem, EnvironmentProblem):
        return 503
    return 403 if isinstance(problem, Refused) else 400


def with_error_pages(endpoint: Endpoint, tell: FaultReporter, home: ProjectHome) -> Endpoint:
    """Wrap an endpoint so that its errors become pages; unexpected errors are reported to the operator.

    If the ledger of the home was altered, the page reports that instead of the error.
    """

    @wraps(endpoint)
    def answered(request: Request) -> Response:
        try:
            return endpoint(request)
        except AlmonerError as problem:
            return error_response(request, status_of(problem), problem.code, problem.message, problem.advice)
        except Exception as problem:  # noqa: BLE001  # the last line: nothing of it may reach the other side
            if (altered := ledger_altered(home)) is not None:
                return error_response(request, status_of(altered), altered.code, altered.message, altered.advice)
            return _fault_response(request, problem, tell)

    return answered


def with_error_pages_async(endpoint: Callable[[Request], Awaitable[Response]], tell: FaultReporter) -> Any:
    """Wrap an asynchronous endpoint in the same way."""

    @wraps(endpoint)
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as problem:  # noqa: BLE001  # as above
            return _fault_response(request, problem, tell)

    return answered


def _fault_response(request: Request, problem: BaseException, tell: FaultReporter) -> Response:
    tell(problem)
    return error_response(request, 500, "Fault", "almoner met an unexpected error here.",
                      "The operator of the dashboard finds details in the output of its process.")  # fmt: skip
