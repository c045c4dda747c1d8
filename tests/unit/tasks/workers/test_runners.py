"""Workers of every kind: what they ask is answered, what goes wrong has a name, and they end when they should."""

import ast
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from models_db.errors import AlmonerError
from tasks.common.faults import TaskFailed
from tasks.workers.backend_settings import HERE, KINDS, PROCESSES, RAY, THREADS, WorkerBackend, open_runner
from tasks.workers.pool import Runner, WorkerDied
from tests import bodies
from tests.refusals import refusal
from tests.support import PATIENCE

pytestmark = pytest.mark.dear

EVERY = [THREADS, PROCESSES, pytest.param(RAY, marks=pytest.mark.slow)]
KILLABLE = [PROCESSES, pytest.param(RAY, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def open_one() -> Iterator[Callable[[str], Runner]]:
    """Each kind of runner, opened once: starting a cluster takes seconds."""
    opening = []

    @cache
    def open_kind(kind: str) -> Runner:
        opening.append(open_runner(WorkerBackend(kind), 2))
        made = opening[-1].__enter__()
        assert made is not None
        return made

    yield open_kind
    for each in opening:
        each.__exit__(None, None, None)


@pytest.fixture
def runner(open_one: Callable[[str], Runner], kind: str) -> Runner:
    return open_one(kind)


@pytest.mark.parametrize("kind", EVERY)
def test_what_workers_ask_is_answered_and_what_they_return_is_in_order(runner: Runner) -> None:
    asked: list[tuple[int, Any]] = []

    def answer(number: int, what: Any) -> str:
        asked.append((number, what))
        return f"{number} says {what[1]}"

    with runner.start([partial(bodies.counting, name, 3) for name in "ab"]) as crew:
        found = crew.serve(answer)
    assert found == [(name, [f"{k} says {n}" for n in range(3)]) for k, name in enumerate("ab")]
    assert sorted(asked) == [(k, (name, n)) for k, name in enumerate("ab") for n in range(3)]


@pytest.mark.parametrize("kind", EVERY)
def test_workers_share_nothing_with_the_run(runner: Runner) -> None:
    told = [0]
    with runner.start([bodies.growing]) as crew:
        assert crew.serve(lambda number, what: told) == [[0, 1]]
    assert told == [0]


@pytest.mark.parametrize("kind", EVERY)
def test_what_goes_wrong_in_a_worker_has_a_name_and_no_text(runner: Runner) -> None:
    with pytest.raises(TaskFailed, match="ValueError") as told, runner.start([bodies.clumsy, bodies.exact]) as crew:
        crew.serve(lambda number, what: None)
    assert "Smith" not in told.value.diagnostics()
    assert "Smith" not in repr(told.value.facts)
    with pytest.raises(bodies.OnlyHere, match="nobody may do it"), runner.start([bodies.refused]) as crew:
        crew.serve(lambda number, what: None)


@pytest.mark.parametrize("kind", KILLABLE)
def test_a_worker_that_is_killed_is_missed(runner: Runner) -> None:
    with pytest.raises(WorkerDied), runner.start([bodies.killed, partial(bodies.counting, "b", 1)]) as crew:
        crew.serve(lambda number, what: None)


@pytest.mark.parametrize("kind", [THREADS])
def test_a_worker_ends_when_the_run_does_not_answer_any_more(runner: Runner, tmp_path: Path) -> None:
    """An answer that is refused is no answer: the worker does nothing more."""

    def answer(number: int, what: Any) -> None:
        raise PermissionError

    with pytest.raises(PermissionError), runner.start([partial(bodies.faithful, tmp_path / "gone")]) as crew:
        crew.serve(answer)
    patience = time.monotonic() + PATIENCE
    while not (tmp_path / "gone").exists():
        assert time.monotonic() < patience
        time.sleep(0.01)


def test_a_run_with_one_worker_computes_by_itself() -> None:
    with open_runner(HERE, 1) as runner:
        assert runner is None


# --- the setting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        (RAY, "localhost:6379"),
        (RAY, "[::1]:6379"),
        (RAY, "127.0.0.1:6379"),
        (PROCESSES, ""),
        (THREADS, None),
    ],
)
def test_private_text_may_travel_over_tls_or_within_this_machine(kind: str, address: str | None) -> None:
    assert WorkerBackend.of(kind, address) == WorkerBackend(kind, address or None)


