"""The files of deploy/: an image, a compose file and units that nobody runs here are at least read closely.

There is no linter for Dockerfiles among Python's packages, so the rules are here; `systemd-analyze` looks at the units
where it is installed, after our own reader, which always does.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

import pytest
import typer
import yaml
from jsonschema import Draft202012Validator

from tests.test_docs import COMMANDS, ROOT, ROOT_COMMAND

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
IGNORED = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
UNITS = sorted((DEPLOY / "systemd").iterdir())
SERVICES = [path for path in UNITS if path.suffix == ".service"]
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = (ROOT / "pyproject.toml").read_text()
SECRET = re.compile(r"pass(word|wd)?|secret|token|api_?key|private", re.IGNORECASE)


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, continued lines joined, comments left out."""
    lines = "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    found = [line.split(None, 1) for line in re.sub(r"\\\n\s*", " ", lines).splitlines()]
    return [(parts[0], parts[1] if len(parts) > 1 else "") for parts in found]


IMAGE = instructions(DOCKERFILE)
KNOWN = {"FROM", "ENV", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
"""ADD fetches, ARG and ONBUILD surprise, EXPOSE opens what nobody asked for: none of them is needed."""


def said(name: str) -> list[str]:
    return [rest for instruction, rest in IMAGE if instruction == name]


def test_only_what_is_needed_is_in_the_dockerfile() -> None:
    assert {name for name, _ in IMAGE} <= KNOWN
    assert IMAGE[0][0] == "FROM"


def test_bases_are_pinned_and_fit_the_project() -> None:
    bases = [base.split()[0] for base in said("FROM")]
    assert len(bases) == 2
    assert len(set(bases)) == 1  # the environment is copied from one to the other
    assert re.fullmatch(r"python:3\.(\d+)\.\d+-slim-[a-z]+", bases[0])
    assert int(bases[0].split(".")[1]) >= int(re.findall(r'requires-python = ">=3\.(\d+)"', PROJECT)[0])
    assert "@sha256:" in DOCKERFILE  # how to pin by digest is said
    version = re.findall(r'^version = "(.+)"', PROJECT, re.MULTILINE)[0]
    assert f"almoner:{version} " in DOCKERFILE
    assert {s["image"] for s in COMPOSE["services"].values()} >= {f"almoner:{version}"}
    assert f"prefect=={COMPOSE['services']['prefect']['image'].split(':')[1].split('-')[0]} \\\n" in LOCK


def test_the_image_runs_as_nobody_and_writes_in_one_place() -> None:
    [account] = said("USER")
    assert account == "10001:10001"
    after = [name for name, _ in IMAGE[IMAGE.index(("USER", account)) :]]
    assert "RUN" not in after
    assert "COPY" not in after
    [volume] = said("VOLUME")
    written = yaml.safe_load(volume)
    assert written == said("WORKDIR")[-1:]
    environment = said("ENV")[-1]
    for name in ("HOME", "ALMONER_HOME", "ALMONER_MODELS", "PREFECT_HOME"):
        assert re.search(rf"\b{name}={written[0]}\b", environment)
    assert said("ENTRYPOINT") == ['["almoner"]']  # no shell in between: SIGTERM reaches the worker


def test_no_secret_gets_into_a_layer() -> None:
    for text in said("ENV") + said("RUN"):
        names = re.findall(r"(\w+)=", text)
        assert not [name for name in names if SECRET.search(name)]
    assert IGNORED[1] == "*"  # everything is left out that is not named
    assert not any("*" in line for line in IGNORED if line.startswith("!"))
    allowed = {line[1:] for line in IGNORED if line.startswith("!")}
    copied = {word for rest in said("COPY") if "--from" not in rest for word in rest.split()[:-1]}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)
    [packages] = re.findall(r"^packages = (\[.*flows.*\])$", PROJECT, re.MULTILINE)[:1]
    assert set(yaml.safe_load(packages)) <= copied


def reaches_the_build(path: str) -> bool:
    """Whether Docker sends a file to the build: the last line that is about it decides, or about a folder of it."""
    places = [path, *(str(parent) for parent in PurePosixPath(path).parents)]
    sent = True
    for line in IGNORED:
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and any(is_meant(place, pattern) for place in places):
            sent = line.startswith("!")
    return sent


def is_meant(place: str, pattern: str) -> bool:
    anywhere = pattern.startswith("**/")
    return place != "." and fnmatch(PurePosixPath(place).name if anywhere else place, pattern.removeprefix("**/"))


