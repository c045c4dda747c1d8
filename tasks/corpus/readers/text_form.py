"""Encoding and delimiter of a source of text: as they are named, or as its first bytes and its header show them."""

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from models_db.errors import UsageError

UTF_8: Final = "utf-8"
_MARKS: Final = (
    (codecs.BOM_UTF8, UTF_8), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
"""Byte-order marks; those of UTF-32 begin with those of UTF-16."""
WIDE: Final = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
"""Encodings of which a line does not end with the byte of a line break."""
_ENCODINGS: Final = frozenset((
    UTF_8, *WIDE, *(f"cp{page}" for page in (437, 850, 852, 855, 857, 858, 866, 874, 932, 949, 950)),
    *(f"cp{page}" for page in range(1250, 1259)),
    *(f"iso8859-{part}" for part in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16)), "koi8-r", "koi8-u",
    "mac-roman", "shift_jis", "euc_jp", "euc_kr", "gbk", "gb18030", "big5",
))  # fmt: skip
_HARDLY_1252: Final = re.compile(rb"[\x81\x83\x86-\x90\x98\x9a-\x9f]|[A-Za-z][\x80-\x91\x93-\x95\x99][A-Za-z]")
"""Bytes that are nothing, rare, or a sign between letters in Windows-1252; in cp850 and mac-roman they are letters."""
_NO_GUESS: Final = (
    "almoner does not guess: the same bytes are other letters in each, and a unit whose id is in the wrong letters is"
    " another unit. Else repair the record"
)
_DELIMITER_LINE: Final = re.compile(r'"?sep=[^\r\n]"?[,;\t|]*\s*', re.IGNORECASE)
DELIMITERS: Final = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
"""Delimiters by name, in the order in which a header is tried with them."""
_PLURALS: Final = {sign: f"{name}s" for name, sign in DELIMITERS.items()}


@dataclass(frozen=True)
class TextForm:
    """Form of a text file; None is what is not named, or what the file has not.

    Attributes:
        encoding: Python's name of an encoding.
        delimiter: the sign between the cells of a CSV file.
    """

    encoding: str | None = None
    delimiter: str | None = None


AS_FOUND: Final = TextForm()
"""The form of a source for which none is named."""


def parse_form(encoding: str | None, delimiter: str | None) -> TextForm:
    """Return the form that a person names.

    Args:
        encoding: a name of an encoding, such as `cp1252` or `latin-1`.
        delimiter: a sign, or its name: comma, semicolon, tab, pipe.

    Raises:
        EncodingUnknown, DelimiterUnknown.
    """
    sign = None
    if delimiter is not None:
        sign = DELIMITERS.get(delimiter.lower(), "\t" if delimiter == "\\t" else delimiter)
        if sign not in _PLURALS:
            raise UsageError(
                "The delimiter named is not one that almoner reads.",
                f"Name one of {', '.join(DELIMITERS)}; convert a file with another.",
                {"delimiters": list(DELIMITERS)},
                code="DelimiterUnknown",
            )
    if encoding is None:
        return TextForm(None, sign)
    try:
        known = codecs.lookup(encoding).name.replace("utf-8-sig", UTF_8)
    except (LookupError, ValueError):
        raise _encoding_unknown() from None
    if known not in _ENCODINGS:
        raise _encoding_unknown()
    return TextForm(known, sign)


def marked_encoding(begun: bytes) -> str | None:
    """Return the encoding that a byte-order mark at the start of a file says; None if there is none."""
    return next((encoding for mark, encoding in _MARKS if begun.startswith(mark)), None)


def contradicts(encoding: str, begun: bytes) -> bool:
    """Return whether the first bytes of a file say that it is in another encoding than the one that is named.

    Read so, a person's id would have other letters, and be another unit.
    """
    marked = marked_encoding(begun)
    if marked is None:  # Python would take the order of bytes of this machine
        return encoding in ("utf-16", "utf-32") and begun != b""
    return not encoding.startswith(marked)


