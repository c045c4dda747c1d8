"""Application of the dashboard: its routes, middleware and server."""

import socket
import sys
import traceback

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from cli.web.access import AccessPolicy
from cli.web.authentication import Login, SecurityMiddleware
from cli.web.chain_status import ChainWatch
from cli.web.person_pages import PersonPages
from cli.web.responses import FaultReporter, with_error_pages, with_error_pages_async
from cli.web.sessions import LoginThrottle, Sessions
from cli.web.views import DashboardViews
from models_db.home import ProjectHome
from tasks.common.files import require_user_file


def application(home: ProjectHome, access: AccessPolicy, tell: FaultReporter | None = None) -> ASGIApp:
    """Build the dashboard of a home as an ASGI application.

    Args:
        tell: reports unexpected errors; by default their place in the code is printed, without their text.
    """
    views, sessions, throttle = (
        DashboardViews(home, ChainWatch(home), secured=access.token is not None, decides=access.decides),
        Sessions(),
        LoginThrottle(),
    )
    report_fault = tell or print_fault_location
    pages = {
        "/": views.overview,
        "/index.json": views.overview,
        "/datasets": views.dataset,
        "/datasets.json": views.dataset,
        "/datasets/{name:path}": views.dataset,
        "/approvals": views.approvals,
        "/approvals.json": views.approvals,
        "/approvals/{gate}/{number}/ask.json": views.question,
        "/releases": views.releases,
        "/releases.json": views.releases,
        "/releases/{number}": views.release,
        "/releases/{number}/report": views.report,
        "/releases/{number}/report.json": views.report,
        "/releases/{number}/budget": views.budget,
        "/releases/{number}/budget.json": views.budget,
        "/releases/{number}/texts": views.texts,
        "/releases/{number}/texts.json": views.texts,
        "/releases/{number}/card": views.card,
        "/releases/{number}/card.json": views.card,
        "/audit": views.audit,
        "/audit.json": views.audit,
        "/healthz": views.health,
        "/style.css": views.style,
        "/favicon.svg": views.icon,
    }
    routes = [Route(path, with_error_pages(page, report_fault, home), methods=["GET"]) for path, page in pages.items()]
    login = Login(access, sessions, throttle)
    routes.append(Route("/login", with_error_pages_async(login.answer, report_fault), methods=["GET", "POST"]))
    if access.decides:
        personal = PersonPages(home, access, report_fault)
        routes += [Route(path, endpoint, methods=[method]) for path, method, endpoint in personal.endpoints()]
    starlette = Starlette(routes=routes, exception_handlers={404: views.missing})
    starlette.router.redirect_slashes = False
    return SecurityMiddleware(starlette, access, sessions, throttle)


def print_fault_location(problem: BaseException) -> None:
    """Print the type and place of an error to stderr, without its text, which could hold private data."""
    places = traceback.extract_tb(problem.__traceback__)[-1:]
    where = "".join(f" at {place.filename}:{place.lineno}" for place in places)
    sys.stderr.write(f"Fault: {type(problem).__name__}{where}\n")


def serve_dashboard(home: ProjectHome, access: AccessPolicy) -> None:
    """Serve requests until interrupted.

    Raises:
        OSError: the address is not available, or the certificate cannot be used.
    """
    import uvicorn

    for file in filter(None, (access.certificate, access.key)):
        require_user_file(file)
    settings = uvicorn.Config(
        application(home, access),
        ssl_certfile=access.certificate,
        ssl_keyfile=access.key,
        ssl_ciphers="ECDHE+AESGCM:ECDHE+CHACHA20",
        access_log=False,
        log_level="error",
        proxy_headers=False,  # whoever claims to speak for others could have their wrong tokens counted elsewhere
        server_header=False,
        limit_concurrency=64,
        timeout_keep_alive=5,
        ws="none",
    )
    settings.load()
    family = socket.AF_INET6 if ":" in access.address else socket.AF_INET
    with socket.create_server((access.address, access.port), family=family) as listening:
        uvicorn.Server(settings).run(sockets=[listening])
