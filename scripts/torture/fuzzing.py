"""Rows about input that nobody foresaw: configs, data and texts made by chance."""

from __future__ import annotations

import functools
import io
import json
import math
import random
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from processes import Arguments, Ended, fork, fork_call, start
from pydantic import BaseModel
from rows import Row
from samples import VARIANTS, Workspace

from encoder_cls.config import Config, load_config
from encoder_cls.data.readers import read_rows
from encoder_cls.errors import ConfigError, DataError

Table = list[tuple[Any, ...]]  # texts and labels

# ---------------------------------------------------------------- configs

ANY_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["auto", "none", "1e-3", "no", "12:30:45", "0x10", "NaN", -1, 0, 1, 2, 3, 1e-3, 1e400, 10**400]),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=4,
)
YAML_TRAPS: dict[str, Callable[[Config], bool] | None] = {
    "train: {learning_rate: 1e-3}": lambda config: config.train.learning_rate == 0.001,
    "train: {learning_rate: .5}": lambda config: config.train.learning_rate == 0.5,
    "data: {train: x.csv, label_names: [no, yes, on, off, y, n]}": (
        lambda config: config.data.label_names == ("no", "yes", "on", "off", "y", "n")
    ),
    "data: {train: x.csv, label_column: no}": lambda config: config.data.label_column == "no",
    "name: 12:30:45": None,
    "train: {class_weights: {12:30: 2.0}}": lambda config: config.train.class_weights == {"12:30": 2.0},
    "train: {epochs: 3, epochs: 4}": None,
    "train: {epochs: 010}": lambda config: config.train.epochs == 10,
    "train: {epochs: 1_000}": lambda config: config.train.epochs == 1000,
    "train: {epochs: 0x10}": None,
    "train: {epochs: yes}": None,
    "seed: 3.0": lambda config: config.seed == 3,
    "seed: 3.5": None,
    "train:\n\tepochs: 3": None,
    "train: &a {epochs: 3}\nmodel: *a": None,
    "train: !!python/object/apply:os.system [true]": None,
    "? [a, b]\n: c": None,
    "train: {patience: ~}": lambda config: config.train.patience is None,
    "train:": lambda config: config.train == Config.model_fields["train"].default,
    "{" * 5000: None,
    "\ufeffseed: 4": lambda config: config.seed == 4,
    "seed: 1\x00": None,
    "seed: .nan": None,
    "train: {learning_rate: .inf}": None,
    "data: {train: x.csv, trian: y.csv}": None,
}


def fuzz_config(space: Workspace, draw: random.Random, number: int) -> None:
    """A config with one value, key or piece of text changed: it is read as it stands, or refused by field."""
    if number < len(YAML_TRAPS):
        _try_trap(space, *list(YAML_TRAPS.items())[number])
    elif number % 4 == 0:
        _fuzz_yaml(space, draw)
    else:
        _fuzz_value(space, draw, through_command=number % 25 == 1)


def _try_trap(space: Workspace, text: str, holds: Callable[[Config], bool] | None) -> None:
    path = space.new_path("trap").with_suffix(".yaml")
    path.write_text(text if "data:" in text else f"{text}\ndata: {{train: x.csv}}\n")
    try:
        config = load_config(path)
    except ConfigError as error:
        assert holds is None, f"{text!r} is refused: {error}"
        assert str(path) in str(error)
    else:
        assert holds, f"{text!r} is accepted as {config.model_dump()}"
        assert holds(config), f"{text!r} is read as {config.model_dump()}"


def _fuzz_value(space: Workspace, draw: random.Random, *, through_command: bool) -> None:
    field = draw.choice(sorted(_fields(Config)))
    value = _example(ANY_VALUE, draw)
    path = space.new_path("config").with_suffix(".yaml")
    values: dict[str, Any] = {"name": "fuzz", "data": {"train": str(space.folder / "missing.csv")}}
    section, _, key = field.rpartition(".")
    if section:
        values.setdefault(section, {})[key] = value
    else:
        values[key] = value
    try:
        path.write_text(yaml.safe_dump(values, allow_unicode=True))
    except UnicodeEncodeError:
        return  # half a surrogate pair cannot be in a file
    try:
        config = load_config(path)
    except ConfigError as error:
        assert str(path) in str(error), f"{error} does not name the file"
        named = field in str(error) or not _is_plain(value) or ":" in str(error)
        assert named, f"{field} = {value!r}: {error} does not name the field"
        assert all(line.isprintable() for line in str(error).splitlines()), repr(str(error))
    else:
        again = space.new_path("again").with_suffix(".yaml")
        again.write_text(config.to_yaml())
        assert load_config(again) == config, f"{field} = {value!r} changes when it is written and read"
    if through_command:
        ended = fork(["train", "--config", path, "--run-dir", space.new_path("run")], cwd=space.folder).end()
        assert ended.code in {2, 3}, f"{field} = {value!r}: exit {ended.code}: {ended.err}"
        assert "Traceback" not in ended.err