def has_odd_zeros(line: bytes) -> bool:
    """Return whether a line has the zero bytes of UTF-16, or several in a row; one alone is a character of a text."""
    return 0 in line and (_zero_half(line) is not None or b"\0\0" in line or not line.strip(b"\0\r\n"))


def _zero_half(line: bytes) -> int | None:
    """Return which bytes of most pairs are zero, as of ASCII in UTF-16: 0 for the first, 1 for the second, or None."""
    halves = line[::2].count(0), line[1::2].count(0)
    if not line.strip(b"\0\r\n") or 4 * max(halves) < len(line) or 8 * min(halves) > max(halves):
        return None
    return halves.index(max(halves))


def what_bytes_say(line: bytes) -> tuple[str, str]:
    """Return what is known of a line that is not UTF-8 or has odd zeros, in words, and what to do: nothing is guessed.

    Letters of Windows-1252 are other letters in cp1250 and cp1251; only the order of UTF-16's bytes is certain.
    """
    if (half := _zero_half(line)) is not None:
        reason = "every other byte is zero, as in UTF-16 without a byte-order mark"
        return reason, f"Repeat the command with `--encoding utf-16-{('be', 'le')[half]}`"
    if has_odd_zeros(line):
        reason = "it has zero bytes, as a file has after a crash, or where a program filled fields up with them"
        return reason, "Export the file anew, or remove these bytes if they only fill up fields or the end of the file"
    if _HARDLY_1252.search(line):
        remedy = (
            "If the file is in another encoding, repeat the command with its name: `--encoding cp850` (DOS),"
            " `mac-roman`, `cp1250` (Windows in Central Europe), `shift_jis`"
        )
        return "its bytes are not UTF-8, and hardly Windows-1252", f"{remedy}. {_NO_GUESS}"
    remedy = (
        "If Windows in Western Europe wrote the file, repeat the command with `--encoding cp1252`; in Central Europe"
        " `cp1250`, in Cyrillic `cp1251`"
    )
    reason = "its bytes are not UTF-8; those beyond ASCII are letters or punctuation in Windows-1252"
    return reason, f"{remedy}. {_NO_GUESS}"


def names_delimiter(line: str) -> bool:
    """Return whether the first line of a CSV file is Excel's `sep=;`, which is no header; that one decides."""
    return _DELIMITER_LINE.fullmatch(line) is not None


def is_utf8_under(encoding: str, line: bytes) -> bool:
    """Return whether a line has letters beyond ASCII that are whole in UTF-8, although single bytes are named.

    In those encodings such bytes are pairs of signs that hardly any word has; in wide ones they can be words.
    """
    if line.isascii() or not encoding.startswith(("cp125", "iso8859", "koi8", "mac")):
        return False
    try:
        line.decode(UTF_8)
    except UnicodeDecodeError:
        return False
    return True


def describe_forms(forms: Iterable[TextForm]) -> str | None:
    """Return how the files of a source were read, as a sentence; None of plain UTF-8 with commas alone."""
    told = sorted({_described(form) for form in forms} - {""})
    return f"Read as {'; and as '.join(told)}." if told else None


def _described(form: TextForm) -> str:
    encoding = None if form.encoding in (None, UTF_8) else form.encoding
    cells = None if form.delimiter in (None, ",") else f"cells separated by {_PLURALS[form.delimiter]}"
    if encoding is None and cells is None:
        return ""
    return ", ".join(filter(None, (encoding or UTF_8, cells)))


def _encoding_unknown() -> UsageError:
    return UsageError(
        "The encoding named is not one that almoner reads.",
        "Name for instance utf-8, utf-16, cp1252 (Windows in Western Europe), cp1250 (in Central Europe), cp1251"
        " (Cyrillic), iso8859-1, shift_jis, gb18030; or convert the file to UTF-8.",
        code="EncodingUnknown",
    )


def form_unfit(file: str, what: str) -> UsageError:
    """Return the error of an encoding or a delimiter that is named for a source without one."""
    return UsageError(
        f"{file!r} is in a format without {what}.",
        f"Leave the option out; {what} is that of " + ("CSV." if what == "a delimiter" else "CSV, JSONL and .txt."),
        {"file": file},
        code="FormUnfit",
    )