@pytest.mark.slow
def test_the_wheel_of_the_image_has_program_and_documentation(tmp_path: Path) -> None:
    """Built of exactly the files that Docker sends and the Dockerfile copies, then asked for a page."""
    copied = {word for rest in said("COPY") if "--from" not in rest for word in rest.split()[:-1]}
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    sent = [path for path in kept if path.split("/")[0] in copied and reaches_the_build(path)]
    for path in sent:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, tmp_path / path)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=tmp_path, check=True,
                   capture_output=True)  # fmt: skip
    [wheel] = (tmp_path / "dist").glob("*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    packages = yaml.safe_load(re.findall(r"^only-include = (\[.*\])$", PROJECT, re.MULTILINE)[0])
    built = {(f"almoner/{name}" if name == "docs" else name) for name in packages}
    assert all((tmp_path / "installed" / name).is_dir() for name in built)
    pages = {path.removeprefix("docs/") for path in kept if path.startswith("docs/") and path.endswith(".md")
             and not path.startswith("docs/figures/")}  # fmt: skip
    found = (tmp_path / "installed" / "almoner" / "docs").rglob("*.md")
    assert {str(path.relative_to(tmp_path / "installed" / "almoner" / "docs")) for path in found} == pages
    started = [sys.executable, "-P", "-c", "from cli.app import main; main()", "docs", "deploy", "--json"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed"), "ALMONER_HOME": str(tmp_path / "home")}
    told = subprocess.run(started, cwd=tmp_path / "installed", env=environment, capture_output=True, text=True,
                          check=True).stdout  # fmt: skip
    assert json.loads(told)["text"] == (ROOT / "docs" / "deploy.md").read_text()


def test_what_a_layer_runs_stops_at_the_first_error_and_fetches_nothing_by_hand() -> None:
    for text in said("RUN"):
        assert ";" not in text
        assert "|" not in text  # without pipefail, only the last command's end counts
        assert not re.search(r"\b(curl|wget|sudo|apt|apt-get|git)\b", text)
        assert "pip install" not in text or "--require-hashes -r requirements.lock" in text or "--no-deps" in text


# --- compose -----------------------------------------------------------------------------------------------------

NAME = {"type": "string", "pattern": r"^[a-z][a-z0-9_]*$"}
WORDS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
VOLUME = r"^([a-z]+:/[\w/.-]+|\./[\w.]+:/[\w/.-]+:ro)$"
SERVICE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["image", "user", "command", "read_only", "cap_drop", "security_opt", "restart", "networks"],
    "properties": {
        "image": {"type": "string", "pattern": r"^[a-z0-9/]+:[0-9][\w.-]+$"},
        "build": {"type": "object", "required": ["context", "dockerfile"], "additionalProperties": False,
                  "properties": {"context": {"const": ".."}, "dockerfile": {"const": "deploy/Dockerfile"}}},
        "user": {"type": "string", "pattern": "^[1-9][0-9]*:[1-9][0-9]*$"},
        "command": WORDS,
        "read_only": {"const": True},
        "cap_drop": {"const": ["ALL"]},
        "security_opt": {"const": ["no-new-privileges:true"]},
        "restart": {"const": "unless-stopped"},
        "pids_limit": {"type": "integer", "minimum": 1},
        "logging": {"const": {"driver": "local"}},
        "stop_grace_period": {"type": "string", "pattern": "^[0-9]+m$"},
        "ulimits": {"const": {"core": 0}},
        "shm_size": {"type": "string"},
        "tmpfs": WORDS,
        "networks": WORDS,
        "ports": {"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"}},
        "environment": {"type": "object", "additionalProperties": {"type": "string"}},
        "secrets": {"type": "array", "items": NAME},
        "volumes": {"type": "array", "items": {"type": "string", "pattern": VOLUME}},
        "healthcheck": {"type": "object", "required": ["test", "interval", "timeout", "retries"]},
        "depends_on": {"type": "object", "additionalProperties": {"const": {"condition": "service_healthy"}}},
    },
}  # fmt: skip
SCHEMA = {
    "type": "object",
    "required": ["name", "services", "networks", "volumes", "secrets"],
    "additionalProperties": False,
    "patternProperties": {"^x-": {"type": "object"}},
    "properties": {
        "name": {"const": "almoner"},
        "services": {"type": "object", "propertyNames": NAME, "additionalProperties": SERVICE},
        "networks": {"type": "object"},
        "volumes": {"type": "object", "additionalProperties": {"const": {}}},
        "secrets": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["file"],
                "properties": {"file": {"type": "string", "pattern": r"^\./secrets/[\w.]+$"}},
                "additionalProperties": False,
            },
        },
    },
}


