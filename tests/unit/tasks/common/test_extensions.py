"""Entry points of others: which are taken, which are refused by name, and what their digest covers."""

import importlib.util
import py_compile
import re
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

import pytest

from models_db.errors import AlmonerError
from tasks.common import extensions
from tasks.common.extensions import (
    MECHANISMS,
    METRICS,
    MODEL_FAMILIES,
    READERS,
    SYSTEMS,
    extension_sources,
    load,
    unfit,
)
from tasks.corpus.readers import sources
from tasks.corpus.readers.readers import read_documents
from tasks.evaluation import registry as metrics_registry
from tasks.inference.loading import row_wise_modules
from tasks.mechanisms import registry as mechanisms_registry
from tasks.systems import registry as systems_registry
from tests.refusals import refusal

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
    for name in [name for name in sys.modules if name.partition(".")[0] in {"own", "own_other", "other", "single"}]:
        del sys.modules[name]
    monkeypatch.undo()
    forget()


def forget() -> None:
    """Look again at what is installed."""
    for cached in (extensions.extensions, extensions.extension_sources, sources.formats, extensions.code_digest):
        cached.cache_clear()


def test_an_extension_is_named_and_its_object_loaded(install: Install) -> None:
    install()
    assert [str(extension) for extension in extensions.extensions()] == ["own 1.0 (own.metric)"]
    assert load(METRICS) == {"own.metric": 1}
    assert load(SYSTEMS) == {}
    assert extensions.library_versions()["own"] == "1.0"
    assert "own.metric" in unfit(METRICS, "own.metric", "a reason").message


@pytest.mark.parametrize("name", ["metric", "Own.metric", ".metric", "own.", "own.a b", "own.é", "own." + "a" * 80])
def test_a_name_without_a_dot_or_with_other_signs_is_refused(install: Install, name: str) -> None:
    install(name=name)
    with refusal("ExtensionUnfit", match="is not of the form"):
        extensions.extensions()


def test_two_packages_cannot_have_one_name(install: Install) -> None:
    install()
    install(package="other")
    with refusal("ExtensionUnfit", match="another package has an entry point of that name"):
        load(METRICS)


def test_an_extension_that_cannot_be_imported_is_named_without_its_words(install: Install) -> None:
    install(code="raise ValueError('a secret')")
    with refusal("ExtensionUnfit", match=r"it cannot be imported \(ValueError\)") as refused:
        load(METRICS)
    assert "secret" not in refused.value.message


def test_the_digest_covers_every_file_of_the_package_and_its_version(install: Install) -> None:
    before = extensions.code_digest()
    folder = install()
    digests = [before, extensions.code_digest()]

    def changed(path: Path, content: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        forget()
        digests.append(extensions.code_digest())

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
    cache = Path(importlib.util.cache_from_source(str(folder / "__init__.py")))
    changed(cache, "compiled")
    changed(cache.with_suffix(".nbi"), "of another compiler")
    assert digests[-1] == digests[-2] == digests[-3]
    changed(information / "entry_points.txt", "")
    assert digests[-1] == before


@pytest.mark.parametrize("module", ["__pycache__/hidden.py", "__pycache__/hidden.pyc", "__pycache__/deep/__init__.py"])
def test_a_module_that_hides_among_caches_is_code(install: Install, module: str) -> None:
    hidden = install() / module
    before = extensions.code_digest()
    hidden.parent.mkdir(parents=True)
    hidden.write_text("")
    forget()
    assert extensions.code_digest() != before


@pytest.mark.parametrize(
    ("mode", "covered"),
    [
        (PycInvalidationMode.UNCHECKED_HASH, True),
        (PycInvalidationMode.CHECKED_HASH, False),
        (PycInvalidationMode.TIMESTAMP, False),
    ],
)
def test_a_compiled_module_that_is_used_without_a_look_at_its_source_is_code(
    install: Install, mode: PycInvalidationMode, covered: bool
) -> None:
    folder = install()
    before = extensions.code_digest()
    py_compile.compile(str(folder / "__init__.py"), invalidation_mode=mode)
    forget()
    assert (extensions.code_digest() != before) is covered


def test_what_a_link_leads_to_is_code(install: Install, tmp_path: Path) -> None:
    folder, elsewhere = install(), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "part").symlink_to(elsewhere)
    (elsewhere / "again").symlink_to(folder)
    digests = set()
    for code in ("thing = 1", "thing = 2"):
        (elsewhere / "code.py").write_text(code)
        forget()
        digests.add(extensions.code_digest())
    assert len(digests) == 2


