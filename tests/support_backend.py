"""A real server on loopback that speaks OpenAI's chat completions and writes with the tiny model; it hears everything.

It can be told to misbehave. Beside it is a small system that shows released values alone to the model.
"""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any

import pytest
import torch
from pydantic import BaseModel, Field

from models_db.services.budget import InvocationPlan
from models_db.values.amounts import Amount
from models_db.values.requests import ExactDecimal
from models_db.values.requests import RequestModel as WrittenByPeople
from tasks.decoding.public_sampling import text_backend
from tasks.decoding.run_context import RunContext
from tasks.inference.backends.endpoints import Endpoint
from tasks.inference.backends.text_backend import Sampling
from tasks.mechanisms.counts.noisy_count import NoisyCount, calibrate_count
from tasks.systems.base import System
from tasks.values.plan import Plan, PlanInputs
from tasks.values.results import Generated, GeneratedText
from tests.tiny_model import tiny_network

MODEL = "tiny-chat"
PATH = "/v1/chat/completions"


@dataclass(frozen=True)
class Seen:
    """One request, as it came over the wire; names of headers in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """What was asked."""
        return json.loads(self.body)

    @property
    def prompt(self) -> str:
        """What the user said."""
        return str(self.json["messages"][-1]["content"])


Trick = Callable[["Handler"], None]
"""In place of an answer."""


class ModelServer:
    """Use it as a context. Tricks of `next` are played once each, in their order; `always` until it is None again.

    Args:
        network: what writes, and its tokenizer: the tiny model, unless told otherwise.
        tls: certificate and key of a server that speaks https.
    """

    def __init__(self, network: Callable[[], tuple[Any, Any]] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.scheme = "https" if tls else "http"
        self.network = network or _network
        self.seen: list[Seen] = []
        self.next: list[Trick] = []
        self.always: Trick | None = None
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._server.model_server = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> "ModelServer":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Nobody answers any more; the port is free."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Its address, as an endpoint is configured with it."""
        return f"{self.scheme}://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return "127.0.0.1", int(self._server.server_address[1])

    def endpoint(self, **changes: Any) -> Endpoint:
        """This server as an endpoint that is not waited for long."""
        given = {"name": "tiny", "url": self.url, "model": MODEL, "timeout": 5, "attempts": 2, "at_once": 2}
        return Endpoint.model_validate(given | changes)

    @property
    def prompts(self) -> list[str]:
        """What was asked, in the order in which it came."""
        return [seen.prompt for seen in self.seen]

    def heard(self, words: Iterable[str]) -> list[str]:
        """Those of `words` that any request held, in its address, its headers or its body, escaped or not."""
        told = [f"{seen.path}\n{dict(seen.headers)!r}\n{seen.body.decode('utf-8', 'replace')}" for seen in self.seen]
        told += ["\n".join(_strings(seen.json)) for seen in self.seen if seen.body]
        everything = "\n".join(told)
        return [word for word in words if word in everything]

    def trick(self) -> Trick:
        """What is played now."""
        with self.lock:
            if self.next:
                return self.next.pop(0)
        return self.always or answer


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    @property
    def ours(self) -> ModelServer:
        """The server."""
        return self.server.model_server  # type: ignore[attr-defined, no-any-return]

    def do_POST(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Not to stderr."""

    def _serve(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.ours.lock:
            self.ours.seen.append(Seen(self.command, self.path, headers, self.body))
        try:
            self.ours.trick()(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def say(self, code: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """One whole answer."""
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def connections(patch: pytest.MonkeyPatch) -> list[Any]:
    """Every address that this process connects to by the network from now on, in their order."""
    found: list[Any] = []

    def watched(name: str) -> None:
        real = getattr(socket.socket, name)

        def connect(self: socket.socket, address: Any) -> Any:
            if self.family != socket.AF_UNIX:
                found.append(address)
            return real(self, address)

        patch.setattr(socket.socket, name, connect)

    for name in ("connect", "connect_ex"):
        watched(name)
    return found


def answer(handler: Handler) -> None:
    """As it should be: the tiny model writes."""
    if handler.path != PATH:
        handler.say(404, b"{}")
        return
    asked = json.loads(handler.body)
    most = asked.get("max_tokens") or asked["max_completion_tokens"]
    with handler.ours.lock:
        text, tokens, ended = write(handler.ours.network(), asked["messages"], most, asked["temperature"])
    handler.say(200, json.dumps(completion(text, tokens, "stop" if ended else "length")).encode())


def completion(text: Any, tokens: Any = 3, finish: str = "stop") -> dict[str, Any]:
    """A chat completion as OpenAI writes it."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": 1},
    }


