"""Pictures of the documentation, from a real run: the release of README.md, and that of the notebook on insights.

python -m tests.pictures [FOLDER]    runs both in FOLDER, or in one that is gone afterwards, and writes docs/pictures

It needs the two models, Chromium and a few minutes (`make pictures`). README.md quotes the output of such a run.
"""

import base64
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tasks.corpus.demo_clinic import write_demo_corpus
from tests.browser.chromium import Tab, running

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 104
WIDTH = 1280
PATIENCE = 60
STORY = (
    "init",
    "dataset register clinic --unit patient_id --text text --epsilon 8 --delta 1e-6 --population 150",
    "dataset ingest clinic notes.jsonl",
    "release request request.yaml",
    'approve 1 --gate spend --reason "agreed with the board" --confirm clinic',
    "run 1",
    "release texts 1",
    "report 1",
    'approve 1 --gate publish --reason "read all 4 texts: none names a person" --confirm clinic',
    "publish 1 --to out/",
    "verify-release out/clinic-release-1",
    "budget show clinic",
)
TERMINALS = {"terminal-price.svg": "release request", "terminal-verify.svg": "verify-release"}
"""Which command's output is which picture."""

SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Rich's own form without the font that it would load."""


def environment(folder: Path) -> dict[str, str]:
    """Of a person in `folder`: a home of its own, almoner as it lies here, a terminal with colours."""
    own = {
        "ALMONER_HOME": str(folder / "home"),
        "COLUMNS": str(COLUMNS),
        "FORCE_COLOR": "1",
        "LOGNAME": "ada",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm-256color",
    }
    return {**os.environ, **own}


def typed(line: str, folder: Path) -> str:
    """What a command prints, with its colours."""
    done = subprocess.run(
        f"almoner {line}", shell=True, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"almoner {line} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def request_of_the_readme() -> str:
    """The request file that README.md shows."""
    found = re.search(r"^```yaml\n(dataset: .*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    if found is None:
        raise SystemExit("README.md shows no request.")
    return found[1]


def terminal(path: Path, line: str, output: str) -> None:
    """A terminal with a command and what it printed, as SVG that loads nothing."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text(f"$ almoner {line}", style="bold"))
    console.print(Text.from_ansi(output.strip("\n")))
    picture = console.export_svg(title="almoner", theme=MONOKAI, code_format=SVG, unique_id="t")
    path.write_text("\n".join(each.rstrip() for each in picture.splitlines()) + "\n")


@contextmanager
def dashboard(folder: Path) -> Iterator[str]:
    """The dashboard of the home in `folder`, at a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    words = ["almoner", "dashboard", "--port", str(port)]
    process = subprocess.Popen(words, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and process.poll() is None:
            try:
                urllib.request.urlopen(address).close()
                break
            except urllib.error.URLError:
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE)


def insights(folder: Path) -> Path:
    """The explorer that the code of the notebook publishes."""
    cells = nbformat.read(ROOT / "docs" / "notebooks" / "insights.ipynb", as_version=4).cells
    code = [cell.source for cell in cells if cell.cell_type == "code" and not cell.source.startswith("!")]
    typed("init --home shop-home", folder)
    subprocess.run([sys.executable, "-c", "\n".join(code)], cwd=folder, env=environment(folder), check=True)
    return folder / "out" / "shop-release-1" / "explorer.html"


def shown(tab: Tab, page: Path | str, path: Path, height: int) -> None:
    """The upper part of a page in a window of a desk."""
    tab.open(page, WIDTH)
    time.sleep(1)  # what its script draws
    tab.send("Emulation.setDeviceMetricsOverride", mobile=False, width=WIDTH, height=height, deviceScaleFactor=1)
    picture = tab.send("Page.captureScreenshot", optimizeForSpeed=False)["data"]
    path.write_bytes(base64.b64decode(picture))


def make(folder: Path) -> None:
    """Run both releases in a folder, and take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    write_demo_corpus(folder / "notes.jsonl")
    (folder / "request.yaml").write_text(request_of_the_readme())
    for line in STORY:
        output = typed(line, folder)
        sys.stdout.write(f"$ almoner {line}\n{Text.from_ansi(output).plain}\n")
        sys.stdout.flush()
        for name, command in TERMINALS.items():
            if line.startswith(command):
                terminal(PICTURES / name, line, output)
    explorer = insights(folder)
    report = folder / "home" / "reports" / "1-steward.html"
    with running() as tab:
        shown(tab, report, PICTURES / "report.png", 800)
        shown(tab, explorer, PICTURES / "explorer.png", 800)
        with dashboard(folder) as address:
            shown(tab, f"{address}/", PICTURES / "dashboard.png", 560)


def main(words: list[str]) -> None:
    """Make all pictures."""
    if words:
        folder = Path(words[0]).absolute()
        folder.mkdir(parents=True)
        make(folder)
    else:
        with tempfile.TemporaryDirectory(prefix="almoner-pictures-") as temporary:
            make(Path(temporary))


if __name__ == "__main__":
    main(sys.argv[1:])
