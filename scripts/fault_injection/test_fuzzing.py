"""Unforeseen data, configs and texts: read as an independent strict parser reads them, or refused."""

import io
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
from encoder_cls.data.reading.options import Reading
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
MARK, LONG = b"\x7f", b"\x7f" * 50_000_000  # the first is replaced by the second in the file
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
]
PIECES += [
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
# Where something is changed, and how: bytes that come in, how many are removed, or which bit is another.
CHANGE = st.sampled_from(PIECES) | st.integers(-9, -1) | st.integers(0, 7)
CHANGES = st.lists(st.tuples(st.integers(0, 10**6), CHANGE), max_size=3)
ENCODING = st.sampled_from(["utf-8"] * 30 + ["latin-1", "utf-16"])
REASONS = "is empty|no column|two columns|holds|not UTF-8|occurs twice|not a readable Parquet|carriage return"
FIELD, SEPARATOR = (
    re.compile(r'"((?:[^"]|"")*)"|([^",\r\n][^,\r\n]*)?'),
    re.compile(r",|\r\n|\r|\n"),
)


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
    """CSV with some pieces changed: the rows of an independent strict parser, or exit 3 with file:line."""

    def field(value):
        return (
            '"' + value.replace('"', '""') + '"'
            if is_quoted or re.search('[",\n]', value)
            else value
        )

    content = mark + end.join(
        ["text,label", *(f"{field(text)},{field(label)}" for text, label in rows), ""]
    )
    check_file(space, ".csv", changed(content.encode(encoding, "replace"), changes), parse_csv)


@fuzz(1000, ROWS, st.booleans(), ENCODING, CHANGES)
def test_jsonl_fuzz(space, rows, is_ascii, encoding, changes):
    """The same for JSON Lines."""
    lines = [
        json.dumps({"text": text, "label": label}, ensure_ascii=is_ascii) + "\n"
        for text, label in rows
    ]
    check_file(
        space, ".jsonl", changed("".join(lines).encode(encoding, "replace"), changes), parse_jsonl
    )


ODD_COLUMNS = [
    lambda it: it["text"].__setitem__(-1, None),
    lambda it: it["label"].__setitem__(-1, None),
    lambda it: it.update(label=[0.5 for _ in it["text"]]),
    lambda it: it.update(text=[[text] for text in it["text"]]),
    lambda it: it.update(label=[[label] for label in it["label"]]),
    lambda it: it.pop("text"),
    lambda it: it.pop("label"),
    lambda it: it.update(text=[text.encode() for text in it["text"]]),
]


@fuzz(
    1000,
    ROWS,
    st.none() | st.sampled_from(ODD_COLUMNS),
    st.sampled_from(["none", "snappy", "zstd"]),
    CHANGES,
)
def test_parquet_fuzz(space, rows, change_columns, compression, changes):
    """The same for Parquet; a crash of the reader itself is looked for, too."""
    columns = dict(zip(("text", "label"), map(list, zip(*rows, strict=True)), strict=True))
    if change_columns:
        change_columns(columns)
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression=compression)
    content = buffer.getvalue()
    check_file(
        space, ".parquet", content if change_columns else changed(content, changes), parse_parquet
    )


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
    found = json.loads(ended.out.replace(LONG, MARK) if is_long else ended.out)
    assert found == [list(row) for row in expected]


