"""A case about texts that nobody foresaw: each is predicted, and the output is clean."""

from __future__ import annotations

import functools
import json
import math
import random
import unicodedata
from pathlib import Path
from typing import Any

from cases import Case
from processes import Ended, fork, fork_call, start
from samples import Workspace, engine_of, predict

ODD_TEXTS = [
    *("", " ", "\0", "\t\r\v\f", "\ufeff", "\u200b" * 50, "\x85\u2028", "\x7f\x9b31m", "\x1b[31mred\x1b[0m"),
    *("\u202eright to left", "\ud800", "\udfff\ud800", "[PAD] [CLS] [UNK] [MASK]", '"}{', "\\u0000", "</script>"),
    *("é" * 1000, "e\u0301", "😀👩‍👩‍👧", "a" * 100_000, "ﷺ" * 99, "İ", "ß", "漢字かなไทย"),
]
PREDICTED_AT_ONCE = 100


def fuzz_predict(space: Workspace, draw: random.Random, number: int) -> None:
    """A hundred texts through predict: probabilities, JSON that parses, nothing that steers a terminal."""
    run, engine = space.reference("default"), engine_of(number)
    texts = [_odd_text(draw) for _ in range(PREDICTED_AT_ONCE)]
    path = space.folder / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text, "id": text[:20]}) + "\n" for text in texts))
    arguments = predict(run, engine, "--input", path, "--top-k", "99")
    ended = fork([*arguments, "--format", "jsonl"], cwd=space.folder).end()
    answers = _answers(ended)
    assert len(answers) == len(texts), f"{len(answers)} answers"
    for text, answer in zip(texts, answers, strict=True):
        assert answer["id"] == json.loads(json.dumps(text[:20])), "another order"  # JSON joins half surrogates
        assert "reason" not in answer or not any(map(str.isalnum, text)), text
    for output_format in ("text", "tsv"):
        ended = fork([*arguments, "--format", output_format], cwd=space.folder).end()
        assert ended.code == 0, ended.err
        _check_printable(ended.out)
        assert len(ended.out.splitlines()) == len(texts) + (output_format == "tsv")
    if number % 5 == 0:
        _predict_raw_bytes(space, draw, run, engine)
    if number % 25 == 0:
        piece = draw.choice(["a", "a ", "漢", "\u0301", "x\n"])
        huge = fork_call(functools.partial(_predict_huge, run, engine, piece)).end()
        assert huge.code == 0, huge.err


def _predict_raw_bytes(space: Workspace, draw: random.Random, run: Path, engine: str) -> None:
    """Bytes that are no UTF-8, as an argument and on standard input."""
    content = bytes(draw.choice([*range(1, 256), 0xFF, 0xC3, 0xED]) for _ in range(draw.randint(1, 60)))
    arguments = predict(run, engine, "--format", "jsonl", "--top-k", "99")
    ended = start([*arguments, "--", content], cwd=space.folder).end()
    assert len(_answers(ended)) == 1
    ended = fork([*arguments, "--input", "-"], cwd=space.folder, stdin=content).end()
    assert len(_answers(ended)) == len(content.removesuffix(b"\n").split(b"\n"))


def _predict_huge(run: Path, engine: str, piece: str) -> None:
    from encoder_cls.inference.folder import load_classifier

    classifier = load_classifier(run, device="cpu", engine=engine)
    prediction = classifier.predict([piece * (10_000_000 // len(piece)), "rain"])[0]
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
        if answer.get("reason") == "blank":
            assert (answer["label"], answer["probability"], answer["top"]) == (None, None, []), answer
            continue
        probabilities = [entry["probability"] for entry in answer["top"]]
        assert all(math.isfinite(p) and 0 <= p <= 1 for p in probabilities), answer
        assert math.isclose(sum(probabilities), 1, rel_tol=1e-6), answer
        assert answer["probability"] == max(probabilities)
    return answers


def _check_printable(out: bytes) -> None:
    text = out.decode()
    bad = {c for c in text if c not in "\n\t" and unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert not bad, f"raw control characters {sorted(map(ascii, bad))}"


CASES = {
    "predict-fuzz": Case("any text gets probabilities and clean output (100 texts a try)", 50, fuzz_predict),
}
