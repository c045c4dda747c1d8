"""Dataset of the Hugging Face hub at a commit: `hf://datasets/OWNER/NAME@COMMIT/path`, as a source to ingest.

Its data files are copied into a folder of the home's scratch for as long as they are read. Nothing of it is executed:
only files that readers know are fetched. `HF_TOKEN` and `HF_ENDPOINT` are those of Hugging Face's tools.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from models_db.errors import EnvironmentProblem, UsageError
from tasks.common.network import ask_hub
from tasks.object_storage.address import Place, address_unfit, parse_place

_HUB: Final = "hf://"
_ADDRESS: Final = re.compile(
    r"hf://datasets/(?P<repo>[A-Za-z0-9][\w.-]*/[\w.-]+)(?:@(?P<revision>[^/]+))?(?:/(?P<path>.+))?", re.ASCII
)
_Answer = TypeVar("_Answer")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubDataset:
    """A dataset repository of the hub, or a file or folder in it.

    Attributes:
        repo: owner and name, `stanfordnlp/imdb`.
        commit: 40 hexadecimal digits.
        path: the path inside the repository; empty for all of it.
    """

    repo: str
    commit: str
    path: str = ""

    def __str__(self) -> str:
        return f"hf://datasets/{self.repo}@{self.commit}{'/' if self.path else ''}{self.path}"


def parse_source(text: str) -> Place | HubDataset:
    """Parse the place of a source: that of `parse_place`, or a dataset of the hub at a commit.

    Raises:
        CommitMissing: the address names no commit.
        AddressUnfit, SchemeUnknown: it is no address.
    """
    if not text.startswith(_HUB):
        return parse_place(text)
    match = _ADDRESS.fullmatch(text)
    path = match["path"] or "" if match else ""
    if match is None or any(part in ("", ".", "..") for part in path.rstrip("/").split("/") if path):
        raise address_unfit("a dataset of the hub is hf://datasets/OWNER/NAME@COMMIT/path")
    if any(sign in "*?[]\\" or not sign.isprintable() for sign in path):
        raise address_unfit("a path in the hub has no `*`, `?`, `[`, `]`, `\\` or invisible sign")
    if not _COMMIT.fullmatch(match["revision"] or ""):
        raise _commit_missing(match["repo"])
    return HubDataset(match["repo"], match["revision"], path.rstrip("/"))


def fetch_dataset(
    dataset: HubDataset,
    choose: Callable[[PurePosixPath, Sequence[PurePosixPath]], Sequence[PurePosixPath]],
    folder: Path,
) -> Path:
    """Copy the files of a dataset that are read into `folder`; return the path of its file or folder there.

    Args:
        choose: returns the paths to copy, of the dataset's path and those of all files of the repository.

    Raises:
        HubDatasetHidden: the hub does not show it to this account.
        HubDatasetUnreachable: the hub does not deliver it.
        Whatever `choose` raises.
    """
    import huggingface_hub

    def ask(call: Callable[[], _Answer]) -> _Answer:
        return ask_hub(
            call, lambda: _hub_dataset_hidden(dataset), lambda reason: _hub_dataset_unreachable(dataset, reason)
        )

    named = ask(lambda: huggingface_hub.list_repo_files(dataset.repo, repo_type="dataset", revision=dataset.commit))
    chosen = choose(PurePosixPath(dataset.path), [PurePosixPath(name) for name in named])
    wanted = [_exactly(str(path)) for path in chosen]
    if wanted:
        ask(
            lambda: huggingface_hub.snapshot_download(
                dataset.repo, repo_type="dataset", revision=dataset.commit, allow_patterns=wanted, local_dir=folder
            )
        )
    return folder / dataset.path


def _exactly(name: str) -> str:
    """Return the pattern of exactly this name."""
    return re.sub(r"[*?\[]", r"[\g<0>]", name)


def _commit_missing(repo: str) -> UsageError:
    return UsageError(
        f"The address of the dataset {repo!r} names no commit: a branch changes, a commit does not.",
        f"Write hf://datasets/{repo}@COMMIT with the 40 digits that the page's history shows.",
        {"dataset": repo},
        code="CommitMissing",
    )


def _hub_dataset_hidden(dataset: HubDataset) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The hub does not show {dataset} to this account: it is gated, private, or not there.",
        "Accept its terms on its page and set HF_TOKEN to a token of that account.",
        {"dataset": str(dataset)},
        code="HubDatasetHidden",
    )


def _hub_dataset_unreachable(dataset: HubDataset, reason: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{dataset} could not be downloaded: {reason}.",
        "Check the network and Hugging Face's settings (HF_ENDPOINT, HF_HUB_OFFLINE), and the path in the address.",
        {"dataset": str(dataset), "reason": reason},
        code="HubDatasetUnreachable",
    )