def test_the_compose_file_is_hardened_and_says_nothing_else() -> None:
    """Every service: read-only, no capabilities, no new privileges, nobody's account, a pinned image."""
    problems = [error.message for error in Draft202012Validator(SCHEMA).iter_errors(COMPOSE)]
    assert problems == []


def test_what_the_compose_file_names_is_there() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"db", "prefect", "asker", "runner"}
    for service in services.values():
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] if not source.startswith(".") else (DEPLOY / source).is_file()
    used = {secret for service in services.values() for secret in service.get("secrets", [])}
    assert used == set(COMPOSE["secrets"])
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert all(services[name]["networks"] == ["inside"] for name in ("db", "asker", "runner"))
    assert all("healthcheck" in services[name] for name in ("db", "prefect"))


def test_secrets_are_files_that_are_mounted_where_they_are_read() -> None:
    for service in COMPOSE["services"].values():
        for name, value in service.get("environment", {}).items():
            if SECRET.search(name) or "/run/secrets/" in value:
                paths = re.findall(r"/run/secrets/(\w+)", value)
                assert paths, name
                assert set(paths) <= set(service["secrets"])
            assert not re.search(r"://[^/@]*:[^/@]*@", value)  # a password in an address
        for word in service["command"]:
            assert set(re.findall(r"/run/secrets/(\w+)", word)) <= set(service.get("secrets", []))


def test_workers_check_whom_they_talk_to_and_type_commands_that_exist() -> None:
    for name in ("asker", "runner"):
        worker = COMPOSE["services"][name]
        url = worker["environment"]["ALMONER_DATABASE_URL"]
        assert url == f"postgresql://{name}@db/almoner?sslmode=verify-full&sslrootcert=/run/secrets/ca_crt"
        exists(["almoner", *worker["command"]])
    assert COMPOSE["services"]["db"]["command"][0] == "postgres"
    assert "ssl=on" in COMPOSE["services"]["db"]["command"]


def test_nobody_connects_to_the_ledger_in_the_clear() -> None:
    rules = [line.split() for line in (DEPLOY / "pg_hba.conf").read_text().splitlines() if line[:1] not in ("#", "")]
    assert [rule[0] for rule in rules] == ["local", "hostssl", "host"]
    assert [rule[-1] for rule in rules] == ["peer", "scram-sha-256", "reject"]


# --- units -------------------------------------------------------------------------------------------------------


def sections(path: Path) -> dict[str, list[tuple[str, str]]]:
    """A unit as systemd reads it: sections with settings in their order."""
    found: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] | None = None
    for line in path.read_text().splitlines():
        if not line or line[0] in "#;":
            continue
        if line.startswith("["):
            current = found.setdefault(line.strip("[]"), [])
            continue
        name, equals, value = line.partition("=")
        assert equals, (path.name, line)
        assert current is not None, (path.name, line)
        assert re.fullmatch("[A-Z][A-Za-z0-9]*", name), (path.name, line)
        current.append((name, value))
    return found


HARDENED = {
    "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes", "UMask": "0077",
    "PrivateDevices": "yes", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes", "ProtectKernelLogs": "yes", "ProtectControlGroups": "yes", "ProtectClock": "yes",
    "RestrictNamespaces": "yes", "RestrictSUIDSGID": "yes", "RestrictRealtime": "yes", "LockPersonality": "yes",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6", "SystemCallFilter": "@system-service",
    "SystemCallArchitectures": "native", "StateDirectoryMode": "0700",
}  # fmt: skip


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_service_is_hardened(path: Path) -> None:
    service = sections(path)["Service"]
    settings = dict(service)
    assert HARDENED.items() <= settings.items()
    assert re.fullmatch(r"almoner-(%i|prefect)", settings["User"])
    assert settings["Group"] == settings["User"]
    assert settings["StateDirectory"].split()[0] == settings["User"]
    assert settings["EnvironmentFile"].startswith("/etc/almoner/")
    single = {"Environment", "ExecStartPre"}
    names = [name for name, _ in service if name not in single]
    assert sorted(names) == sorted(set(names))
    assert not [name for name, value in service if name == "Environment" and SECRET.search(value.split("=")[0])]
    if "prefect" not in path.name:
        assert settings["LimitCORE"] == "0"
        assert "ProtectProc" not in settings  # a worker sees whether another's process lives


