"""Unforeseen data, configs and texts: read as by an independent strict parser, or refused."""

import io
import itertools
import json
import math
import re
import sys
import unicodedata
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import strategies as st
from processes import fork_call
from pydantic import BaseModel
from samples import ENGINES, engine_of, fuzz, predict, tries, variant_of

from encoder_cls.config.loading import load_config
from encoder_cls.config.schema import Config
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.sources import read_rows
from encoder_cls.errors import ConfigError, DataError

TEXTS = [
    "NA",
    "null",
    "None",
    "nan",
    "007",
    "1e5",
    'a "quoted" word',
    "a, b",
    "two\nlines",
    "  spaces ",
    "😀 é ß",
]
ROWS = st.lists(
    st.tuples(st.sampled_from([*TEXTS, "x" * 50]), st.sampled_from(["a", "b", "007", "NA"])),
    min_size=1,
)
# In a file, the mark is replaced by many of them.
MARK = b"\x7f"
LONG = MARK * 50_000_000
PIECES = [
    b"\xe9",
    b"\xff\xfe",
    b"\0",
    b'"',
    b'""',
    b",",
    b",,",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\xef\xbb\xbf",
    b"\t",
    b"{",
    b"}",
    b"\\",
    b"\\ud800",
    b"null",
    b"NaN",
    b"1e999",
    b"NA",
    "\u2028\u202e\x85\x1b[31m".encode(),
    MARK,
]
# A change of a file: bytes that come in, how many are removed, or which bit is another.
CHANGE = st.sampled_from(PIECES) | st.integers(-9, -1) | st.integers(0, 7)
CHANGES = st.lists(st.tuples(st.integers(0, 10**6), CHANGE), max_size=3)
ENCODING = st.sampled_from(["utf-8"] * 30 + ["latin-1", "utf-16"])
# Why rows are refused that another parser reads.
REASONS = (
    "is empty|no column|two columns|holds|not UTF-8|occurs twice|not a readable Parquet|"
    "carriage return"
)
# A field of a CSV file, in quotes or without, and what comes after it.
FIELD = re.compile(r'"((?:[^"]|"")*)"|([^",\r\n][^,\r\n]*)?')
SEPARATOR = re.compile(r",|\r\n|\r|\n")


@fuzz(
    1000,
    ROWS,
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\ufeff"]),
    ENCODING,
    CHANGES,
)
def test_csv_fuzz(space, rows, is_quoted, end, mark, encoding, changes):
    """CSV with some pieces changed: the rows of a strict parser, or exit 3 with file:line."""

    def field(value):
        if is_quoted or re.search('[",\n]', value):
            escaped = value.replace('"', '""')
            return f'"{escaped}"'
        return value

    lines = ["text,label", *(f"{field(text)},{field(label)}" for text, label in rows), ""]
    content = (mark + end.join(lines)).encode(encoding, "replace")
    check_file(space, ".csv", changed(content, changes), parse_csv)


@fuzz(1000, ROWS, st.booleans(), ENCODING, CHANGES)
def test_jsonl_fuzz(space, rows, is_ascii, encoding, changes):
    """The same for JSON Lines."""
    lines = []
    for text, label in rows:
        lines.append(json.dumps({"text": text, "label": label}, ensure_ascii=is_ascii) + "\n")
    content = "".join(lines).encode(encoding, "replace")
    check_file(space, ".jsonl", changed(content, changes), parse_jsonl)


ODD_COLUMNS = [
    "a text is null",
    "a label is null",
    "labels are fractions",
    "texts are lists",
    "labels are lists",
    "no texts",
    "no labels",
    "texts are bytes",
]


def make_odd(columns, oddity):
    """Change the columns of text and label as one of `ODD_COLUMNS` says."""
    match oddity:
        case "a text is null":
            columns["text"][-1] = None
        case "a label is null":
            columns["label"][-1] = None
        case "labels are fractions":
            columns["label"] = [0.5] * len(columns["text"])
        case "texts are lists":
            columns["text"] = [[text] for text in columns["text"]]
        case "labels are lists":
            columns["label"] = [[label] for label in columns["label"]]
        case "no texts":
            del columns["text"]
        case "no labels":
            del columns["label"]
        case "texts are bytes":
            columns["text"] = [text.encode() for text in columns["text"]]


@fuzz(
    1000,
    ROWS,
    st.none() | st.sampled_from(ODD_COLUMNS),
    st.sampled_from(["none", "snappy", "zstd"]),
    CHANGES,
)
def test_parquet_fuzz(space, rows, oddity, compression, changes):
    """The same for Parquet; a crash of the reader itself is looked for, too."""
    columns = {"text": [text for text, _ in rows], "label": [label for _, label in rows]}
    if oddity:
        make_odd(columns, oddity)
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression=compression)

    content = buffer.getvalue()
    if not oddity:
        content = changed(content, changes)
    check_file(space, ".parquet", content, parse_parquet)