def print_rows(path):
    """Print the rows of a source as JSON, or its error on standard error, and exit with the error's code."""
    try:
        rows = read_rows(str(path), Columns(["text"], "label"), Reading())
        print(json.dumps([(row.text, row.label) for row in rows], ensure_ascii=True))
    except DataError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def parse_csv(content):
    """RFC 4180 with strings alone; none if the file breaks it or has other columns."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    records, place = [[]], 0
    while True:
        field = FIELD.match(text, place)
        records[-1].append(field[2] or "" if field[1] is None else field[1].replace('""', '"'))
        place = field.end()
        if place == len(text):
            break
        separator = SEPARATOR.match(text, place)
        if not separator:
            return None
        if separator[0] != ",":
            records.append([])
        place = separator.end()
    header, *rows = records
    rows = [row for row in rows if row != [""]]
    if (
        header.count("text") != 1
        or header.count("label") != 1
        or any(len(row) != len(header) for row in rows)
    ):
        return None
    return [(row[header.index("text")], row[header.index("label")]) for row in rows]


def parse_jsonl(content):
    decoder = json.JSONDecoder(parse_constant=lambda _: math.nan)
    try:
        records = [
            decoder.decode(line) for line in content.decode("utf-8-sig").split("\n") if line.strip()
        ]
        rows = [(record["text"], record["label"]) for record in records]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return rows if all(isinstance(text, str) for text, _ in rows) else None


def parse_parquet(content):
    try:
        rows = pq.ParquetFile(pa.BufferReader(content)).read().to_pylist()
        rows = [(record["text"], record["label"]) for record in rows]
    except (pa.ArrowException, KeyError, ValueError, OSError):
        return None
    return rows if all(isinstance(text, str) for text, _ in rows) else None


CLASSES, HIDDEN = (
    ["good", "bad", "UGLY", "007", "no", "caf\u00e9"],
    [".DS_Store", "._1.txt", ".hidden.TXT"],
)
INSIDE = [*[""] * 12, "more/", ".git/", ".git/more/"]
ENDINGS = [*[".txt"] * 6, ".TXT", ".TXT", ".Txt", ".txt.bak", ".md", ""]
NAMES = [f"{number}{ending}" for number in range(5) for ending in ENDINGS] + HIDDEN
FILES = [
    f"{label}/{inside}{name}" for label in CLASSES for inside in INSIDE for name in NAMES
] + HIDDEN * 100
CONTENT = st.sampled_from(
    [*(text.encode() for text in [*TEXTS, "", "  ", "caf\u00e9 \u2028 end"] * 2), b"caf\xe9"]
)
LINES = st.lists(
    st.sampled_from(["rain and snow", "", " ", "a ball, a goal", "\t"]), min_size=1, max_size=9
)
AS_LINES = st.tuples(
    LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from(ENGINES)
)
NONE = st.none()


@fuzz(
    400,
    st.dictionaries(st.sampled_from(FILES), CONTENT, min_size=1),
    st.lists(st.sampled_from(CLASSES), max_size=1),
    st.sampled_from([NONE, NONE, NONE, AS_LINES]).flatmap(lambda it: it),
)
def test_folder_fuzz(space, files, more_classes, lines):
    """Class folders are read as an independent look has them, or refused; lines keep their places."""
    if lines:
        return check_lines(space, *lines)
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
    return None


def look(folder):
    """The texts of class folders with their classes, and whether they cannot all be read."""
    rows, is_refused = [], False
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue
        paths = [
            path for path in entry.rglob("*") if path.is_file() and path.suffix.lower() == ".txt"
        ]
        paths = [path for path in paths if "/." not in str(path.relative_to(folder))]
        # In a folder of a class folder.
        is_refused |= not paths or any(path.parent != entry for path in paths)
        for path in paths:
            try:
                rows.append((path.read_bytes().decode("utf-8-sig"), entry.name))
            except UnicodeDecodeError:
                is_refused = True
    return rows, is_refused


def check_lines(space, lines, end, has_last_end, engine):
    """A file of lines, the same in a folder and by a pattern: as many answers as lines, in order, blank ones too."""
    folder = space.new_path("lines")
    folder.mkdir()
    (folder / "a.txt").write_text(end.join(lines) + end * has_last_end, newline="")
    sources, run = (folder / "a.txt", folder, folder / "*.txt"), space.reference("default")
    answers = {
        space.predict(run, engine, "--format", "jsonl", "--input", it).check().out for it in sources
    }
    assert len(answers) == 1, "other answers for the file, its folder and a pattern"
    assert len(answers.pop().splitlines()) == len((folder / "a.txt").read_bytes().splitlines())


def fields(model, prefix=""):
    """The dotted names of all settings."""
    for name, field in model.model_fields.items():
        is_section = isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        yield from fields(field.annotation, f"{name}.") if is_section else [prefix + name]


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
    """A config with one value or some pieces of text changed: it is read unchanged, or refused by field."""
    path, again = space.scratch / "config.yaml", space.scratch / "again.yaml"
    if changes:
        path.write_bytes(changed(space.config(variant_of(number)).read_bytes(), changes))
    else:
        section, _, key = field.rpartition(".")
        values = {"name": "fuzz", "data": {"train": str(space.folder / "missing.csv")}}
        (values.setdefault(section, {}) if section else values)[key] = value
        path.write_text(yaml.safe_dump(values, allow_unicode=True))
    try:
        config = load_config(path)
    except ConfigError as error:
        assert str(path) in str(error), f"{error} does not name the file"
        is_named = (
            changes
            or field in str(error)
            or not isinstance(value, str | list | dict)
            or ":" in str(error)
        )
        assert is_named, f"{error} does not name the field"
        assert all(line.isprintable() for line in str(error).splitlines()), repr(str(error))
    else:
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
    """A path given by `--set` is read unchanged, whatever it would be in YAML; quotes may be taken off."""
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
]
ODD_TEXTS += [
    "\u202eright to left",
    "\ud800",
    "\udfff\ud800",
    "[PAD] [CLS] [UNK] [MASK]",
    '"}{',
    "\\u0000",
]
ODD_TEXTS += [
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
    """A hundred texts through predict: probabilities, JSON that parses, and as text nothing that steers a terminal."""
    run, engine = space.reference("default"), engine_of(number)
    texts = [odd_text(draw) for _ in range(PREDICTED_AT_ONCE)]
    path = space.new_path("texts").with_suffix(".jsonl")
    path.write_text("".join(json.dumps({"text": text, "id": text[:20]}) + "\n" for text in texts))
    arguments = ["--input", path, "--top-k", "99", "--format"]
    for text, answer in zip(
        texts, answers(space.predict(run, engine, *arguments, "jsonl")), strict=True
    ):
        # JSON joins half surrogates.
        assert answer["id"] == json.loads(json.dumps(text[:20])), "another order"
        assert "reason" not in answer or not any(map(str.isalnum, text)), text
    ended = space.predict(run, engine, *arguments, "text").check()
    check_printable(ended.out)
    assert len(ended.out.splitlines()) == len(texts)
    if number % 5 == 0:  # bytes that are no UTF-8, as an argument and on standard input
        content = bytes(
            draw.choice([*range(1, 256), 0xFF, 0xC3, 0xED]) for _ in range(draw.randint(1, 60))
        )
        ask = predict(run, engine, "--format", "jsonl", "--top-k", "99")
        assert len(answers(space.start([*ask, "--", content]).end())) == 1
        ended = space.fork([*ask, "--input", "-"], stdin=content).end()
        assert len(answers(ended)) == len(content.removesuffix(b"\n").split(b"\n"))
    if number % 25 == 0:
        piece = draw.choice(["a", "a ", "漢", "\u0301", "x"])
        huge = (piece * (10_000_000 // len(piece)) + "\nrain").encode()
        ended = space.predict(
            run, engine, "--format", "jsonl", "--top-k", "99", "--input", "-", stdin=huge
        )
        assert answers(ended)[0]["truncated"]


def odd_text(draw):
    if draw.random() < 0.3:
        return draw.choice(ODD_TEXTS)
    odd = [
        draw.choice(ODD_TEXTS) if draw.random() < 0.1 else "" for _ in range(draw.randint(0, 60))
    ]
    return "".join(it or chr(draw.randrange(draw.choice([128, 0x3000, 0x110000]))) for it in odd)


def answers(ended):
    """The answers in JSON Lines, which must be good ones."""
    check_printable(ended.check().out)
    found = [json.loads(line) for line in ended.out.splitlines()]
    for answer in found:
        if answer.get("reason") == "blank":
            assert (answer["label"], answer["probability"], answer["top"]) == (None, None, []), (
                answer
            )
            continue
        probabilities = [entry["probability"] for entry in answer["top"]]
        assert all(math.isfinite(p) and 0 <= p <= 1 for p in probabilities), answer
        assert math.isclose(sum(probabilities), 1, rel_tol=1e-6), answer
        assert answer["probability"] == max(probabilities)
    return found


def check_printable(out):
    bad = {
        c
        for c in out.decode()
        if c not in "\n\t\u200c\u200d" and unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }
    assert not bad, f"raw control characters {sorted(map(ascii, bad))}"