def test_a_worker_is_given_time_to_end() -> None:
    settings = dict(sections(DEPLOY / "systemd" / "almoner-worker@.service")["Service"])
    assert settings["KillSignal"] == "SIGTERM"
    assert int(settings["TimeoutStopSec"]) >= 60
    assert settings["MemorySwapMax"] == "0"


ASKED = [pytest.param(p, marks=[pytest.mark.slow] * ("prefect" in p.name), id=p.name) for p in SERVICES]
"""Prefect takes seconds to tell its options."""


@pytest.mark.parametrize("path", ASKED)
def test_what_a_unit_starts_exists(path: Path) -> None:
    """The command, its options, and for Prefect what its own help offers."""
    started = [value for name, value in sections(path)["Service"] if name == "ExecStart"]
    assert len(started) == 1
    words = shlex.split(started[0])
    if words[:2] == ["/bin/sh", "-c"]:
        words = shlex.split(words[2].removeprefix("exec "))
        words = [re.sub(r"\$\$\(.*?\)", "now", word) for word in words]
    assert words[0].startswith("/opt/almoner/bin/")
    words[0] = Path(words[0]).name
    (prefect_offers if words[0] == "prefect" else exists)(words)


def prefect_offers(words: list[str]) -> None:
    """The command line has options of Prefect's command alone, as its own help lists them."""
    command = [str(Path(sys.executable).parent / "prefect"), *words[1:3], "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    options = [word for word in words if word.startswith("--")]
    assert options
    assert not [word for word in options if not re.search(rf"(?<![\w-]){word}(?![\w-])", told)]


@pytest.mark.slow
def test_the_compose_file_starts_prefect_as_it_offers() -> None:
    prefect_offers(COMPOSE["services"]["prefect"]["command"])


def test_the_image_starts_what_exists() -> None:
    exists([*json.loads(said("ENTRYPOINT")[0]), "serve"])  # as the compose file does
    assert json.loads(said("CMD")[0]) == ["--help"]


ALMONER = re.compile(r"`almoner ([a-z-]+)((?: [a-z-]+)*)`")


@pytest.mark.parametrize(
    "path", sorted(path for path in DEPLOY.rglob("*") if path.is_file()), ids=lambda path: path.name
)
def test_commands_and_pages_that_comments_name_are_there(path: Path) -> None:
    text = path.read_text()
    assert "Documentation=file:" not in text  # where a package lies depends on Python's version
    for command, rest in ALMONER.findall(text):
        exists(["almoner", command, *rest.split()])
        assert command != "docs" or not rest or (ROOT / "docs" / f"{rest.strip()}.md").is_file()
    for page in re.findall(r"docs/([\w/-]+\.md)", text):
        assert (ROOT / "docs" / page).is_file(), page


def exists(words: list[str]) -> None:
    """The command line can be typed."""
    assert words[0] == "almoner"
    assert words[1] in COMMANDS
    COMMANDS[words[1]].make_context(words[1], words[2:], parent=typer.Context(ROOT_COMMAND))


def test_a_timer_starts_a_service_that_is_there() -> None:
    timers = [path for path in UNITS if path.suffix == ".timer"]
    assert [path.with_suffix(".service").exists() for path in timers] == [True]
    for path in timers:
        assert {"OnCalendar", "Persistent"} <= {name for name, _ in sections(path)["Timer"]}


def test_systemd_reads_the_units_too(tmp_path: Path) -> None:
    """With its own reader where it is installed; what they start stands in /opt, so something else stands in here."""
    assert {path.suffix for path in UNITS} == {".service", ".timer"}
    for path in UNITS:
        text = path.read_text()
        assert text.endswith("\n")
        assert "\r" not in text
        text = re.sub(r"^ExecStart=/opt/\S+", f"ExecStart={sys.executable}", text, flags=re.MULTILINE)
        (tmp_path / path.name.replace("@", "@runner")).write_text(text)
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed; the other tests of this file have read the units")
    names = sorted(path.name for path in tmp_path.iterdir())
    done = subprocess.run(
        [analyze, "verify", "--man=no", *names], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said_of_ours = [line for line in (done.stderr + done.stdout).splitlines() if "almoner" in line]
    assert said_of_ours == []
