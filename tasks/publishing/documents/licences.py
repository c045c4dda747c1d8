"""Declared licences in the form of catalogues: an SPDX identifier, an address, or a plain name."""

from typing import Final

_HUB_NAMES: Final = {
    "Apache-2.0": "apache-2.0",
    "BSD-3-Clause": "bsd-3-clause",
    "CC-BY-2.0": "cc-by-2.0",
    "CC-BY-3.0": "cc-by-3.0",
    "CC-BY-4.0": "cc-by-4.0",
    "CC-BY-NC-3.0": "cc-by-nc-3.0",
    "CC-BY-NC-4.0": "cc-by-nc-4.0",
    "CC-BY-NC-ND-4.0": "cc-by-nc-nd-4.0",
    "CC-BY-NC-SA-4.0": "cc-by-nc-sa-4.0",
    "CC-BY-ND-4.0": "cc-by-nd-4.0",
    "CC-BY-SA-3.0": "cc-by-sa-3.0",
    "CC-BY-SA-4.0": "cc-by-sa-4.0",
    "CC0-1.0": "cc0-1.0",
    "CDLA-Permissive-1.0": "cdla-permissive-1.0",
    "CDLA-Permissive-2.0": "cdla-permissive-2.0",
    "CDLA-Sharing-1.0": "cdla-sharing-1.0",
    "MIT": "mit",
    "ODbL-1.0": "odbl",
    "ODC-By-1.0": "odc-by",
    "PDDL-1.0": "pddl",
    "Unlicense": "unlicense",
}
"""Licences of data that SPDX and the Hugging Face Hub both know, by SPDX identifier."""

_SPDX: Final = {name.lower(): name for name in _HUB_NAMES}


def hub_licence(declared: str) -> dict[str, str]:
    """Return the fields of a dataset card that state a licence."""
    spdx = _SPDX.get(declared.lower())
    if spdx is not None:
        return {"license": _HUB_NAMES[spdx]}
    if _is_address(declared):
        return {"license": "other", "license_name": "see-link", "license_link": declared}
    return {"license": "other", "license_name": declared}


def licence_address(declared: str) -> str:
    """Return the address of the licence text; the declared value where no address is known."""
    spdx = _SPDX.get(declared.lower())
    return f"https://spdx.org/licenses/{spdx}.html" if spdx is not None else declared


def _is_address(declared: str) -> bool:
    return declared.startswith(("https://", "http://"))
