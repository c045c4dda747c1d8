"""Folders that `datasets.save_to_disk` wrote: which of the files in them are the dataset.

Beside them lie results of `map` and `filter` that the library keeps, which hold the same records again.
"""

import re
from typing import BinaryIO, Final

from models_db.values.bounded_json import InvalidJson, parse_json

STATE: Final = "state.json"
SPLITS: Final = "dataset_dict.json"
_MOST_BYTES: Final = 16 << 20
_CACHE: Final = re.compile(r"cache-[0-9a-f]{16}(?:_\d{5}_of_\d{5})?\.arrow")
_PLAIN: Final = re.compile(r"(?!\.{1,2}$)[^/\\\x00]+")


class NotPlain(ValueError):
    """A description that names no plain files of its folder; the reason is the text."""


def is_cache(name: str) -> bool:
    """Return whether `datasets` gives such a name to a result that it keeps."""
    return _CACHE.fullmatch(name) is not None


def names_listed(file: BinaryIO, name: str) -> frozenset[str] | None:
    """Return what a description lists in its folder: the data files of a `state.json`, the splits of a dictionary.

    None of a file that describes no dataset.

    Args:
        name: STATE or SPLITS.

    Raises:
        NotPlain: it lists something else than plain names, each once, or none of them; or an index over its rows.
    """
    try:
        described = parse_json(file.read(_MOST_BYTES + 1), most_bytes=_MOST_BYTES)
    except InvalidJson:
        raise NotPlain(f"its {name} is damaged") from None
    key = "_data_files" if name == STATE else "splits"
    if not isinstance(described, dict) or key not in described:
        return None
    if described.get("_indices_data_files"):
        raise NotPlain("it keeps an index of the rows that count, which almoner does not read")
    listed = described[key]
    if not isinstance(listed, list):
        raise NotPlain(f"its {name} is damaged")
    found = [each.get("filename") if isinstance(each, dict) else each for each in listed]
    names = frozenset(each for each in found if isinstance(each, str) and _PLAIN.fullmatch(each))
    if not names or len(names) < len(found):
        raise NotPlain(f"its {name} lists nothing, something twice, or something else than names in its folder")
    return names
