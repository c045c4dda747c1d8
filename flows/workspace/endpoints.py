"""`endpoints.yaml` of a home: the endpoints that requests can name (`tasks.inference.backends.endpoints`)."""

from collections.abc import Mapping

from flows.workspace.yaml_files import read_sections, write_sections
from models_db.errors import EnvironmentProblem, UsageError
from models_db.home import ProjectHome
from models_db.values.requests import model_to_json, parse_model
from tasks.inference.backends.endpoints import PAGE, Endpoint, EndpointUnknown

FILE_HEADER = """\
# Endpoints that requests can name as `model: external:NAME` (docs/external-models.md). Put no secret here: almoner
# reads a key from the environment variable that `key_env` names.
"""


def endpoints_of(home: ProjectHome) -> dict[str, Endpoint]:
    """Return every endpoint of a home, by name.

    Raises:
        FileUnreadable, FileInvalid: the file cannot be read, or holds no valid endpoints.
    """
    return {
        name: parse_endpoint(name, fields)
        for name, fields in read_sections(home.endpoints, "an endpoint", PAGE).items()
    }


def parse_endpoint(name: str, fields: Mapping[str, object]) -> Endpoint:
    """Parse one endpoint of the file.

    Raises:
        FileInvalid: the entry is not an endpoint; the message does not repeat it.
    """
    return parse_model(Endpoint, {**fields, "name": name}, f"The endpoint {name!r}", PAGE)


def add_endpoint(home: ProjectHome, endpoint: Endpoint, *, replace: bool = False) -> None:
    """Store an endpoint.

    Raises:
        EndpointExists: there is an endpoint of that name, and `replace` is false.
        FileUnreadable, FileInvalid, EndpointsUnwritable: the file cannot be read or written.
    """
    endpoints = endpoints_of(home.require())
    if endpoint.name in endpoints and not replace:
        raise UsageError(
            f"An endpoint {endpoint.name!r} exists already.",
            "Choose another name, or use --replace; requests made for another address or model must then be submitted"
            " and approved again.",
            {"endpoint": endpoint.name},
            code="EndpointExists",
        )
    _write_endpoints(home, {**endpoints, endpoint.name: endpoint})


def remove_endpoint(home: ProjectHome, name: str) -> Endpoint:
    """Remove an endpoint.

    Raises:
        EndpointUnknown: there is no endpoint of that name.
        FileUnreadable, FileInvalid, EndpointsUnwritable: the file cannot be read or written.
    """
    endpoints = endpoints_of(home.require())
    if name not in endpoints:
        raise EndpointUnknown(name, sorted(endpoints))
    removed = endpoints.pop(name)
    _write_endpoints(home, endpoints)
    return removed


def _write_endpoints(home: ProjectHome, endpoints: Mapping[str, Endpoint]) -> None:
    try:
        write_sections(
            home.endpoints, FILE_HEADER, {name: _endpoint_fields(endpoint) for name, endpoint in endpoints.items()}
        )
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise EnvironmentProblem(
            f"{home.endpoints} cannot be written: {reason}.",
            "Check its permissions.",
            {"path": str(home.endpoints)},
            code="EndpointsUnwritable",
        ) from None


def _endpoint_fields(endpoint: Endpoint) -> dict[str, object]:
    """Return the fields of an endpoint that differ from their defaults."""
    fields = model_to_json(endpoint)
    if not isinstance(fields, dict):
        raise TypeError("an endpoint is a mapping")
    defaults = {
        name: model_to_json(field.default) for name, field in Endpoint.model_fields.items() if not field.is_required()
    }
    return {name: value for name, value in fields.items() if name != "name" and defaults.get(name, ...) != value}