def test_what_the_distribution_lists_beside_its_package_is_code(install: Install, tmp_path: Path) -> None:
    install()
    (tmp_path / "own-1.0.dist-info" / "RECORD").write_text("helper.py,,\nown-1.0.dist-info/RECORD,,\n../bin/own,,\n")
    (tmp_path / "helper.py").write_text("")
    assert [name for name, _ in extension_sources()] == [
        f"extension {METRICS} own.metric",
        "extension file helper.py",
        "extension file own/__init__.py",
    ]


def test_code_in_an_archive_is_refused(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(value="archived:thing")
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("archived/__init__.py", "thing = 1")
    monkeypatch.syspath_prepend(str(tmp_path / "code.zip"))
    assert importlib.util.find_spec("archived") is not None
    with refusal("ExtensionUnfit", match="not found in files"):
        extensions.code_digest()


def test_the_digest_is_of_the_files_before_they_were_imported(install: Install) -> None:
    folder = install()
    load(METRICS)
    (folder / "__init__.py").write_text("thing = 2")
    late = extensions.code_digest()
    forget()
    assert extensions.code_digest() != late


@pytest.mark.parametrize("value", ["own.a b:thing", "sys:thing", ""])
def test_an_entry_point_without_code_of_its_own_is_refused(install: Install, value: str) -> None:
    install(value=value or " ")
    with refusal("ExtensionUnfit"):
        extensions.code_digest()


def test_a_package_without_a_name_is_refused(install: Install, tmp_path: Path) -> None:
    install()
    (tmp_path / "own-1.0.dist-info" / "METADATA").unlink()
    forget()
    with refusal("ExtensionUnfit", match="no package with a name"):
        extensions.extensions()


def test_an_extension_that_ends_the_program_is_named(install: Install) -> None:
    install(code="raise SystemExit(0)")
    with refusal("ExtensionUnfit", match=r"\(SystemExit\)"):
        load(METRICS)


def test_names_without_a_dot_need_no_extension(install: Install) -> None:
    install(code="raise ValueError")

    def of_extensions() -> Iterator[tuple[str, object]]:
        yield from load(METRICS).items()

    registry = extensions.Registry({"length": 1}, of_extensions)
    assert not hasattr(registry, "__setitem__")
    assert registry["length"] == 1
    assert "lenght" not in registry
    for ask in (lambda: registry["own.metric"], lambda: "own.other" in registry, lambda: list(registry)):
        with refusal("ExtensionUnfit"):
            ask()


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
    with refusal("ExtensionUnfit", match="not found in files"):
        list(extension_sources())


READ = "def thing(file):\n    for line in file:\n        yield {'text': line.decode().strip()}\n"


def test_a_reader_of_an_extension_reads_its_files_and_takes_no_other(install: Install, tmp_path: Path) -> None:
    notes = tmp_path / "notes.lines"
    notes.write_text("one\ntwo\n")
    with refusal("UnknownFileType"):
        read_documents(notes, None)
    install(READERS, ".lines", READ)
    assert [document.text for document in read_documents(notes, None)] == ["one", "two"]
    for suffix in (".jsonl", ".more.jsonl"):
        install(READERS, suffix, READ)
        with refusal("ExtensionUnfit", match="almoner reads such files itself"):
            read_documents(notes, None)


def test_the_longest_ending_decides_which_extension_reads_a_file(install: Install, tmp_path: Path) -> None:
    install(READERS, ".lines", READ)
    install(READERS, ".other.lines", "def thing(file):\n    yield {'text': 'the other'}\n", package="own-other")
    for name, text in (("a.lines", "one"), ("a.other.lines", "the other")):
        (tmp_path / name).write_text("one\n")
        assert [document.text for document in read_documents(tmp_path / name, None)] == [text]


def test_a_reader_may_close_its_file(install: Install, tmp_path: Path) -> None:
    install(
        READERS,
        ".lines",
        "def thing(file):\n    with file:\n        text = file.read().decode()\n    yield {'text': text}\n",
    )
    (tmp_path / "a.lines").write_text("one")
    assert [document.text for document in read_documents(tmp_path / "a.lines", None)] == ["one"]


LAZY = """
from collections.abc import Mapping
class Record(Mapping):
    def __init__(self, text): self.text = text
    def __iter__(self): return iter(("text",))
    def __len__(self): return 1
    def __getitem__(self, name): raise KeyError(self.text)
def thing(file):
    yield Record(file.read().decode())
"""


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("def thing(file):\n    raise KeyError(file.read())\n", "its reader failed (KeyError)"),
        ("def thing(file):\n    yield {'text': 'one'}\n    raise OSError(5, 'one')\n", "its reader failed (OSError)"),
        (LAZY, "its reader failed (KeyError)"),
        ("def thing(file):\n    return [1]\n", "is JSON, but not an object"),
        ("def thing(file):\n    return None\n", "its reader failed (TypeError)"),
        ("def thing(file):\n    yield {'text': 3}\n", "has no text"),
    ],
)
def test_what_a_reader_says_is_not_shown(install: Install, tmp_path: Path, code: str, problem: str) -> None:
    install(READERS, ".lines", code)
    notes = tmp_path / "notes.lines"
    notes.write_text("a secret\n")
    with pytest.raises(AlmonerError, match=re.escape(problem)) as refused:
        list(read_documents(notes, None))
    assert "a secret" not in "".join(traceback.format_exception(refused.value))


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
    with refusal("ExtensionUnfit", match="it is not a"):
        list(registry._of_extensions())


