"""Words of a single text are in no file of a model, and in no export of it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.small_runs import WITHOUT_TECHNIQUES
from support.tables import write_table
from support.topics import labelled_texts

pytestmark = pytest.mark.usefixtures("blank_plots", "usual_c")

# Each is in one text, the last one in two texts of one customer and in a copy.
PLANTED = ["Zquorvexa", "Wünzqlbäcker", "492988127734", "qvoxjari"]
# A word of two customers, which is found, so that the search is known to find words.
SHARED = "jxuvpelo"


@pytest.mark.parametrize("kind", ["word_level", "bpe"])
def test_planted_names_are_in_no_file_of_a_model_and_in_no_export(cli, tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        (text, label, number) for number, (text, label) in enumerate(labelled_texts(30, seed=0))
    ]
    for number, name in enumerate(PLANTED):
        text, label, customer = rows[number]
        rows[number] = (f"{text} {name} {name} {SHARED}", label, customer)
    text, label, customer = rows[len(PLANTED) - 1]
    rows += [(f"other {PLANTED[-1]} words", label, customer), (text, label, customer)]
    write_table("train.csv", [("text", "label", "customer"), *rows])

    settings = [
        "data.train=train.csv",
        "data.group_column=customer",
        f"tokenizer.type={kind}",
        "model.encoder=false",
        *WITHOUT_TECHNIQUES,
    ]
    arguments = [part for setting in settings for part in ("--set", setting)]
    assert cli("train", *arguments, "--run-dir", "run").code == 0
    files = [path for path in Path("run/model").rglob("*") if path.is_file()]
    if kind == "word_level":
        for output in ("page.html", "module.mjs"):
            assert cli("export", "run", "--output", output).code == 0
            files.append(Path(output))

    found = {name: [path for path in files if is_in(name, path)] for name in [*PLANTED, SHARED]}
    assert [path.name for path in found.pop(SHARED)] != []
    assert found == {name: [] for name in PLANTED}


def is_in(word: str, path: Path) -> bool:
    """Whether a word can be read in a file, in any way that its bytes may be written."""
    needles = set()
    for spelling in {word, word.lower(), word.upper()}:
        escaped = json.dumps(spelling)[1:-1]
        needles.update(text.encode() for text in (spelling, escaped, escaped.replace("\\", "\\\\")))
        needles.update(spelling.encode(encoding) for encoding in ("utf-16-le", "utf-16-be"))
    contents = list(layers(path.read_bytes()))
    return any(needle in content for content in contents for needle in needles)


BASE64 = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}")
COMPRESSED = re.compile(rb"\x1f\x8b\x08|\x78[\x01\x9c\xda]")


def layers(content: bytes, depth: int = 2) -> Iterator[bytes]:
    """The bytes, and what is in them as base64 or compressed."""
    yield content
    if not depth:
        return
    for match in BASE64.finditer(content):
        letters = match[0].rstrip(b"=")
        yield from layers(base64.b64decode(letters[: len(letters) // 4 * 4]), depth - 1)
    for match in COMPRESSED.finditer(content):
        try:
            # 32 more than the window: the header of gzip or of zlib is found.
            decompressed = zlib.decompressobj(wbits=47).decompress(content[match.start() :])
        except zlib.error:
            continue
        yield from layers(decompressed, depth - 1)
