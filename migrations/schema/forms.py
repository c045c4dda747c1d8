"""Forms of values, the same in every table: times, digests, lines, types, numbers of rows, names, and the size of text
by people.

Every column of text has one closed form, which a CHECK of its table keeps: nothing that a row says steers a terminal,
and what a path, a pattern or a command could be made of is a digest, a plain name or a number.

Times are compared as text, so each has exactly one form. SQLite itself accepts 0.5 as an integer and a blob as text, so
there a CHECK asks for the type of a value too (`tables.ledger_tables`); and it lets a client number a row, which a
guard checks.
"""

from migrations.schema.definitions import Both

# --- Names -------------------------------------------------------------------------------------------------------
# Nobody can take a name for another one: of datasets there is one spelling, of people one reading. On
# SQLite GLOB tells capitals from small letters and compares ranges by code point; 45 is the hyphen of a range.

LONGEST_NAME = 100
UNSEEN = (
    (1, 31), (127, 160), (173, 173), (847, 847), (1564, 1564), (4447, 4448), (5760, 5760), (6068, 6069), (6155, 6159),
    (8192, 8207), (8232, 8239), (8287, 8303), (10240, 10240), (12288, 12288), (12644, 12644), (65024, 65039),
    (65279, 65279), (65440, 65440), (65520, 65531), (113824, 113827), (119129, 119129), (119155, 119162),
    (917504, 921599),
)  # fmt: skip
"""Code points that a reader cannot see, or that steer a line: controls, joiners, marks of direction, fillers, tags,
selectors, all spaces but the one of ASCII."""


# --- Lines and texts ---------------------------------------------------------------------------------------------

CONTROLS = ((1, 31), (127, 159))
"""Code points of control characters; a NUL ends a text for GLOB, so SQLite is asked for it apart, and PostgreSQL has
none in a text."""
CONTROLS_OF_TEXT = ((1, 8), (11, 31), (127, 159))
"""The same without tab and line feed."""
CONTROLS_OF_JSON = ((1, 8), (11, 31))
"""What no JSON text has outside of an escape; it may hold other people's text, which is escaped where it is shown."""
PROSE = frozenset({"reason", "detail", "destination", "rule"})
"""The columns of type TEXT that hold no JSON."""
NEVER_BLANK = frozenset({"reason", "rule"})
"""Columns that say something, wherever they are."""
LONGEST_LINE = 255
ZONE = ("schedule", "zone")
DATASET_NAMES = (("dataset", "name"), ("policy_rule", "dataset"), ("twin_attack", "dataset"), ("rehearsal", "dataset"))
"""Columns that name a dataset, by its plain name, as in `models_db.values.untrusted_text`."""
PERSON = ("principal", "name")
ORIGINS = (("passkey", "rp_id"), ("passkey", "origin"))


def form_of(table: str, column: str, kind: str) -> Both | None:
    """Return the condition that a text has form and size of its column; None for a time, a number or bytes."""
    form = _form(table, column, kind)
    if form and column in NEVER_BLANK:
        form = form.within(f"@ AND length(trim({column})) > 0")
    if form and column in TEXTS.get(table, {}):
        size = f"<= {TEXTS[table][column]} AND "
        form = Both(
            f"length(CAST({column} AS BLOB)) {size}{form.sqlite}", f"octet_length({column}) {size}{form.postgresql}"
        )
    return form


def _form(table: str, column: str, kind: str) -> Both | None:
    if kind in ("VARCHAR(16)", "VARCHAR(32)", "VARCHAR(64)"):
        return _digits(column, int(kind[8:-1]))
    if kind == "VARCHAR(255)":
        return _line(table, column)
    if kind == "TEXT":
        return _free_of(column, CONTROLS_OF_TEXT if column in PROSE else CONTROLS_OF_JSON)
    return _free_of(column, CONTROLS_OF_JSON) if kind == "VARCHAR" else None


def _line(table: str, column: str) -> Both:
    if (table, column) in DATASET_NAMES:
        return _made_of(column, "a-z0-9_.-", "a-z0-9", LONGEST_NAME)
    if (table, column) in ORIGINS:
        return _made_of(column, "a-z0-9:/.-", "a-z0-9", LONGEST_LINE)
    if (table, column) == ZONE:
        return _made_of(column, "A-Za-z0-9_+/-", "A-Za-z", LONGEST_LINE)
    if (table, column) == PERSON:
        size = f"length({column}) > 0 AND length({column}) <= {LONGEST_NAME}"
        return _free_of(column, UNSEEN).within(f"@ AND {size} AND {column} = trim({column})")
    return _free_of(column, CONTROLS).within(f"@ AND length({column}) <= {LONGEST_LINE}")


