"""A collector of OpenTelemetry on this machine, for tests: it keeps every byte that it is sent."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Listens until it is closed."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: Any, **kwargs: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def requests(self) -> list[ExportTraceServiceRequest]:
        """What was sent, as OpenTelemetry reads it."""
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    @property
    def traces(self) -> list[list[Span]]:
        """The spans of each message."""
        return [
            [span for resource in sent.resource_spans for scope in resource.scope_spans for span in scope.spans]
            for sent in self.requests
        ]

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def attributes(span: Span) -> dict[str, object]:
    """What a span says."""
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in span.attributes}
