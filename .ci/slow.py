"""Run the slow tests that concern what changed, for as many minutes as CI gives them.

A file with slow tests is chosen if it changed, if it imports a module that changed, of a room or of the tests, or if
something changed in a folder that its CONCERNS name. What it reaches through other modules is left to the other tests:
everything reaches nearly everything. What changed is the difference between the working tree and the base, the first
of these that there is:

1. the commit that CI_BASE names,
2. where this branch left `origin/main` or `main`,
3. the newest release tag before this commit.

Without any of them (no history, a shallow clone, `main` itself without a tag) nobody can tell: all are run.

`make test-slow` gets the files in batches, contracts first (FIRST). No batch is started after CI_SLOW_MINUTES; one that
runs for longer than GRACE after that is interrupted. What was not run, or not to its end, is printed by name and is no
failure. The first batch that fails is the last one, and its exit status is that of this program.
"""

import ast
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SLOW = re.compile(r"mark\.slow")
STORY_ON_BOTH = re.compile(r"\bany_almoner\b")
BENEATH_STORIES = {"migrations", "models_db"}
ROOMS = ("almoner", "cli", "flows", "migrations", "models_db", "tasks")
FIRST = ("tests/contract/", "tests/contracts/", "tests/integration/", "tests/statistical/")
MINUTES, GRACE, BATCH = 5.0, 10.0, 6
EVERYWHERE = ("tests/support.py",)
"""Helpers that nearly all tests import. `make test` runs with them as they are; no slow test is chosen for them."""


def git(root: Path, *arguments: str) -> str | None:
    """What a command of git prints; None where it fails."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)  # noqa: S603, S607
    return done.stdout.strip() if done.returncode == 0 else None


def base(root: Path) -> str | None:
    """The commit that this one is compared with; None where there is none."""
    head = git(root, "rev-parse", "HEAD")
    if head is None:
        return None
    if named := os.environ.get("CI_BASE"):
        return git(root, "rev-parse", "--verify", f"{named}^{{commit}}")
    for branch in ("origin/main", "main"):
        fork = git(root, "merge-base", "HEAD", branch)
        if fork and fork != head:
            return fork
    return git(root, "rev-list", "-1", tag) if (tag := git(root, "describe", "--tags", "--abbrev=0", "HEAD^")) else None


def changed(root: Path, since: str) -> set[str] | None:
    """The paths that differ from `since`, new files among them; None where git cannot tell."""
    tracked = git(root, "diff", "--name-only", "--no-renames", since)
    new = git(root, "ls-files", "--others", "--exclude-standard")
    return None if tracked is None or new is None else {*tracked.splitlines(), *new.splitlines()}


def slow_files(root: Path) -> list[str]:
    """The files of tests with slow tests in them, in order; a story on both backends is one on PostgreSQL."""
    files = sorted((root / "tests").rglob("test_*.py"))
    return [
        path.relative_to(root).as_posix()
        for path in files
        if SLOW.search(path.read_text()) or STORY_ON_BOTH.search(path.read_text())
    ]


def chosen(root: Path, differing: set[str]) -> list[str]:
    """The files with slow tests that concern what differs."""
    differing = differing - set(EVERYWHERE)
    folders = {folder.as_posix() for path in differing for folder in Path(path).parents}
    return [file for file in slow_files(root) if not (differing | folders).isdisjoint({file, *related(root, file)})]


def related(root: Path, file: str) -> set[str]:
    """The files of our modules that a file of tests imports, and the folders and files that it concerns.

    Those are what its CONCERNS name, and of a story that is also told on PostgreSQL what lies beneath every story.
    """
    text = (root / file).read_text()
    tree = ast.parse(text)
    beneath = BENEATH_STORIES if STORY_ON_BOTH.search(text) else set()
    return {path for name in modules(tree) if (path := path_of(root, name))} | concerns(tree) | beneath


def concerns(tree: ast.Module) -> set[str]:
    """What the tuple CONCERNS of a file of tests names."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "CONCERNS":
            return set(ast.literal_eval(node.value))
    return set()


def modules(tree: ast.Module) -> Iterator[str]:
    """The names that are imported: of `from a import b` both a and a.b, since b may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def path_of(root: Path, name: str) -> str | None:
    """Where a module of ours lies."""
    if name.split(".")[0] not in (*ROOMS, "tests"):
        return None
    path = f"{name.replace('.', '/')}.py"
    return path if (root / path).is_file() else None


def main(root: Path) -> list[str]:
    """What is to be run, and a line that says why."""
    since = base(root)
    differing = changed(root, since) if since else None
    every = slow_files(root)
    if since is None or differing is None:
        sys.stderr.write(f"Slow tests: all {len(every)} files, since there is no commit to compare with.\n")
        return every
    files = chosen(root, differing)
    said = f"{len(files)} of {len(every)} files concern the {len(differing)} that changed since {since[:10]}"
    sys.stderr.write("\n  ".join([f"Slow tests: {said}.", *files]) + "\n")
    return files


def contracts_first(files: list[str]) -> list[str]:
    """The same files in the order in which they are run."""
    return sorted(
        files, key=lambda file: next((n for n, folder in enumerate(FIRST) if file.startswith(folder)), len(FIRST))
    )


def test(files: list[str], seconds: float) -> int | None:
    """The exit status of `make test-slow` with these files; None where it was interrupted after so many seconds."""
    command = ["make", "--no-print-directory", "test-slow", f"SLOW={' '.join(files)}"]
    with subprocess.Popen(command, start_new_session=True) as process:  # noqa: S603
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)  # pytest ends its servers and says what had failed so far
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        return None


def run(
    files: list[str],
    minutes: float,
    test: Callable[[list[str], float], int | None] = test,
    now: Callable[[], float] = time.monotonic,
) -> int:
    """Run the files in batches while there is time, print those that were left out, and return the exit status."""
    end, left, status = now() + 60 * minutes, contracts_first(files), 0
    while left and status == 0 and now() < end:
        done = test(left[:BATCH], end + 60 * GRACE - now())
        if done is None:
            break
        status, left = done, left[BATCH:]
    for file in left:
        sys.stderr.write(f"left out: {file}\n")
    sys.stderr.write(f"Slow tests: {len(files) - len(left)} of {len(files)} files were run, {len(left)} left out.\n")
    return status


if __name__ == "__main__":
    here = Path(__file__).resolve().parents[1]
    sys.exit(run(main(here), float(os.environ.get("CI_SLOW_MINUTES", MINUTES))))