def _fuzz_yaml(space: Workspace, draw: random.Random) -> None:
    content = bytearray(space.config(draw.choice(list(VARIANTS))).read_bytes())
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(content) + 1)
        if draw.random() < 0.5:
            content[place : place + draw.randint(0, 6)] = b""
        else:
            content[place:place] = draw.choice(
                [b"\0", b"\xff", b":", b"\t", b"- ", b"{", b"]", b"'", b"#", b"\n ", b"&a", b"!"]
            )
    path = space.new_path("config").with_suffix(".yaml")
    path.write_bytes(content)
    try:
        load_config(path)
    except ConfigError as error:
        assert str(path) in str(error), f"{error} does not name the file"


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, f"{name}.")
        else:
            yield prefix + name


def _is_plain(value: Any) -> bool:
    return not isinstance(value, str | list | dict)


def _example(strategy: st.SearchStrategy[Any], draw: random.Random) -> Any:
    """One value that Hypothesis would try."""
    found: list[Any] = []

    @seed(draw.getrandbits(32))
    @settings(max_examples=8, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return draw.choice(found)


# ---------------------------------------------------------------- data

BAD_PIECES = [
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
]
BAD_PIECES += [b"\\", b"\\ud800", b"null", b"NaN", b"1e999", b"NA", b"007", "\u2028\u202e\x85\x1b[31m".encode()]


MARK, LONG = b"\x7f", b"\x7f" * 50_000_000


def fuzz_csv(space: Workspace, draw: random.Random, _number: int) -> None:
    """CSV with one to three pieces changed: the rows of an independent strict parser, or exit 3 with file:line."""
    _fuzz_file(space, draw, ".csv", _some_csv(draw), _parse_csv)


def fuzz_jsonl(space: Workspace, draw: random.Random, _number: int) -> None:
    """The same for JSON Lines."""
    rows = [
        json.dumps({"text": text, "label": label}, ensure_ascii=draw.random() < 0.5) for text, label in _some_rows(draw)
    ]
    _fuzz_file(space, draw, ".jsonl", "\n".join(rows).encode() + b"\n", _parse_jsonl)


def fuzz_parquet(space: Workspace, draw: random.Random, number: int) -> None:
    """The same for Parquet; a crash of the reader itself is looked for, too."""
    texts, labels = zip(*_some_rows(draw), strict=True)
    columns: dict[str, Any] = {"text": list(texts), "label": list(labels)}
    kind = number % 8
    if kind == 1:
        columns["text"][draw.randrange(len(texts))] = None
    elif kind == 2:
        columns["label"][draw.randrange(len(texts))] = None
    elif kind == 3:
        columns["label"] = [draw.choice([0.5, 1.0]) for _ in texts]
    elif kind == 4:
        columns[draw.choice(["text", "label"])] = [[text] for text in texts]
    elif kind == 5:
        del columns[draw.choice(["text", "label"])]
    elif kind == 6:
        columns["text"] = [text.encode() for text in texts]
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression=draw.choice(["none", "snappy", "zstd"]))
    content = buffer.getvalue()
    if kind in {0, 7}:
        _fuzz_file(space, draw, ".parquet", content, _parse_parquet)
    else:
        _check_file(space, ".parquet", content, _parse_parquet)


def _some_rows(draw: random.Random) -> Table:
    texts = [
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
        "x" * 50,
    ]
    return [(draw.choice(texts), draw.choice(["a", "b", "007", "NA"])) for _ in range(draw.randint(1, 12))]


def _some_csv(draw: random.Random) -> bytes:
    def field(value: str) -> str:
        quoted = any(mark in value for mark in '",\n\r') or draw.random() < 0.3
        return '"' + value.replace('"', '""') + '"' if quoted else value

    end = draw.choice(["\n", "\r\n"])
    rows = [f"{field(text)},{field(label)}" for text, label in _some_rows(draw)]
    mark = "\ufeff" if draw.random() < 0.2 else ""
    return (mark + end.join(["text,label", *rows]) + (end if draw.random() < 0.8 else "")).encode()


