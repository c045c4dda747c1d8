"""What is absent is named, however the absence shows; what is present and broken keeps its own exception."""

from importlib.metadata import PackageNotFoundError, packages_distributions

import pytest
from packaging.utils import canonicalize_name

from tasks.common import extras
from tasks.common.extras import PACKAGES, missing_packages, name_missing, require_generation

ABSENT = ("scikit-learn", "torch")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "missing_packages", lambda: ABSENT)


def wrapped(problem: Exception) -> Exception:
    outer = RuntimeError("could not load")
    outer.__cause__ = problem
    return outer


@pytest.mark.parametrize(
    "problem",
    [
        ModuleNotFoundError("no", name="torch"),
        ModuleNotFoundError("no", name="torch.nn"),
        ModuleNotFoundError("no", name="sklearn.isotonic"),
        PackageNotFoundError("torch"),
        PackageNotFoundError("scikit-learn"),
        wrapped(ModuleNotFoundError("no", name="torch")),
    ],
    ids=str,
)
def test_an_absent_package_is_named(problem: Exception, without: None) -> None:
    named = name_missing(problem)
    assert named is not None
    assert named.exit_code == 3
    assert named.facts == {"extra": "generation", "packages": list(ABSENT)}


@pytest.mark.parametrize(
    "problem",
    [
        ModuleNotFoundError("no", name="spacy"),  # it is there: its metadata says so
        ModuleNotFoundError("no", name="torchvision"),
        ModuleNotFoundError("no"),
        PackageNotFoundError("ray"),
        ImportError("libcudart.so.13", name="torch"),
        ValueError("torch"),
    ],
    ids=repr,
)
def test_another_problem_is_not(problem: Exception, without: None) -> None:
    assert name_missing(problem) is None


def test_here_all_are_installed_and_imported_by_these_names() -> None:
    assert missing_packages() == ()
    require_generation()
    owners = packages_distributions()
    for name, module in PACKAGES.items():
        assert name in {canonicalize_name(each) for each in owners[module]}
