"""Every command that takes a file is given every hostile one: a named error, and no word of the file is repeated."""

import json
import os
import stat
from pathlib import Path

import pytest

from tests.integration.story import Almoner

pytestmark = pytest.mark.contract

CONCERNS = ("cli/framework", "flows/workspace", "models_db/home.py")

SECRET = "Quartermaine77"
DEEP, DIGITS = 3000, "9" * 5000
FILES: dict[str, bytes] = {
    "shadow": f"root:$6${SECRET}$abc:19700:0:99999:7:::\ndaemon:*:19700:0:99999:7:::\n".encode(),
    "passwords": f"host: {SECRET}\nuser: {SECRET}\npassword: {SECRET}\n".encode(),
    "names of fields": f"{SECRET}: 1\n'{SECRET} and more \u202e': 2\n".encode(),
    "a key file": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----\n".encode(),
    "one line": SECRET.encode(),
    "many lines": f"{SECRET}\n".encode() * 50_000,
    "empty": b"",
    "blank": b"\n \n",
    "binary": bytes(range(256)) * 8 + SECRET.encode(),
    "latin": f"dataset: {SECRET} é\n".encode("latin-1"),
    "nul": f"dataset: {SECRET}\0\n".encode(),
    "nested yaml": f"dataset: {SECRET}\nparameters: {'[' * DEEP}{']' * DEEP}\n".encode(),
    "nested blocks": f"parameters:\n  {'- ' * DEEP}{SECRET}\n".encode(),
    "digits in yaml": f"dataset: {SECRET}\nepsilon: {DIGITS}\n".encode(),
    "sexagesimal": f"dataset: {SECRET}\nepsilon: 1:30\n".encode(),
    "octal": f"dataset: {SECRET}\nepsilon: 010\n".encode(),
    "keys twice": f"dataset: {SECRET}\ndataset: b\n".encode(),
    "bomb": b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        f"{n}: &{n} [{','.join([f'*{m}'] * 9)}]\n".encode() for m, n in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "tag": f"dataset: !!python/object/apply:os.system ['{SECRET}']\n".encode(),
    "unknown tag": f"dataset: !{SECRET} x\n".encode(),
    "alias": f"dataset: *{SECRET}\n".encode(),
    "broken yaml": f"dataset: {SECRET}: x\n".encode(),
    "a list": f"- {SECRET}\n".encode(),
    "nested json": f'{{"dataset": "{SECRET}", "x": {"[" * DEEP}{"]" * DEEP}}}\n'.encode(),
    "digits in json": f'{{"dataset": "{SECRET}", "n": {DIGITS}}}\n'.encode(),
    "json keys twice": f'{{"dataset": "{SECRET}", "dataset": "b"}}\n'.encode(),
    "not a number": f'{{"dataset": "{SECRET}", "epsilon": NaN}}\n'.encode(),
    "half a pair": f'{{"dataset": "{SECRET}\\ud800"}}\n'.encode(),
    "json list": f'["{SECRET}"]\n'.encode(),
    "json text": f'"{SECRET}"\n'.encode(),
    "cut json": f'{{"dataset": "{SECRET}'.encode(),
    "huge": f'{{"dataset": "{SECRET}{"x" * 3_000_000}"}}\n'.encode(),
}  # fmt: skip
FORMS = ("", " --json")
"""How a refusal is written: for people, for programs."""
HEAD = "--reason x --runs 2 --until 2099-01-01"
COMMANDS = {
    "release request": "release request {yaml}",
    "release request --dry-run": "release request {yaml} --dry-run",
    "standing propose": f"standing propose {{yaml}} {HEAD}",
    "attack run": "attack run {yaml} --on clinic",
    "policy check": "policy check {yaml}",
    "policy adopt": "policy adopt {yaml} --dry-run",
    "dataset register": "dataset register second --unit id --epsilon 1 --delta 1e-6 --public-metadata {yaml}",
    "dataset ingest jsonl": "dataset ingest clinic {jsonl} --label-field section",
    "dataset ingest csv": "dataset ingest clinic {csv}",
    "dataset ingest parquet": "dataset ingest clinic {parquet}",
    "approve --from": "approve --from {json} --reason x",
    "approve --from --export": "approve --from {json} --reason x --export {folder}/signed.json",
    "approve --import": "approve 1 --gate spend --import {json}",
    "verify-release": "verify-release {bundle}",
    "audit verify --against": "audit verify --against {json}",
    "restore": "restore {tar} --reason x --home {folder}/elsewhere",
    "init --key": "init --key {json} --home {folder}/another",
    "user add --key": "user add tom --key {json}",
    "keywords build": "keywords build {jsonl} --to {folder}/words.json",
    "adapter train": "adapter train {jsonl} --name words --licence CC0",
}
HOME_FILES = {
    "policy.yaml": "policy check {yaml}",
    "stores.yaml": "dataset ingest clinic s3://bucket/key.jsonl",
    "endpoints.yaml": "models endpoint list",
    "seen.json": "release list",
}


def laid(folder: Path, content: bytes) -> dict[str, str]:
    """The content under the name and in the place that each command takes."""
    names = {kind: folder / f"hostile.{kind}" for kind in ("yaml", "json", "jsonl", "csv", "parquet", "tar")}
    for path in names.values():
        path.write_bytes(content)
        path.chmod(0o600)
    bundle = folder / "clinic-release-9"
    bundle.mkdir(exist_ok=True)
    for name in ("release.json", "approvals.json", "checkpoint.json", "attestation.json", "texts.jsonl", "SHA256SUMS"):
        (bundle / name).write_bytes(content)
    return {kind: str(path) for kind, path in names.items()} | {"bundle": str(bundle), "folder": str(folder)}


