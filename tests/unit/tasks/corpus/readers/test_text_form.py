"""Encodings and delimiters: what is found, what is named, and what is refused."""

import codecs
import gzip
import json
from pathlib import Path

import pytest

from flows.datasets.register import fields_sentence
from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from models_db.services.datasets import Registration
from tasks.corpus.ingest import ingest
from tasks.corpus.readers.readers import read_documents
from tasks.corpus.readers.text_form import AS_FOUND, TextForm, describe_forms, parse_form
from tests.refusals import refusal

KEY = bytes(32)
ROWS = [("Müller", "Grüße, à bientôt; “ja” – 5 €"), ("Weiß", "zwei\nZeilen")]


def table(delimiter: str) -> str:
    rows = [("who", "text", "other"), *((who, text, "x") for who, text in ROWS)]
    return "".join(delimiter.join(f'"{cell}"' for cell in row) + "\r\n" for row in rows)


def read(
    path: Path, form: TextForm = AS_FOUND, unit: str | None = "who"
) -> tuple[list[tuple[str | None, str]], str | None]:
    forms: set[TextForm] = set()
    found = [(document.unit, document.text) for document in read_documents(path, unit, form=form, forms=forms)]
    return found, describe_forms(forms)


@pytest.mark.parametrize(
    ("delimiter", "told"),
    [
        (",", None),
        (";", "Read as utf-8, cells separated by semicolons."),
        ("\t", "Read as utf-8, cells separated by tabs."),
        ("|", "Read as utf-8, cells separated by pipes."),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_the_header_shows_its_delimiter(tmp_path: Path, delimiter: str, told: str | None, name: str) -> None:
    data = table(delimiter).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert read(tmp_path / name) == (ROWS, told)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.ndjson.gz"])
def test_a_byte_order_mark_shows_its_encoding(tmp_path: Path, encoding: str, name: str) -> None:
    lines = "".join(json.dumps({"who": who, "text": text}, ensure_ascii=False) + "\n" for who, text in ROWS)
    written = table("\t") if "csv" in name else lines
    data = ("\ufeff" * encoding.endswith("e") + written).encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    found, told = read(tmp_path / name)
    assert found == ROWS
    assert told is not None
    assert f"Read as {encoding[:6]}" in told


def test_a_named_encoding_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(table(";").encode("cp1252"))
    assert read(tmp_path / "a.csv", parse_form("windows-1252", None)) == (
        ROWS,
        "Read as cp1252, cells separated by semicolons.",
    )
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_bytes("5 €".encode("cp1252"))
    (tmp_path / "wide").mkdir()
    (tmp_path / "wide" / "a.txt").write_bytes("5 €".encode("utf-16"))
    assert read(tmp_path / "notes", parse_form("cp1252", None), None) == ([(None, "5 €")], "Read as cp1252.")
    assert read(tmp_path / "wide", unit=None) == ([(None, "5 €")], "Read as utf-16.")


@pytest.mark.parametrize("encoding", ["cp1252", "cp1250", "cp850", "mac-roman"])
def test_an_encoding_without_a_mark_is_not_guessed(tmp_path: Path, encoding: str) -> None:
    """The bytes of `Müller` in one of them are another name in the others, and another name is another unit."""
    (tmp_path / "a.csv").write_bytes("who;text\nMüller;x\n".encode(encoding))
    with refusal("NotUtf8") as refused:
        read(tmp_path / "a.csv")
    assert "--encoding" in refused.value.advice


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "shift_jis"])
def test_bytes_that_are_nothing_in_the_named_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.csv").write_bytes("who,text\np,x\nq,".encode(encoding) + b"\x81\xff\x00\xd8\xff\n")
    with refusal("NotEncoded", match=encoding):
        read(tmp_path / "a.csv", parse_form(encoding, "comma"))