def changed(content, changes):
    """The content after some changes."""
    content = bytearray(content)
    for number, change in changes:
        place = number % (len(content) + 1)
        if isinstance(change, bytes):
            content[place:place] = change
        elif change < 0:
            del content[place : place - change]
        elif place < len(content):
            content[place] ^= 1 << change
    return bytes(content)


def check_file(space, suffix, content, parse):
    """Compare the rows of a file with those of another parser."""
    path = space.scratch / f"fuzz{suffix}"
    is_long = suffix != ".parquet" and MARK in content
    path.write_bytes(content.replace(MARK, LONG) if is_long else content)
    ended = fork_call(partial(print_rows, path)).end()
    assert ended.code in {0, 3}, f"exit {ended.code}: {ended.err[-500:]}"

    expected = parse(content)
    if ended.code == 3:
        message = ended.err.strip()
        assert message.startswith(f"{path}:"), message
        assert message.isprintable(), repr(message)
        assert not expected or re.search(REASONS, message), message
        return

    assert expected is not None, "accepted, where another parser refuses"
    out = ended.out.replace(LONG, MARK) if is_long else ended.out
    found = json.loads(out)
    assert found == [list(row) for row in expected]


def print_rows(path):
    """Print the rows of a source as JSON, or its error, and exit with the error's code."""
    try:
        rows = read_rows(str(path), Columns(["text"], "label"), Reading())
        print(json.dumps([(row.text, row.label) for row in rows], ensure_ascii=True))
    except DataError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def parse_csv(content):
    """Parse RFC 4180 with strings alone; none if the file breaks it or has other columns."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None

    records = csv_records(text)
    if records is None:
        return None
    header, *rows = records
    rows = [row for row in rows if row != [""]]
    if header.count("text") != 1 or header.count("label") != 1:
        return None
    if any(len(row) != len(header) for row in rows):
        return None
    return [(row[header.index("text")], row[header.index("label")]) for row in rows]


def csv_records(text):
    """The fields of each line; none if something comes after a quoted field."""
    records = [[]]
    place = 0
    while True:
        field = FIELD.match(text, place)
        quoted, plain = field.groups()
        value = plain or "" if quoted is None else quoted.replace('""', '"')
        records[-1].append(value)
        place = field.end()
        if place == len(text):
            return records

        separator = SEPARATOR.match(text, place)
        if not separator:
            return None
        if separator[0] != ",":
            records.append([])
        place = separator.end()


def parse_jsonl(content):
    """Parse lines of JSON; none if one is no object with the two columns."""
    decoder = json.JSONDecoder(parse_constant=lambda _: math.nan)
    try:
        lines = content.decode("utf-8-sig").split("\n")
        records = [decoder.decode(line) for line in lines if line.strip()]
        return rows_of(records)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def parse_parquet(content):
    """Parse a Parquet file; none if pyarrow does not, or other columns are in it."""
    try:
        return rows_of(pq.ParquetFile(pa.BufferReader(content)).read().to_pylist())
    except (pa.ArrowException, KeyError, ValueError, OSError):
        return None


def rows_of(records):
    """The text and label of each record; none if a text is no string.

    A null is an empty text, and bytes are a text in UTF-8.
    """
    rows = []
    for record in records:
        text = "" if record["text"] is None else record["text"]
        if isinstance(text, bytes):
            text = text.decode()
        if not isinstance(text, str):
            return None
        rows.append((text, record["label"]))
    return rows


CLASSES = ["good", "bad", "UGLY", "007", "no", "caf\u00e9"]
HIDDEN = [".DS_Store", "._1.txt", ".hidden.TXT"]
# Folders inside the folder of a class, and endings of files; usual ones are more frequent.
INSIDE = [*[""] * 12, "more/", ".git/", ".git/more/"]
ENDINGS = [*[".txt"] * 6, ".TXT", ".TXT", ".Txt", ".txt.bak", ".md", ""]
NAMES = [f"{number}{ending}" for number in range(5) for ending in ENDINGS] + HIDDEN
FILES = ["".join(parts) for parts in itertools.product(CLASSES, ["/"], INSIDE, NAMES)]
FILES += HIDDEN * 100
CONTENT = st.sampled_from(
    [*(text.encode() for text in [*TEXTS, "", "  ", "caf\u00e9 \u2028 end"] * 2), b"caf\xe9"]
)
LINES = st.lists(
    st.sampled_from(["rain and snow", "", " ", "a ball, a goal", "\t"]), min_size=1, max_size=9
)
# The arguments of `check_lines` after the first.
AS_LINES = st.tuples(
    LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from(ENGINES)
)
NONE = st.none()


@fuzz(
    400,
    st.dictionaries(st.sampled_from(FILES), CONTENT, min_size=1),
    st.lists(st.sampled_from(CLASSES), max_size=1),
    st.sampled_from([NONE, NONE, NONE, AS_LINES]).flatmap(lambda strategy: strategy),
)
def test_folder_fuzz(space, files, more_classes, lines):
    """Class folders are read as by an independent look, or refused; lines keep their places."""
    if lines:
        check_lines(space, *lines)
        return

    folder = space.new_path("folder")
    for name in more_classes:
        (folder / name).mkdir(parents=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    rows, is_refused = look(folder)
    ended = fork_call(partial(print_rows, folder)).end()
    assert ended.code in {0, 3}, f"exit {ended.code}: {ended.err[-500:]}"
    if ended.code == 3:
        assert str(folder) in ended.err, ended.err
        assert is_refused or not rows, ended.err
    else:
        assert not is_refused, "accepted, and something left out"
        assert sorted(json.loads(ended.out)) == sorted(map(list, rows))


def look(folder):
    """The texts of class folders with their classes, and whether they cannot all be read."""
    rows = []
    is_refused = False
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue

        paths = []
        for path in entry.rglob("*"):
            is_hidden = "/." in str(path.relative_to(folder))
            if path.is_file() and path.suffix.lower() == ".txt" and not is_hidden:
                paths.append(path)

        # An entry without texts, or with a text in a folder of it, is no class.
        if not paths or any(path.parent != entry for path in paths):
            is_refused = True
        for path in paths:
            try:
                rows.append((path.read_bytes().decode("utf-8-sig"), entry.name))
            except UnicodeDecodeError:
                is_refused = True
    return rows, is_refused


def check_lines(space, lines, end, has_last_end, engine):
    """A file of lines, its folder and a pattern: a prediction for each line, blank or not."""
    folder = space.new_path("lines")
    folder.mkdir()
    file = folder / "a.txt"
    content = end.join(lines)
    if has_last_end:
        content += end
    file.write_text(content, newline="")

    run = space.reference("default")
    found = set()
    for source in (file, folder, folder / "*.txt"):
        ended = space.predict(run, engine, "--format", "jsonl", "--input", source).check()
        found.add(ended.out)
    assert len(found) == 1, "other predictions for the file, its folder and a pattern"
    assert len(found.pop().splitlines()) == len(file.read_bytes().splitlines())


def fields(model, prefix=""):
    """The dotted names of all settings."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields(field.annotation, f"{name}.")
        else:
            yield prefix + name


