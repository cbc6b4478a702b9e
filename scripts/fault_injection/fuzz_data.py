"""Cases about data files that nobody foresaw: what is read is compared with an independent strict parser."""

from __future__ import annotations

import functools
import io
import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from cases import Case
from processes import fork_call
from samples import Workspace

from encoder_cls.data.readers import read_rows
from encoder_cls.errors import DataError

Table = list[tuple[Any, ...]]  # texts and labels

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


CASES = {
    "csv-fuzz": Case("CSV: the rows of a strict parser, or exit 3 with file:line", 1000, fuzz_csv),
    "jsonl-fuzz": Case("JSON Lines: the same", 1000, fuzz_jsonl),
    "parquet-fuzz": Case("Parquet: the same, and no crash", 1000, fuzz_parquet),
}