def test_the_delimiter_that_gives_most_fields_decides_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("patient;text\np;x, y, z\n")
    with refusal("ColumnMissing", match="'who'"):
        read(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("text\nx; y | z\n")
    assert read(tmp_path / "a.csv", unit=None) == ([(None, "x; y | z")], None)


def test_a_named_delimiter_is_not_given_up(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who;text\np;y\n")
    assert read(tmp_path / "a.csv")[0] == [("p", "y")]
    with refusal("ColumnMissing"):
        read(tmp_path / "a.csv", parse_form(None, "comma"))


@pytest.mark.parametrize("mark", [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF32_BE, b""])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.txt"])
def test_no_encoding_is_read_against_what_the_bytes_say(tmp_path: Path, mark: bytes, name: str) -> None:
    """Read as cp1252, Noël of a file in UTF-8 would be another person, whom no erasure finds."""
    written = '{"who": "Noël", "text": "x"}\n' if name == "a.jsonl" else "who,text\nNoël,x\n"
    data = mark + written.encode()
    path = tmp_path / name
    if name == "a.txt":
        path = tmp_path / "texts"
        path.mkdir()
        (path / name).write_bytes(data)
    else:
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with refusal("NotEncoded"):
        read(path, TextForm("cp1252"), None if name == "a.txt" else "who")


@pytest.mark.parametrize("again", ["\ufeffwho,text", "who, text", "\ufeffwho , text "])
def test_a_header_of_a_joined_file_is_no_person(tmp_path: Path, again: str) -> None:
    (path := tmp_path / "a.csv").write_text(f"who,text\np,one\n{again}\nq,two\n", encoding="utf-8-sig")
    with refusal("MalformedRow"):
        read(path)


@pytest.mark.parametrize("written", ["who,text\np,one\nwho,text\nq,two\n", "text\none\ntext\n"])
def test_a_header_that_comes_again_is_no_person(tmp_path: Path, written: str) -> None:
    """`cat a.csv b.csv` made a patient called patient_id."""
    (tmp_path / "a.csv").write_text(written)
    with refusal("MalformedRow", match="header once more"):
        read(tmp_path / "a.csv", unit="who" if "who" in written else None)


def test_what_cannot_be_named() -> None:
    for name in ("latin-9000", "rot13", "base64", "utf-7", "unicode_escape", "idna", "\0"):
        with refusal("EncodingUnknown"):
            parse_form(name, None)
    for sign in ("x", ";;", "", "\n", '"'):
        with refusal("DelimiterUnknown"):
            parse_form(None, sign)
    assert parse_form("latin-1", "\\t") == TextForm("iso8859-1", "\t")


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.jsonl", parse_form(None, "tab")), ("a.parquet", parse_form("cp1252", None)), ("d", parse_form(None, "tab"))],
)
def test_a_form_that_a_format_has_not_is_refused(tmp_path: Path, name: str, form: TextForm) -> None:
    path = tmp_path / name
    if name == "d":
        path.mkdir()
        (path / "a.txt").write_text("x")
    else:
        path.write_text("x")
    with refusal("FormUnfit"):
        read_documents(path, None, form=form)


def test_the_same_bytes_are_the_same_table_in_each_version(tmp_path: Path, home: ProjectHome) -> None:
    (tmp_path / "a.csv").write_text(table(";"), "utf-8", newline="")
    one, other = ingest(home, tmp_path / "a.csv", "who", KEY), ingest(home, tmp_path / "a.csv", "who", KEY)
    named = ingest(home, tmp_path / "a.csv", "who", KEY, form=parse_form("utf-8", "semicolon"))
    assert one.manifest_mark == other.manifest_mark == named.manifest_mark
    assert one.read_as == "Read as utf-8, cells separated by semicolons."
    assert "semicolon" not in repr(one)


def test_names_of_fields_are_listed_however_they_are_separated(tmp_path: Path) -> None:
    terms = Registration("clinic", "patient", "text", True, None, None)
    (tmp_path / "a.csv").write_bytes("id;patient_id;text\n1;p;A note, with commas.\n".encode("utf-16"))
    assert fields_sentence(tmp_path / "a.csv", terms) == "Fields of the source: id, patient_id, text."
    (tmp_path / "a.csv").write_text("id;person;note\n1;p;A note.\n")
    said = fields_sentence(tmp_path / "a.csv", terms) or ""
    assert "(3;" in said
    assert "person" not in said.replace("somebody", "")


def test_no_error_shows_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("Quartermaine;Müller\n".encode("cp1252"))
    for form in (AS_FOUND, parse_form("cp1252", None), parse_form("utf-16", None)):
        with pytest.raises(AlmonerError) as refused:
            read(tmp_path / "a.csv", form)
        assert "Quartermaine" not in str(refused.value) + refused.value.diagnostics()


@pytest.mark.parametrize(
    ("encoding", "said", "option"),
    [
        ("cp1252", "letters or punctuation in Windows-1252", "--encoding cp1252"),
        ("cp850", "hardly Windows-1252", "--encoding cp850"),
        ("mac-roman", "hardly Windows-1252", "`mac-roman`"),
        ("utf-16-le", "every other byte is zero", "--encoding utf-16-le"),
        ("utf-16-be", "every other byte is zero", "--encoding utf-16-be"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt"])
def test_a_refusal_says_what_the_bytes_say_and_the_option(
    tmp_path: Path, name: str, encoding: str, said: str, option: str
) -> None:
    written = '{"who": "Müller", "text": "x"}\n' if name == "a.jsonl" else "who;text\nMüller;x\n"
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / name).write_bytes(written.encode(encoding))
    path, unit = (folder, None) if name == "a.txt" else (folder / name, "who")
    with refusal("NotUtf8", match=said) as refused:
        read(path, unit=unit)
    assert option in refused.value.advice
    assert "ller" not in str(refused.value) + refused.value.advice
    assert read(path, TextForm(encoding), unit)[0][0][0] in ("Müller", None)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a.csv", b"who,text\n1,a\0\0\0\0\0\0\0\0\0\n"),
        ("a.csv", b"who,text\n1" + bytes(19) + b",a\n"),
        ("a.csv", b"who,text\n1,a\n\0"),
        *(("a.jsonl", b'{"who": "p", "text": "x"}\n' + bytes(number)) for number in (1, 2, 3, 4095, 4096)),
        ("a.jsonl", b'{"who": "p", "text": "x"}\n\0\0\0\n'),
        ("a.jsonl", b'{"who": "p", "te' + bytes(9)),
        ("a.jsonl.gz", gzip.compress(b'{"who": "p", "text": "x"}\n' + bytes(4096), mtime=0)),
        ("a.txt", b"one word" + bytes(100)),
        ("a.txt", bytes(100)),
    ],
)
@pytest.mark.parametrize("encoding", [None, "cp1252"])
def test_zero_bytes_of_a_crash_are_no_utf_16(tmp_path: Path, name: str, written: bytes, encoding: str | None) -> None:
    """The advice named an encoding in which such a file cannot be read."""
    (tmp_path / name).write_bytes(written)
    path, unit = (tmp_path, None) if name == "a.txt" else (tmp_path / name, "who")
    with refusal("NotUtf8", match="zero bytes") as refused:
        read(path, TextForm(encoding), unit)
    assert "utf-16" not in str(refused.value) + refused.value.advice
    assert "Export the file anew" in refused.value.advice


def test_utf_16_of_chinese_is_seen_by_its_signs(tmp_path: Path) -> None:
    """The second byte of 一 is zero in the half that holds letters of ASCII, of which a record of JSON has many."""
    (tmp_path / "a.jsonl").write_bytes('{"who": "王", "text": "一个人"}\n'.encode("utf-16-le"))
    with refusal("NotUtf8", match="every other byte is zero") as refused:
        read(tmp_path / "a.jsonl")
    assert "--encoding utf-16-le" in refused.value.advice


def test_utf_16_without_a_mark_is_not_read_in_this_machine_s_order(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Grüße".encode("utf-16-be"))
    with refusal("NotEncoded", match="utf-16") as refused:
        read(tmp_path, TextForm("utf-16"), None)
    assert "utf-16-be" in refused.value.advice


@pytest.mark.parametrize("line", ["sep=;", "SEP=;", '"sep=;"', "sep=;;", "sep=,"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_line_of_excel_before_the_header_is_no_header(tmp_path: Path, line: str, encoding: str) -> None:
    """The header alone decides the delimiter, and lines are counted with that one."""
    (path := tmp_path / "a.csv").write_bytes(f"{line}\r\nwho;text\r\np;x\r\n".encode(encoding))
    assert read(path)[0] == [("p", "x")]
    assert "who, text" in (fields_sentence(path, Registration("n", "who", "text", True, None, None)) or "")
    path.write_bytes(f"{line}\r\nwho;text\r\np;x;y\r\n".encode(encoding))
    with refusal("MalformedRow", match="Line 3 "):
        read(path)


@pytest.mark.parametrize("written", ["who,text\rp,x\r", '"who","text"\r"p","x"\r', "who,text\r\np,x\rq,y\r\n"])
def test_lines_that_end_with_cr_alone_are_named(tmp_path: Path, written: str) -> None:
    (tmp_path / "a.csv").write_bytes(written.encode())
    with refusal("MalformedRow", match="CR alone") as refused:
        read(tmp_path / "a.csv")
    assert "tr '\\r' '\\n'" in refused.value.advice
    (tmp_path / "a.jsonl").write_bytes(b'{"who": "p", "text": "x"}\r{"who": "q", "text": "y"}\r')
    with refusal("NotJson", match="CR alone"):
        read(tmp_path / "a.jsonl")
    (tmp_path / "a.csv").write_bytes(b'who,text\np,"x\ry"\n')
    assert read(tmp_path / "a.csv")[0] == [("p", "x\ry")]