ODD_VALUES = [
    "auto",
    "none",
    "1e-3",
    "no",
    "12:30:45",
    "0x10",
    "NaN",
    -1,
    0,
    1,
    2,
    3,
    1e-3,
    1e400,
    10**400,
]
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(ODD_VALUES),
    lambda values: (
        st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3)
    ),
    max_leaves=4,
)
YAML_PIECE = st.sampled_from(
    [b"\0", b"\xff", b":", b"\t", b"- ", b"{", b"]", b"'", b"#", b"\n ", b"&a", b"!"]
)
YAML_CHANGES = st.lists(
    st.tuples(st.integers(0, 10**6), YAML_PIECE | st.integers(-6, -1)), min_size=1, max_size=4
)


@fuzz(2000, st.sampled_from([*fields(Config)]), VALUE, NONE | YAML_CHANGES, st.integers(0, 24))
def test_config_fuzz(space, field, value, changes, number):
    """A config with a value or pieces of text changed: read unchanged, or refused by field."""
    path = space.scratch / "config.yaml"
    if changes:
        path.write_bytes(changed(space.config(variant_of(number)).read_bytes(), changes))
    else:
        values = {"name": "fuzz", "data": {"train": str(space.folder / "missing.csv")}}
        section, _, key = field.rpartition(".")
        place = values.setdefault(section, {}) if section else values
        place[key] = value
        path.write_text(yaml.safe_dump(values, allow_unicode=True))

    try:
        config = load_config(path)
    except ConfigError as error:
        message = str(error)
        assert str(path) in message, f"{message} does not name the file"
        if not changes and isinstance(value, str | list | dict):
            assert field in message or ":" in message, f"{message} does not name the field"
        assert all(line.isprintable() for line in message.splitlines()), repr(message)
    else:
        again = space.scratch / "again.yaml"
        again.write_text(config.to_yaml())
        assert load_config(again) == config, "it changes when it is written and read"

    if number == 24 and not changes:
        ended = space.fork(["train", "--config", path, "--run-dir", space.new_path("run")]).end()
        assert ended.code in {2, 3}, f"exit {ended.code}: {ended.err}"
        assert "Traceback" not in ended.err


MARKS = st.sampled_from(["", *"[{@!%&*|>?#-'\""])