@pytest.mark.parametrize(
    ("kind", "address", "reason"),
    [
        (RAY, "cluster.clinic.example:6379", "not protected"),
        (RAY, "10.0.0.7:6379", "not protected"),
        (RAY, "cluster.clinic.example", "HOST:PORT"),
        (RAY, "cluster:port", "HOST:PORT"),
        (RAY, "http://127.0.0.1:80", "HOST:PORT"),
        (RAY, "somebody@cluster:6379", "HOST:PORT"),
        (RAY, "127.0.0.1:6379/path", "HOST:PORT"),
        (THREADS, "127.0.0.1:1", "no address"),
        ("slurm", None, "no runner"),
    ],
)
def test_any_other_address_is_refused(
    kind: str, address: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with pytest.raises(AlmonerError, match=reason) as refused:
        WorkerBackend.of(kind, address)
    assert refused.value.exit_code == 2


def test_ray_on_other_machines_wants_its_own_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    assert WorkerBackend.of(RAY, "10.0.0.7:6379").address == "10.0.0.7:6379"


OPTIONS = """
from types import SimpleNamespace
from tasks.workers import ray_backend
from tasks.workers.backend_settings import WorkerBackend, open_runner
from tests import bodies

class Actor:
    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *given: name)

def remote(**options):
    print(options["num_gpus"])
    return lambda kind: SimpleNamespace(remote=Actor)

ray = ray_backend.ray
ray.util = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
ray.init = ray.kill = ray.shutdown = lambda *given, **options: None
ray.remote, ray.get, ray.wait = remote, lambda said: b"", lambda ready, **options: (ready, [])
for address in ("10.0.0.7:6379", None):
    for gpus in (1, 4, 0):
        with open_runner(WorkerBackend("ray", address), 2, gpus) as runner:
            runner.start([bodies.exact, bodies.exact])
"""


def test_workers_of_a_ray_cluster_ask_for_their_gpus() -> None:
    """On this machine they are told which GPUs are theirs, and may share one (`Workers.on`)."""
    assert _in_a_process_of_its_own(OPTIONS) == ["1", "4", "0", "0", "0", "0"]


def _in_a_process_of_its_own(script: str, *arguments: str) -> list[str]:
    """What it prints. Ray reads its token when it is imported, so nobody else may have imported it."""
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


SHARED_GPUS = """
import os
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
from tasks.workers import ray_backend
from tests import bodies

runner = ray_backend.RayRunner(None, 3, gpus=0)
with runner.start([bodies.gpus_seen] * 3) as crew:
    print(crew.serve(lambda number, what: None))
runner.close()
"""


@pytest.mark.slow
def test_ray_on_this_machine_hides_no_gpu_so_that_each_worker_can_use_its_own() -> None:
    assert _in_a_process_of_its_own(SHARED_GPUS) == ["['0,1', '0,1', '0,1']"]


PRETENDED_GPUS = """
import os
import sys
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
import ray
from tasks.workers import ray_backend
from models_db.errors import AlmonerError
from tests import bodies

present, each = map(int, sys.argv[1:])
real = ray.init
ray_backend.ray.init = lambda **options: real(**options | {"num_gpus": present})
runner = ray_backend.RayRunner(None, 3, gpus=each)
with runner.start([bodies.gpus_seen] * 2) as crew:
    print(sorted(crew.serve(lambda number, what: None)))
ray_backend.BEGIN_S = 5
try:
    runner.start([bodies.gpus_seen] * 3)
except AlmonerError as refused:
    print(refused.exit_code, refused.message)
runner.close()
"""
"""Two workers with some of the GPUs that Ray believes to be there, and a third for whom there is none."""


@pytest.mark.slow
def test_ray_shows_each_worker_a_group_of_gpus_that_no_other_has() -> None:
    seen, refusal = _in_a_process_of_its_own(PRETENDED_GPUS, "4", "2")
    groups = [set(each.split(",")) for each in ast.literal_eval(seen)]
    assert [len(group) for group in groups] == [2, 2]
    assert set.union(*groups) == {"0", "1", "2", "3"}
    assert refusal == "3 The ray cluster has fewer than 6 free GPUs, 2 on one machine for each worker."


@pytest.mark.slow
def test_ray_shows_each_worker_its_own_gpu_and_waits_for_no_more_than_there_are() -> None:
    """Ray believes that this machine has two; nothing computes on them."""
    assert _in_a_process_of_its_own(PRETENDED_GPUS, "2", "1") == [
        "['0', '1']",
        "3 The ray cluster has fewer than 3 free GPUs, one for each worker.",
    ]


LISTENING = """
import psutil
from tasks.workers.backend_settings import WorkerBackend, open_runner
from tests import bodies

with open_runner(WorkerBackend("ray"), 2) as runner, runner.start([bodies.exact] * 2) as crew:
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    for one in family:
        for each in one.net_connections():
            if each.status == psutil.CONN_LISTEN:
                print(each.laddr.ip)
"""


@pytest.mark.slow
def test_a_ray_of_this_machine_listens_on_the_loopback_address_alone() -> None:
    found = [ip_address(each) for each in _in_a_process_of_its_own(LISTENING)]
    assert all((getattr(each, "ipv4_mapped", None) or each).is_loopback for each in found), found
    assert len(found) >= 5  # the run, the head, the node twice, and the agent


TWICE = """
from tasks.workers.backend_settings import WorkerBackend, open_runner
from tests import bodies

for count in (1, 2):
    with open_runner(WorkerBackend("ray"), count) as runner, runner.start([bodies.exact] * count):
        print(count)
"""


@pytest.mark.slow
def test_a_process_opens_one_ray_of_this_machine_after_the_other() -> None:
    """Ray keeps the first token that it reads."""
    assert _in_a_process_of_its_own(TWICE) == ["1", "2"]


IMPORTED_BEFORE = """
import os
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"
import ray
from models_db.errors import AlmonerError
from tasks.workers.backend_settings import WorkerBackend, open_runner

try:
    with open_runner(WorkerBackend("ray"), 1):
        print("opened")
except AlmonerError as refused:
    print(refused.facts["reason"], ray.is_initialized())
"""


@pytest.mark.slow
def test_a_ray_that_other_machines_could_reach_is_ended() -> None:
    assert _in_a_process_of_its_own(IMPORTED_BEFORE) == ["NotOnLoopback False"]


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "")
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "")
    monkeypatch.setitem(sys.modules, "tasks.workers.ray_backend", None)
    with (
        refusal("RunnerNotInstalled", match="not installed") as missing,
        open_runner(WorkerBackend(RAY), 1),
    ):
        raise AssertionError
    assert "almoner[ray]" in missing.value.advice


def test_every_kind_has_a_name() -> None:
    assert set(KINDS) == {PROCESSES, THREADS, RAY}
    assert WorkerBackend.of(PROCESSES) == HERE