def _digits(column: str, number: int) -> Both:
    return Both(
        sqlite=f"length(CAST({column} AS BLOB)) = {number} AND {column} NOT GLOB '*[^0-9a-f]*'"
        f" AND instr({column}, char(0)) = 0",
        postgresql=f"{column} COLLATE \"C\" ~ '^[0-9a-f]{{{number}}}$'",
    )


def _made_of(column: str, signs: str, first: str, most: int) -> Both:
    """A text of some signs of ASCII, of which the hyphen is the last, that begins with one of `first`."""
    return Both(
        sqlite=f"{column} GLOB '[{first}]*' AND {column} NOT GLOB '*[^{signs}]*' AND length({column}) <= {most}"
        f" AND instr({column}, char(0)) = 0",
        postgresql=f"{column} COLLATE \"C\" ~ '^[{first}][{signs}]{{0,{most - 1}}}$'",
    )


def _free_of(column: str, controls: tuple[tuple[int, int], ...]) -> Both:
    codes = ", ".join(f"{first}, 45, {last}" for first, last in controls)
    signs = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in controls)
    return Both(
        sqlite=f"{column} NOT GLOB ('*[' || char({codes}) || ']*') AND instr({column}, char(0)) = 0",
        postgresql=f"{column} COLLATE \"C\" !~ '[{signs}]'",
    )


# --- Sizes of texts ----------------------------------------------------------------------------------------------

LONG, SHORT = 1_000_000, 10_000
TEXTS: dict[str, dict[str, int]] = {
    "role_grant": {"reason": SHORT}, "role_revocation": {"reason": SHORT},
    "passkey": {"credential_id": SHORT}, "passkey_end": {"reason": SHORT},
    "approval": {"reason": SHORT, "attestation": LONG, "assertion": SHORT},
    "withdrawal": {"reason": SHORT, "assertion": SHORT},
    "transition": {"detail": SHORT},
    "proposal": {"reason": SHORT, "configuration": LONG, "choices": LONG}, "schedule": {"reason": SHORT, "rule": SHORT},
    "schedule_change": {"reason": SHORT}, "schedule_slot": {"detail": SHORT}, "slot_end": {"detail": SHORT},
    "delivery": {"destination": SHORT}, "restoration": {"reason": SHORT}, "twin_attack": {"attacks": SHORT},
    "rehearsal": {"result": LONG}, "assignment_exposure": {"reason": SHORT}, "erasure": {"reason": SHORT},
    "policy_version": {"body": LONG}, "request": {"canonical": 4 * LONG},
    "invocation": {"event": LONG, "libraries": LONG}, "artifact": {"files": 16 * LONG},
    "evaluation": {"result": 16 * LONG}, "dataset": {"public_metadata": LONG},
}  # fmt: skip
"""Maximum number of bytes of texts by people. Readers of JSON bound its depth and numbers by themselves."""


# --- Times, and numbers of rows ---------------------------------------------------------------------------------

_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DAY = (
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP}-02-29)"
)
_MOMENT = f"^(?!0000){_DAY}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{{6}}Z$"
_DIGIT = "[0-9]"
_SIGNS = "-".join((_DIGIT * 4, _DIGIT * 2, _DIGIT * 2)) + f"T{':'.join([_DIGIT * 2] * 3)}.{_DIGIT * 6}Z"


def moment(column: str) -> Both:
    """Return the condition that a text is a time in its one form: 27 characters, in UTC, a moment of the calendar.

    PostgreSQL has a pattern, because a CHECK must not ask functions whose answer depends on the session. SQLite counts
    the text in bytes, because for `length` and GLOB it ends at a NUL; only if `strftime` adds something, be it nothing,
    does it count the 31st of February as the 3rd of March.
    """
    return Both(
        sqlite=f"length(CAST({column} AS BLOB)) = 27 AND {column} GLOB '{_SIGNS}' AND {column} >= '0001'"
        f" AND strftime('%Y-%m-%dT%H:%M:%S', substr({column}, 1, 19), '+0 days') IS substr({column}, 1, 19)",
        postgresql=f"{column} ~ '{_MOMENT}'",
    )


def sqlite_number_guard(table: str) -> str:
    """Return the guard that rows are numbered one after the other: after the largest number nothing could be added."""
    return (
        f"CREATE TRIGGER {table}_numbers AFTER INSERT ON {table}"
        f" WHEN NEW.id <> (SELECT max(x.id) FROM {table} x)"
        f" OR NEW.id <> 1 + coalesce((SELECT max(x.id) FROM {table} x WHERE x.id < NEW.id), 0)"
        " BEGIN SELECT RAISE(ABORT, 'almoner: the ledger numbers its rows itself'); END"
    )
