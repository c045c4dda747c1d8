"""Tables of a request's price."""

from rich.console import RenderableType

from cli.framework.tables import fact_list, table, warning_panel
from flows.approvals.price_sections import price_sections
from flows.approvals.review import FieldList, Table, Warnings
from models_db.values.canonical_json import Json


def price_tables(price: dict[str, Json]) -> list[RenderableType]:
    """Return the price of a request as tables: its charges, its public parameters and the budget it draws on."""
    return [_render(section) for section in price_sections(price)]


def _render(section: FieldList | Table | Warnings) -> RenderableType:
    match section:
        case Warnings(lines=lines):
            return warning_panel(lines)
        case FieldList(title=title, rows=rows):
            return fact_list(rows, title=title)
        case Table(title=title, columns=columns, rows=rows):
            return table(columns, rows, title)