def _fuzz_file(
    space: Workspace, draw: random.Random, suffix: str, content: bytes, parse: Callable[[bytes], Table | None]
) -> None:
    changed = bytearray(content)
    kind = draw.random()
    if kind < 0.04:
        changed = bytearray(content.decode("utf-8", "replace").encode(draw.choice(["latin-1", "utf-16"]), "replace"))
    elif kind < 0.06:
        changed[len(changed) // 2 : len(changed) // 2] = LONG
    elif kind < 0.08:
        changed = changed[: draw.randrange(len(changed))]
    else:
        for _ in range(draw.randint(0, 3)):
            place = draw.randrange(len(changed) + 1)
            action = draw.random()
            if action < 0.4:
                changed[place:place] = draw.choice(BAD_PIECES)
            elif action < 0.7:
                changed[place : place + draw.randint(1, 9)] = b""
            elif place < len(changed):
                changed[place] ^= 1 << draw.randrange(8)
    _check_file(space, suffix, bytes(changed), parse)


def _check_file(space: Workspace, suffix: str, content: bytes, parse: Callable[[bytes], Table | None]) -> None:
    path = space.folder / f"fuzz{suffix}"
    path.write_bytes(content)
    ended = fork_call(functools.partial(read_and_tell, path)).end()
    assert ended.code in {0, 3}, f"exit {ended.code} on {content[:300]!r}: {ended.err[-500:]}"
    # The independent parsers are slow: they get one mark in place of the long piece, and the rows get it back.
    expected = parse(content.replace(LONG, MARK))
    if expected is not None and LONG in content:
        expected = [tuple(cell.replace(MARK.decode(), LONG.decode()) for cell in row) for row in expected]
    if ended.code == 3:
        assert ended.message.startswith(f"{path}:"), ended.message
        assert ended.message.isprintable(), repr(ended.message)
        if expected is not None:
            assert _is_refused_for_a_reason(expected, ended.message), f"{ended.message!r} on {content[:300]!r}"
        return
    found = [tuple(row) for row in json.loads(ended.out)]
    assert expected is not None, f"accepted as {found[:3]}: {content[:300]!r}"
    assert found == expected, f"{found[:5]} in place of {expected[:5]}: {content[:300]!r}"


def _is_refused_for_a_reason(expected: Table, message: str) -> bool:
    """Whether a file that another parser reads is refused for what this one does not allow."""
    return (
        any(
            reason in message
            for reason in (
                "is empty",
                "no column",
                "two columns",
                "holds",
                "not UTF-8",
                "occurs twice",
                "not a readable Parquet",
                "carriage return",
            )
        )
        or not expected
    )


def read_and_tell(path: Path) -> None:
    """Print the rows of a source as JSON, or what is wrong with it on standard error, and end with its code."""
    import sys

    try:
        rows = [
            (row.text, row.label)
            for row in read_rows(str(path), role="train", text_columns=["text"], label_column="label")
        ]
    except DataError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    print(json.dumps(rows))


def _parse_csv(content: bytes) -> Table | None:  # noqa: PLR0912 - a state machine
    """RFC 4180, character by character; none if the file breaks it or has other columns."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    records: list[list[str]] = [[""]]
    quoted = closed = False
    place = 0
    while place < len(text):
        character = text[place]
        place += 1
        if quoted:
            if character != '"':
                records[-1][-1] += character
            elif text[place : place + 1] == '"':
                records[-1][-1] += '"'
                place += 1
            else:
                quoted, closed = False, True
        elif character == ",":
            records[-1].append("")
            closed = False
        elif character in "\r\n":
            place += text[place - 1 : place + 1] == "\r\n"
            records.append([""])
            closed = False
        elif closed:
            return None
        elif character == '"' and records[-1][-1] == "":
            quoted = True
        else:
            records[-1][-1] += character
    if quoted:
        return None
    header, *rows = records
    rows = [row for row in rows if row != [""]]
    if header.count("text") != 1 or header.count("label") != 1 or any(len(row) != len(header) for row in rows):
        return None
    return [(row[header.index("text")], row[header.index("label")]) for row in rows]


def _parse_jsonl(content: bytes) -> Table | None:
    try:
        lines = content.decode("utf-8-sig").split("\n")
        records = [json.JSONDecoder(parse_constant=_refuse).decode(line) for line in lines if line.strip()]
        rows = [(record["text"], record["label"]) for record in records]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return rows if all(isinstance(text, str) for text, _ in rows) else None


def _refuse(name: str) -> float:
    return math.nan if name else 0.0


def _parse_parquet(content: bytes) -> Table | None:
    try:
        table = pq.ParquetFile(pa.BufferReader(content)).read()
        rows = [(record["text"], record["label"]) for record in table.to_pylist()]
    except (pa.ArrowException, KeyError, ValueError, OSError):
        return None
    return rows if all(isinstance(text, str) for text, _ in rows) else None


# ---------------------------------------------------------------- texts to predict

ODD_TEXTS = [
    *("", " ", "\0", "\t\r\v\f", "\ufeff", "\u200b" * 50, "\x85\u2028", "\x7f\x9b31m", "\x1b[31mred\x1b[0m"),
    *("\u202eright to left", "\ud800", "\udfff\ud800", "[PAD] [CLS] [UNK] [MASK]", '"}{', "\\u0000", "</script>"),
    *("é" * 1000, "e\u0301", "😀👩‍👩‍👧", "a" * 100_000, "ﷺ" * 99, "İ", "ß", "漢字かなไทย"),
]
PREDICTED_AT_ONCE = 100


def fuzz_predict(space: Workspace, draw: random.Random, number: int) -> None:
    """A hundred texts through predict: probabilities, JSON that parses, nothing that steers a terminal."""
    run = space.reference("default")
    texts = [_odd_text(draw) for _ in range(PREDICTED_AT_ONCE)]
    path = space.folder / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text, "id": text[:20]}) + "\n" for text in texts))
    arguments: Arguments = ["predict", "--model", run, "--input", path, "--top-k", "99", "--device", "cpu"]
    ended = fork([*arguments, "--format", "jsonl"], cwd=space.folder).end()
    answers = _answers(ended)
    assert len(answers) == len(texts), f"{len(answers)} answers"
    for text, answer in zip(texts, answers, strict=True):
        assert answer["id"] == json.loads(json.dumps(text[:20])), "another order"  # JSON joins half surrogates
    for output_format in ("text", "tsv"):
        ended = fork([*arguments, "--format", output_format], cwd=space.folder).end()
        assert ended.code == 0, ended.err
        _check_printable(ended.out)
        assert len(ended.out.splitlines()) == len(texts) + (output_format == "tsv")
    if number % 5 == 0:
        _predict_raw_bytes(space, draw, run)
    if number % 25 == 0:
        huge = fork_call(functools.partial(_predict_huge, run, draw.choice(["a", "a ", "漢", "\u0301", "x\n"]))).end()
        assert huge.code == 0, huge.err


def _predict_raw_bytes(space: Workspace, draw: random.Random, run: Path) -> None:
    """Bytes that are no UTF-8, as an argument and on standard input."""
    content = bytes(draw.choice([*range(1, 256), 0xFF, 0xC3, 0xED]) for _ in range(draw.randint(1, 60)))
    model: Arguments = ["predict", "--model", run, "--format", "jsonl", "--top-k", "99", "--device", "cpu"]
    ended = start([*model, "--", content], cwd=space.folder).end()
    assert len(_answers(ended)) == 1
    ended = fork([*model, "--input", "-"], cwd=space.folder, stdin=content).end()
    assert len(_answers(ended)) == len(content.removesuffix(b"\n").split(b"\n"))


def _predict_huge(run: Path, piece: str) -> None:
    from encoder_cls.inference.serialization import load_classifier

    prediction = load_classifier(run, device="cpu").predict([piece * (10_000_000 // len(piece)), "rain"])[0]
    assert math.isclose(sum(prediction.probabilities.values()), 1, rel_tol=1e-6)
    assert prediction.truncated


def _odd_text(draw: random.Random) -> str:
    if draw.random() < 0.3:
        return draw.choice(ODD_TEXTS)
    pieces = [
        draw.choice(ODD_TEXTS) if draw.random() < 0.1 else chr(draw.randrange(draw.choice([128, 0x3000, 0x110000])))
        for _ in range(draw.randint(0, 60))
    ]
    return "".join(pieces)


def _answers(ended: Ended) -> list[dict[str, Any]]:
    assert ended.code == 0, ended.err
    _check_printable(ended.out)
    answers = [json.loads(line) for line in ended.out.splitlines()]
    for answer in answers:
        probabilities = [entry["probability"] for entry in answer["top"]]
        assert all(math.isfinite(p) and 0 <= p <= 1 for p in probabilities), answer
        assert math.isclose(sum(probabilities), 1, rel_tol=1e-6), answer
        assert answer["probability"] == max(probabilities)
    return answers


def _check_printable(out: bytes) -> None:
    text = out.decode()
    bad = {c for c in text if c not in "\n\t" and unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert not bad, f"raw control characters {sorted(map(ascii, bad))}"


ROWS = {
    "config-fuzz": Row("a config is read as it stands, or refused by file and field", 2000, fuzz_config),
    "csv-fuzz": Row("CSV: the rows of a strict parser, or exit 3 with file:line", 1000, fuzz_csv),
    "jsonl-fuzz": Row("JSON Lines: the same", 1000, fuzz_jsonl),
    "parquet-fuzz": Row("Parquet: the same, and no crash", 1000, fuzz_parquet),
    "predict-fuzz": Row("any text gets probabilities and clean output (100 texts a try)", 50, fuzz_predict),
}