METRIC = """
from tasks.evaluation.registry import Metric
from tasks.evaluation.charged import LengthEstimate
class Half:
    by_label = False
    def bins(self, request): return 1
thing = Metric({metric})
"""


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        ("'own.metric', 'Internal', len", "exposure"),
        ("'own.metric', 'secret', len", "exposure"),
        ("'own.metric', None, len", "exposure"),
        ("'own.metric', [], len", "exposure"),
        ("'own.metric', 'charged', len", "without an estimate"),
        ("'own.metric', 'public', len, estimate=LengthEstimate()", "is not charged"),
        ("'own.metric', 'internal', len, estimate=LengthEstimate()", "is not charged"),
        ("'own.metric', 'charged', len, estimate=Half()", "lacks"),
        ("'own.metric', 'charged', len, estimate=1", "lacks"),
        ("'own.metric', 'public', None", "no function"),
        ("'own.metric', 'public', len, {'model'}", "needs"),
        ("'own.metric', 'public', len, frozenset({'ledger'})", "needs"),
        ("'own.metric', 'public', len, None", "needs"),
    ],
)
def test_a_metric_whose_mark_or_estimate_is_unfit_is_refused(install: Install, metric: str, reason: str) -> None:
    """A mark of another spelling than `internal` would be shown at the gates and published."""
    install(METRICS, "own.metric", METRIC.format(metric=metric))
    with refusal("ExtensionUnfit", match=reason):
        list(metrics_registry._of_extensions())


@pytest.mark.parametrize(
    "metric",
    [
        "'own.metric', 'public', len",
        "'own.metric', 'internal', len, frozenset({'model', 'embedder'})",
        "'own.metric', 'charged', len, estimate=LengthEstimate()",
    ],
)
def test_a_metric_that_fits_is_taken(install: Install, metric: str) -> None:
    install(METRICS, "own.metric", METRIC.format(metric=metric))
    assert [name for name, _ in metrics_registry._of_extensions()] == ["own.metric"]


def test_an_object_that_is_no_function_reads_nothing(install: Install, tmp_path: Path) -> None:
    install(READERS, ".lines")
    notes = tmp_path / "notes.lines"
    notes.write_text("one\n")
    with refusal("ExtensionUnfit", match="it is not a function"):
        list(read_documents(notes, None))