@fuzz(
    1000,
    MARKS,
    st.sampled_from(["a", " a"]),
    st.sampled_from(["", " #", ": ", ", "]),
    st.text(),
    MARKS,
)
def test_set_fuzz(begin, start, middle, more, end):
    """A path of `--set` is read unchanged, whatever it is in YAML; quotes may be taken off."""
    text = f"{begin}{start}{middle}{more}{end}".strip()
    try:
        found = load_config(None, [f"data.train={text}"]).data.train
    except ConfigError:
        assert begin in {"'", '"'} or not text.isprintable(), f"{text!r} is refused"
    else:
        assert found == text or begin in {"'", '"'}, f"{text!r} is read as {found!r}"


ODD_TEXTS = [
    "",
    " ",
    "\0",
    "\t\r\v\f",
    "\ufeff",
    "\u200b" * 50,
    "\x85\u2028",
    "\x7f\x9b31m",
    "\x1b[31mred\x1b[0m",
    "\u202eright to left",
    "\ud800",
    "\udfff\ud800",
    "[PAD] [CLS] [UNK] [MASK]",
    '"}{',
    "\\u0000",
    "</script>",
    "é" * 1000,
    "e\u0301",
    "😀👩‍👩‍👧",
    "a" * 100_000,
    "ﷺ" * 99,
    "İ",
    "ß",
    "漢字かなไทย",
]
PREDICTED_AT_ONCE = 100


@tries(50)
def test_predict_fuzz(space, draw, number):
    """A hundred texts through predict: probabilities, JSON that parses, text that is printable."""
    run = space.reference("default")
    engine = engine_of(number)
    texts = [odd_text(draw) for _ in range(PREDICTED_AT_ONCE)]
    path = space.new_path("texts").with_suffix(".jsonl")
    with path.open("w") as file:
        for text in texts:
            file.write(json.dumps({"text": text, "id": text[:20]}) + "\n")

    as_json = ["--format", "jsonl", "--top-k", "99"]
    found = predictions(space.predict(run, engine, *as_json, "--input", path))
    for text, prediction in zip(texts, found, strict=True):
        # JSON joins half surrogates.
        assert prediction["id"] == json.loads(json.dumps(text[:20])), "another order"
        assert "reason" not in prediction or not any(map(str.isalnum, text)), text

    as_text = ["--format", "text", "--top-k", "99"]
    ended = space.predict(run, engine, *as_text, "--input", path).check()
    check_printable(ended.out)
    assert len(ended.out.splitlines()) == len(texts)

    if number % 5 == 0:
        # Bytes that are no UTF-8, as an argument and on standard input.
        values = [*range(1, 256), 0xFF, 0xC3, 0xED]
        content = bytes(draw.choices(values, k=draw.randint(1, 60)))
        ask = predict(run, engine, *as_json)
        assert len(predictions(space.start([*ask, "--", content]).end())) == 1
        ended = space.fork([*ask, "--input", "-"], stdin=content).end()
        assert len(predictions(ended)) == len(content.removesuffix(b"\n").split(b"\n"))

    if number % 25 == 0:
        piece = draw.choice(["a", "a ", "漢", "\u0301", "x"])
        huge = (piece * (10_000_000 // len(piece)) + "\nrain").encode()
        ended = space.predict(run, engine, *as_json, "--input", "-", stdin=huge)
        assert predictions(ended)[0]["truncated"]


def odd_text(draw):
    """A text with odd pieces between characters of any kind, or one of the odd texts."""
    if draw.random() < 0.3:
        return draw.choice(ODD_TEXTS)

    pieces = []
    for _ in range(draw.randint(0, 60)):
        if draw.random() < 0.1:
            pieces.append(draw.choice(ODD_TEXTS))
        else:
            most = draw.choice([128, 0x3000, 0x110000])
            pieces.append(chr(draw.randrange(most)))
    return "".join(pieces)


def predictions(ended):
    """The predictions in JSON Lines, which must be valid."""
    check_printable(ended.check().out)
    found = [json.loads(line) for line in ended.out.splitlines()]
    for prediction in found:
        if prediction.get("reason") == "blank":
            assert prediction["label"] is None, prediction
            assert prediction["probability"] is None, prediction
            assert prediction["top"] == [], prediction
            continue

        probabilities = [entry["probability"] for entry in prediction["top"]]
        assert all(math.isfinite(p) and 0 <= p <= 1 for p in probabilities), prediction
        assert math.isclose(sum(probabilities), 1, rel_tol=1e-6), prediction
        assert prediction["probability"] == max(probabilities)
    return found


def check_printable(out):
    """Fail if something steers a terminal; joiners are a part of some writings."""
    for character in set(out.decode()) - set("\n\t\u200c\u200d"):
        category = unicodedata.category(character)
        is_control = category in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        assert not is_control, f"a raw control character {character!a}"
