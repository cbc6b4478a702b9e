"""How long it takes to go on from a run with new labels and new data, beside a run on all of it from nothing.

    python scripts/benchmarks/continued.py FOLDER [--only NAME]... [--draws N] [--output docs/continued_runs.md]

FOLDER holds a subfolder for each data set (trec6, banking77, ...) with train.parquet and test.parquet, with the columns
`text` and `label`. Train is halved at random; of the first half the labels of a quarter of the classes are taken away.
A run on that half is gone on from with the second one; another run learns from both at once. Both have one thread, one
after the other, and are tested on the whole test part. The command fails where going on takes more than half of the
time, or is less accurate by more than two standard errors of the mean difference.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet
import torch
from reporting import cpu_name, note, table

from encoder_cls.config import load_config
from encoder_cls.inference.serialization import load_classifier
from encoder_cls.tracking.run_dir import RunDir
from encoder_cls.training.events import Finished
from encoder_cls.training.prepare import prepare
from encoder_cls.training.trainer import train

DATA = ("trec6", "sst2", "banking77")
PART_WITHOUT = 0.25  # of the classes, which the first run does not know; of two classes none


class Result(NamedTuple):
    """One training: its accuracy on the whole test part, in percent, and its seconds."""

    accuracy: float
    seconds: float


def main() -> None:
    """Train, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=DATA, action="append", help="repeatable; default: all")
    parser.add_argument("--draws", type=int, default=3, help="of the halves, and seeds")
    parser.add_argument("--output", type=Path, help="a Markdown file to write; default: standard output")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in DATA if name in (arguments.only or DATA)]
    found = {name: [pair(arguments.folder / name, draw) for draw in range(arguments.draws)] for name in names}
    text = document(found, command=" ".join(["python scripts/benchmarks/continued.py FOLDER", *sys.argv[2:]]))
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text)
    if not all(map(is_reached, found.values())):
        sys.exit("a target is missed")


def pair(folder: Path, draw: int) -> tuple[Result, Result]:
    """A run that goes on from one on half of the data, and one from nothing."""
    rows = {part: pyarrow.parquet.read_table(folder / f"{part}.parquet").to_pylist() for part in ("train", "test")}
    random = np.random.default_rng(draw)
    names = sorted({row["label"] for row in rows["train"]})
    unknown = set(random.permutation(names)[: int(PART_WITHOUT * len(names))].tolist())
    shuffled = [rows["train"][index] for index in random.permutation(len(rows["train"]))]
    first, second = shuffled[: len(shuffled) // 2], shuffled[len(shuffled) // 2 :]
    first = [row for row in first if row["label"] not in unknown]
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for name, content in (("first", first), ("second", second), ("both", first + second), ("test", rows["test"])):
            lines = [json.dumps({"text": row["text"], "label": str(row["label"])}) for row in content]
            (work / f"{name}.jsonl").write_text("\n".join(lines))
        trained(work, "first", draw)
        results = tuple(
            Result(accuracy_of(work / "runs" / name, rows["test"]), seconds)
            for name, seconds in (
                ("second", trained(work, "second", draw, from_run=work / "runs" / "first")),
                ("both", trained(work, "both", draw)),
            )
        )
    note(f"{folder.name}, draw {draw}: {results[0]}, from nothing {results[1]}")
    return results[0], results[1]


def accuracy_of(run: Path, rows: Sequence[Mapping[str, str]]) -> float:
    """On all rows, in percent; the report of a run that goes on leaves out texts that it has already."""
    answers = load_classifier(run).predict([row["text"] for row in rows])
    return 100 * statistics.mean(answer.label == str(row["label"]) for answer, row in zip(answers, rows, strict=True))


def trained(work: Path, name: str, seed: int, *, from_run: Path | None = None) -> float:
    """The seconds of a run on a file; it is tested on the test part, but for the first, which knows too few classes."""
    test = "null" if name == "first" else work / "test.jsonl"
    (work / f"{name}.yaml").write_text(f"data: {{train: {work / name}.jsonl, test: {test}}}\nseed: {seed}\n")
    setup = prepare(load_config(work / f"{name}.yaml", from_run=from_run))
    events = train(setup, RunDir(work / "runs" / name), device=torch.device("cpu"))
    (finished,) = (event for event in events if isinstance(event, Finished))
    return finished.seconds


def is_reached(pairs: Sequence[tuple[Result, Result]]) -> bool:
    """Whether going on takes half of the time at most, and is as accurate as far as can be told."""
    ratio = statistics.median(one.seconds / other.seconds for one, other in pairs)
    differences = [one.accuracy - other.accuracy for one, other in pairs]
    error = statistics.stdev(differences) / len(pairs) ** 0.5 if len(pairs) > 1 else 1.0
    return ratio <= 0.5 and statistics.mean(differences) >= -2 * error


def document(found: dict[str, list[tuple[Result, Result]]], *, command: str) -> str:
    """The page."""
    rows = []
    for name, pairs in found.items():
        on, anew = ([pair[which] for pair in pairs] for which in (0, 1))
        ratio = statistics.median(one.seconds / other.seconds for one, other in pairs)
        cells = [f"{statistics.mean(it.accuracy for it in results):.1f}" for results in (on, anew)]
        seconds = [f"{statistics.median(it.seconds for it in results):.0f}" for results in (on, anew)]
        rows.append([name, *cells, *seconds, f"{ratio:.2f}", "yes" if is_reached(pairs) else "**no**"])
    head = ["", "accuracy, going on", "from nothing", "seconds, going on", "from nothing", "ratio", "reached"]
    draws, rows_of_table = max(map(len, found.values())), "\n".join(table(head, rows))
    return f"""# Going on from a run

`encoder-cls train --from RUN --config new.yaml` reads the data of a finished run again, from its config, joins it with
that of `new.yaml`, and trains on both. New words and new classes are added. The encoder begins with the weights of the
former run, so there is no pretraining and half as many epochs. The linear classifier is fitted again, which
takes seconds. The former run stays as it is.

- What the former run held out or was tested on stays held out, also where the new data has the same texts. What it
  learned from is not doubled. So a file that has grown can be named as it is.
- Sections `model` and `tokenizer` are those of the former run. Numbers of words and pairs of words stay.
- The report says which answers to the texts of the former test (else validation) split are others now, which classes
  are found less often, and whether the difference is sure; the answers are in `eval/changed_answers.csv`.
- `--resume` and `eval` read the former run's config and data again, so both have to stay where they are. Where that
  data is gone, or is not what it was, the command ends with exit code 3.
- Multi-label runs go on, too; their reports do not compare.

## Time and accuracy

Train is halved at random, and the first half has no text of a quarter of the classes (of sst2, with two, of none). The
first run learns from that half, the second goes on with the other half, and a third learns from both at once. Test
accuracy, means of {draws} draws; seconds of a training with one thread, medians; ratio: the median of those of the
draws. Reached: half of the time at most, and accuracy no lower by two standard errors.

{rows_of_table}

On {cpu_name()}. The command that makes this page:

```sh
{command}
```
"""


if __name__ == "__main__":
    main()
