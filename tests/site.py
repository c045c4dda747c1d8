"""The documentation site, built as `make docs` builds it, and what of its pages loads something."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

from tests.support import require

ROOT = Path(__file__).resolve().parents[1]
FOREIGN = re.compile(r"(?!data:)(?:.*[\s,])?(?:https?:)?//", re.IGNORECASE)
"""An address elsewhere, also as the second of several (`srcset`)."""
LOADING = {"src", "srcset", "data", "poster", "action", "formaction", "background", "xlink:href"}
"""Attributes that load, of any element; `href` loads unless it is a link that a person follows."""
IN_STYLE = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)


def built(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Build the site into a folder; a broken link, anchor or reference ends it with an error."""
    require(find_spec("material") and find_spec("mkdocstrings"), "mkdocs-material or mkdocstrings is not installed")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


class Page(HTMLParser):
    """What a page loads from elsewhere, the policy that it gives the browser, and pictures that say nothing."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.foreign: list[str] = []
        self.policy = ""
        self.without_alt: list[str] = []
        self.style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        if own.get("http-equiv") == "Content-Security-Policy":
            self.policy = own["content"]
        if tag == "img" and not own.get("alt"):
            self.without_alt.append(own.get("src", ""))
        loading = LOADING if tag in ("a", "area") else LOADING | {"href"}
        self.foreign += [own[name] for name in loading & set(own) if FOREIGN.match(own[name])]
        self.foreign += IN_STYLE.findall(own.get("style", ""))
        self.style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self.style:
            self.foreign += IN_STYLE.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self.style = False


def foreign(site: Path) -> Iterator[tuple[str, str]]:
    """Each page, stylesheet and drawing of a folder with an address elsewhere that it loads."""
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".svg"):
            yield from ((str(path.relative_to(site)), each) for each in Page(path.read_text()).foreign)
        elif path.suffix == ".css":
            yield from ((str(path.relative_to(site)), each) for each in IN_STYLE.findall(path.read_text()))