def refused(almoner: Almoner, line: str, codes: tuple[int, ...] = (1, 2), forms: tuple[str, ...] = FORMS) -> None:
    """The command ends with a named error or a failed check, for people and for programs, and repeats no word."""
    for form in forms:
        told = almoner.type(line + form, None)
        assert told.code in codes, told
        assert SECRET not in told.out + told.err, told
        assert "Traceback" not in told.out + told.err
    named = json.loads(told.out)
    assert named.get("error") or named.get("holds") is False, told


@pytest.fixture
def submitted(almoner: Almoner) -> Almoner:
    almoner.submitted()
    return almoner


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("files", ["a third", pytest.param("all", marks=pytest.mark.slow)])
def test_each_command_names_what_is_wrong_with_each_file(submitted: Almoner, command: str, files: str) -> None:
    """Each command reads every file, or every third one, another third than the command before it."""
    before = submitted.everything()
    codes = (3,) if command == "dataset ingest parquet" else (1, 2)  # Arrow cannot say whether a disk is to blame
    turn = list(COMMANDS).index(command)
    for number, content in enumerate(FILES.values()):
        if files == "all" or (number + turn) % 3 == 0:
            refused(submitted, COMMANDS[command].format(**laid(submitted.folder, content)), codes)
    assert submitted.everything() == before


@pytest.mark.parametrize("files", ["a third", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", HOME_FILES)
def test_a_home_with_a_hostile_file_says_so(submitted: Almoner, name: str, files: str) -> None:
    place = submitted.home.root / name
    there = place.read_bytes() if place.exists() else None
    try:
        for number, (what, content) in enumerate(FILES.items()):
            if what in ("empty", "blank"):  # a file with nothing in it says nothing
                continue
            if files != "all" and (number + list(HOME_FILES).index(name)) % 3:
                continue
            place.write_bytes(content)
            place.chmod(0o600)
            refused(submitted, HOME_FILES[name].format(yaml=place), (1, 2, 3))
    finally:
        place.unlink() if there is None else place.write_bytes(there)


def make_pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def make_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def link_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


FOLDERS = ("bundle", "texts", "tables", "model")
NO_FILES = {"pipe": make_pipe, "socket": make_socket, "device": link_device}
MORE_COMMANDS = {
    "dataset ingest arrow": "dataset ingest clinic {arrow}",
    "dataset ingest gzip": "dataset ingest clinic {gz}",
    "dataset ingest texts": "dataset ingest clinic {texts}",
    "dataset ingest tables": "dataset ingest clinic {tables}",
    "dataset register --check": "dataset register second --unit id --epsilon 1 --delta 1e-6 --check {csv}",
    "plan --schema": "plan clinic --kind records --schema {json}",
    "plan --examples": "plan clinic --examples {yaml}",
    "audit verify --against bundle": "audit verify --against {bundle}",
    "dashboard --token-file": "dashboard --token-file {json}",
    "dashboard --tls-cert": "dashboard --tls-cert {json} --tls-key {json}",
    "models add file": "models add words {gguf} --licence CC0",
    "models add folder": "models add words {model} --licence CC0",
    "models add --adapter": "models add words {sound} --licence CC0 --adapter {bundle}",
    "user add --trust": "user add tom --key {json}",
}


def laid_places(folder: Path) -> dict[str, Path]:
    """The place of each file that a command takes; of each folder, that of a file in it."""
    ends = ("yaml", "json", "jsonl", "csv", "parquet", "tar", "arrow", "gguf")
    return {end: folder / f"hostile.{end}" for end in ends} | {
        "gz": folder / "hostile.csv.gz",
        "bundle": folder / "clinic-release-9" / "checkpoint.json",
        "texts": folder / "texts" / "a.txt",
        "tables": folder / "tables" / "a.jsonl",
        "model": folder / "model" / "model.safetensors",
    }


@pytest.mark.parametrize("command", [*COMMANDS, *MORE_COMMANDS])
@pytest.mark.timeout(180)
def test_no_command_waits_for_what_is_no_file(almoner: Almoner, command: str) -> None:
    """A pipe let its reader wait for ever; each command that takes a file refuses one, a socket and a device."""
    almoner.registered()
    paths = laid_places(almoner.folder)
    sound = almoner.folder / "sound"
    sound.mkdir()
    for name in ("config.json", "model.safetensors"):
        (sound / name).write_bytes(b"{}")
    names = {name: str(path.parent if name in FOLDERS else path) for name, path in paths.items()}
    line = (COMMANDS | MORE_COMMANDS)[command].format(**names, folder=almoner.folder, sound=sound)
    for make in NO_FILES.values():
        for path in paths.values():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            make(path)
        refused(almoner, line, (1, 2, 3), FORMS[1:])


@pytest.mark.parametrize("name", HOME_FILES)
@pytest.mark.timeout(180)
def test_no_home_waits_for_what_is_no_file(almoner: Almoner, name: str) -> None:
    almoner.registered()
    place = almoner.home.root / name
    for make in NO_FILES.values():
        place.unlink(missing_ok=True)
        make(place)
        refused(almoner, HOME_FILES[name].format(yaml=place), (1, 2, 3), FORMS[1:])


def test_there_are_enough_of_both() -> None:
    assert len(FILES) * len(COMMANDS) >= 640
