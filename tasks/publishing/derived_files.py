"""Derived files of a bundle: they follow from its record, its measurements and its texts; one maker each.

Verification of a bundle makes them again and compares every byte. To add one: its name in `file_names.DRAFT_FILES` (or
in `format_versions`, where one kind alone has it), its maker here, its row in `card_text` and in docs/bundle.md.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tasks.publishing.documents.card import card
from tasks.publishing.documents.croissant import croissant
from tasks.publishing.documents.dp_deployment_registry import deployment
from tasks.publishing.documents.nist_800_226 import checklist
from tasks.release.file_names import CARD, CHECKLIST, CROISSANT, DEPLOYMENT, EXPLORER, REPORT
from tasks.release.format_versions import drafted_files
from tasks.release.public_content import PublicContent
from tasks.reporting.html_explorer import explorer_html
from tasks.reporting.html_report import report_html
from tasks.reporting.release_sections import Text, release_facts, texts_of

MAKERS: Final[Mapping[str, Callable[[PublicContent], str]]] = {
    CARD: lambda release: card(release.record, release.metrics),
    CHECKLIST: checklist,
    CROISSANT: croissant,
    DEPLOYMENT: deployment,
    REPORT: lambda release: report_html(release_facts(release.record, release.metrics, _texts(release))),
    EXPLORER: lambda release: explorer_html(release.record, release.insights),
}


def derived_files(release: PublicContent) -> dict[str, bytes]:
    """Return names and contents of the generated files for the record's kind of release."""
    names = drafted_files(release.record.kind)
    return {name: make(release).encode() for name, make in MAKERS.items() if name in names}


def _texts(release: PublicContent) -> list[Text]:
    return texts_of(release.texts, release.insights)