def write(
    model: tuple[Any, Any], messages: list[dict[str, str]], most: int, temperature: float
) -> tuple[str, int, bool]:
    """What a model writes, through transformers: the text, its tokens, and whether it came to an end."""
    network, tokenizer = model
    asked = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    how = {"do_sample": True, "temperature": temperature, "top_k": 0, "min_new_tokens": min(4, most)}
    with torch.inference_mode():
        whole = network.generate(**asked, max_new_tokens=most, pad_token_id=tokenizer.eos_token_id, **how)
    drawn = whole[0, asked["input_ids"].shape[1] :].tolist()
    ended = drawn[-1] == tokenizer.eos_token_id
    text = tokenizer.decode(drawn, skip_special_tokens=True)
    return text if text.strip() else "-", len(drawn) - ended, ended


@cache
def _network() -> tuple[Any, Any]:
    return tiny_network(seed=11, spread=0.2)


def says(code: int, body: bytes = b"{}", **headers: str) -> Trick:
    """An answer of this status; `Retry_After` stands for Retry-After."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.say(code, body, named)


def says_json(body: Any) -> Trick:
    """A 200 with this as JSON."""
    return says(200, json.dumps(body).encode())


def hangs(handler: Handler) -> None:
    """Nothing, until the server is stopped."""
    handler.ours.closing.wait(30)
    handler.close_connection = True


def drips(handler: Handler) -> None:
    """A byte now and then, and never an end."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while not handler.ours.closing.wait(0.1):
        handler.wfile.write(b" ")
        handler.wfile.flush()
    handler.close_connection = True


def drips_headers(handler: Handler) -> None:
    """A header that never ends."""
    _keeps_saying(handler, b"HTTP/1.1 200 OK\r\nX-Never: ", b"a")


def hints_for_ever(handler: Handler) -> None:
    """The announcement of an answer, again and again."""
    _keeps_saying(handler, b"", b"HTTP/1.1 103 Early Hints\r\n\r\n")


def _keeps_saying(handler: Handler, first: bytes, then: bytes) -> None:
    handler.wfile.write(first)
    while not handler.ours.closing.wait(0.1):
        handler.wfile.write(then)
        handler.wfile.flush()
    handler.close_connection = True


def breaks_off(handler: Handler) -> None:
    """Half of an answer, and the connection is gone."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.close_connection = True


def _strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for pair in value.items() for each in pair for text in _strings(each)]
        case list():
            return [text for each in value for text in _strings(each)]
        case _:
            return []


class CountedParameters(WrittenByPeople):
    """`parameters:` of the small system."""

    samples: Annotated[int, Field(ge=1)]
    max_new_tokens: Annotated[int, Field(ge=1)] = 12
    temperature: ExactDecimal = Decimal(1)


@dataclass(frozen=True)
class Counted(System):
    """Releases a noisy count of the units, and has texts written that mention it. Half of the prompts are equal.

    Attributes:
        told: what else the model is told, by the corpus: nothing, unless a test makes it leak.
    """

    told: Callable[[RunContext], str] = lambda context: ""
    name: str = "keyphrase_seeding"
    kinds: tuple[str, ...] = ("synthetic_corpus",)
    parameters: type[BaseModel] = CountedParameters
    shows_private_text: bool = False
    texts_have_blocks: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)

    def plan(self, ask: PlanInputs) -> Plan:
        wanted = _asked(ask.parameters)
        count = calibrate_count((ask.amount or Amount()).rho)
        return Plan(
            invocations=(InvocationPlan(count.event(), (count.loss(),)),),
            blocks=tuple(range(ask.blocks)),
            samples=wanted.samples,
            facts={"samples": str(wanted.samples), **self.facts},
            rows=wanted.samples,
            steps=wanted.max_new_tokens,
            prompt_tokens=40,
            amount=ask.amount or Amount(),
        )

    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        wanted = _asked(parameters)
        if not context.steps.paid:
            context.journal.begin(len(plan.invocations), {})
        count = NoisyCount.from_event(plan.invocations[0].event)
        units = context.release("count", [0], context.corpus.unit_count, lambda true: count.draw(true, context.rng))
        about = f"A note about {units} people. {self.told(context)}"
        prompts = [f"{about} Number {number}." if number % 2 else about for number in range(wanted.samples)]
        how = Sampling(wanted.max_new_tokens, wanted.temperature)
        texts = text_backend(context).write(prompts, how)
        return Generated(tuple(GeneratedText(text.text, text.tokens, text.complete) for text in texts))


def _asked(parameters: BaseModel) -> CountedParameters:
    assert isinstance(parameters, CountedParameters)
    return parameters
