"""Entry points of others: which are taken, which are refused by name, and what their digest covers."""

import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from models_db.errors import AlmonerError
from tasks.common import code_version, extensions
from tasks.common.extensions import (
    MECHANISMS,
    METRICS,
    MODEL_FAMILIES,
    READERS,
    SYSTEMS,
    ExtensionUnfit,
    extension_sources,
    load,
    unfit,
)
from tasks.corpus.readers import sources
from tasks.corpus.readers.readers import UnknownFileType, read_documents
from tasks.evaluation import registry as metrics_registry
from tasks.inference.loading import row_wise_modules
from tasks.mechanisms import registry as mechanisms_registry
from tasks.pricing import registry as systems_registry

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Lay down a package with one entry point, as pip would; its module has the code."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(
        group: str = METRICS, name: str = "own.metric", code: str = "thing = 1", package: str = "own", value: str = ""
    ) -> Path:
        module = package.replace("-", "_")
        folder = tmp_path / module
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text(code)
        information = tmp_path / f"{module}-1.0.dist-info"
        information.mkdir(exist_ok=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[{group}]\n{name} = {value or f'{module}:thing'}\n")
        forget()
        return folder

    yield installed
    for name in [name for name in sys.modules if name.partition(".")[0] in {"own", "other", "single"}]:
        del sys.modules[name]
    monkeypatch.undo()
    forget()


def forget() -> None:
    """Look again at what is installed."""
    for cached in (extensions.extensions, sources.formats, code_version.code_digest):
        cached.cache_clear()


def test_an_extension_is_named_and_its_object_loaded(install: Install) -> None:
    install()
    assert [str(extension) for extension in extensions.extensions()] == ["own 1.0 (own.metric)"]
    assert load(METRICS) == {"own.metric": 1}
    assert load(SYSTEMS) == {}
    assert code_version.library_versions()["own"] == "1.0"
    assert "own.metric" in unfit(METRICS, "own.metric", "a reason").message


@pytest.mark.parametrize("name", ["metric", "Own.metric", ".metric", "own.", "own.a b", "own.é", "own." + "a" * 80])
def test_a_name_without_a_dot_or_with_other_signs_is_refused(install: Install, name: str) -> None:
    install(name=name)
    with pytest.raises(ExtensionUnfit, match="is not of the form"):
        extensions.extensions()


def test_two_packages_cannot_have_one_name(install: Install) -> None:
    install()
    install(package="other")
    with pytest.raises(ExtensionUnfit, match="another package has an entry point of that name"):
        load(METRICS)


def test_an_extension_that_cannot_be_imported_is_named_without_its_words(install: Install) -> None:
    install(code="raise ValueError('a secret')")
    with pytest.raises(ExtensionUnfit, match=r"it cannot be imported \(ValueError\)") as refusal:
        load(METRICS)
    assert "secret" not in refusal.value.message


def test_the_digest_covers_every_file_of_the_package_and_its_version(install: Install) -> None:
    before = code_version.code_digest()
    folder = install()
    digests = [before, code_version.code_digest()]

    def changed(path: Path, content: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        forget()
        digests.append(code_version.code_digest())

    changed(folder / "__init__.py", "thing = 2")
    changed(folder / "deep" / "part.py", "")
    changed(folder / "deep" / "part.py", "\n")
    changed(folder / "table.bin", "1")
    information = folder.parent / "own-1.0.dist-info"
    changed(information / "METADATA", "Metadata-Version: 2.1\nName: own\nVersion: 1.1\n")
    changed(information / "entry_points.txt", f"[{METRICS}]\nown.metric = own:other\n")
    changed(information / "entry_points.txt", f"[{METRICS}]\nown.metrics = own:other\n")
    changed(information / "entry_points.txt", f"[{SYSTEMS}]\nown.metrics = own:other\n")
    assert len(set(digests)) == len(digests)
    changed(folder / "__pycache__" / "part.pyc", "compiled")
    assert digests[-1] == digests[-2]
    changed(information / "entry_points.txt", "")
    assert digests[-1] == before


def test_a_module_without_a_package_is_one_file(install: Install, tmp_path: Path) -> None:
    install(value="single:thing")
    (tmp_path / "single.py").write_text("thing = 1")
    forget()
    assert [name for name, _ in extension_sources()] == [
        f"extension {METRICS} own.metric",
        "extension file single.py",
    ]


def test_code_that_is_in_no_file_is_refused(install: Install) -> None:
    install(value="nowhere:thing")
    with pytest.raises(ExtensionUnfit, match="not found in files"):
        list(extension_sources())


READ = "def thing(file):\n    for line in file:\n        yield {'text': line.decode().strip()}\n"


def test_a_reader_of_an_extension_reads_its_files_and_takes_no_other(install: Install, tmp_path: Path) -> None:
    notes = tmp_path / "notes.lines"
    notes.write_text("one\ntwo\n")
    with pytest.raises(UnknownFileType):
        read_documents(notes, None)
    install(READERS, ".lines", READ)
    assert [document.text for document in read_documents(notes, None)] == ["one", "two"]
    install(READERS, ".jsonl", READ)
    with pytest.raises(ExtensionUnfit, match="almoner reads such files itself"):
        read_documents(notes, None)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("def thing(file):\n    raise KeyError(file.read())\n", "its reader failed (KeyError)"),
        ("def thing(file):\n    yield {'text': 'one'}\n    raise OSError(5, 'one')\n", "its reader failed (OSError)"),
        ("def thing(file):\n    return [1]\n", "is JSON, but not an object"),
        ("def thing(file):\n    return None\n", "its reader failed (TypeError)"),
        ("def thing(file):\n    yield {'text': 3}\n", "has no text"),
    ],
)
def test_what_a_reader_says_is_not_shown(install: Install, tmp_path: Path, code: str, problem: str) -> None:
    install(READERS, ".lines", code)
    notes = tmp_path / "notes.lines"
    notes.write_text("a secret\n")
    with pytest.raises(AlmonerError, match=re.escape(problem)) as refusal:
        list(read_documents(notes, None))
    assert "a secret" not in "".join(traceback.format_exception(refusal.value))


FAMILY = "def thing():\n    return ('own.Attention',)\n"


def test_classes_of_a_family_are_taken(install: Install) -> None:
    install(MODEL_FAMILIES, "own.family", FAMILY)
    assert list(row_wise_modules._of_extensions()) == ["own.Attention"]


@pytest.mark.parametrize(
    "code", ["thing = 1", "class thing:\n    name = 'another'\n", "def thing():\n    return [1]\n"]
)
@pytest.mark.parametrize(
    ("group", "registry"),
    [
        (SYSTEMS, systems_registry),
        (METRICS, metrics_registry),
        (MECHANISMS, mechanisms_registry),
        (MODEL_FAMILIES, row_wise_modules),
    ],
)
def test_an_object_of_another_kind_is_refused(install: Install, group: str, registry: Any, code: str) -> None:
    install(group, "own.thing", code)
    if group == MECHANISMS and code != "thing = 1":  # a mechanism's function is known by what it returns
        assert [name for name, _ in registry._of_extensions()] == ["own.thing"]
        return
    with pytest.raises(ExtensionUnfit, match="it is not a"):
        list(registry._of_extensions())


def test_an_object_that_is_no_function_reads_nothing(install: Install, tmp_path: Path) -> None:
    install(READERS, ".lines")
    notes = tmp_path / "notes.lines"
    notes.write_text("one\n")
    with pytest.raises(ExtensionUnfit, match="it is not a function"):
        list(read_documents(notes, None))
