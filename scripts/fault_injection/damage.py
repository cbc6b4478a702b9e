"""Cases about files damaged by accident: a changed bit, a lost end."""

from __future__ import annotations

import random
from pathlib import Path

from cases import Case
from processes import fork
from samples import CHECKPOINT_FILES, MODEL_FILES, Workspace, assert_mendable, engine_of, newest_checkpoint, predict

from encoder_cls.errors import EncoderClsError
from encoder_cls.inference.folder import load_classifier
from encoder_cls.training.encoder.checkpoint import load_newest


def damage_model(space: Workspace, draw: random.Random, number: int) -> None:
    """One changed bit, or a lost end, in a file of the model: it is refused."""
    run = space.reference("labels")
    path = run / "model" / MODEL_FILES[number % len(MODEL_FILES)]
    with _Damaged(path, draw) as what:
        try:
            load_classifier(run, device="cpu", engine=engine_of(number, kinds=len(MODEL_FILES)))
        except EncoderClsError as error:
            assert str(run) in str(error), f"{error} does not name the folder"
        else:
            raise AssertionError(f"{path.name}: {what} is not noticed")


def damage_checkpoint(space: Workspace, draw: random.Random, number: int) -> None:
    """One changed bit, or a lost end, in the newest checkpoint: the one before is taken, with a warning."""
    run = space.reference("labels")
    newest = newest_checkpoint(run)
    before, _ = load_newest(run / "checkpoints")
    assert before
    with _Damaged(newest / CHECKPOINT_FILES[number % len(CHECKPOINT_FILES)], draw) as what:
        found, warnings = load_newest(run / "checkpoints")
    assert len(warnings) == 1, f"{what}: {warnings}"
    assert str(newest) in warnings[0], f"{what} is not named: {warnings}"
    assert found, f"{what}: no checkpoint was found"
    assert found.state.step < before.state.step


def damage_and_use(space: Workspace, draw: random.Random, number: int) -> None:
    """The same through the commands: predict refuses; resume says what it passes over, and the run is exact."""
    run = space.copy(space.reference("labels"))
    engine = engine_of(number, kinds=len(MODEL_FILES))
    with _Damaged(run / "model" / MODEL_FILES[number % len(MODEL_FILES)], draw):
        assert_mendable(fork(predict(run, engine, "rain"), cwd=space.folder).end(), code=1, named=str(run))
    # As if it had been killed just before the end.
    (run / "model" / "README.md").unlink()
    newest = newest_checkpoint(run)
    with _Damaged(newest / CHECKPOINT_FILES[number % len(CHECKPOINT_FILES)], draw):
        ended = space.finish("labels", run)
        assert f"warning: {newest}: passed over, damaged" in ended.err, ended.err


class _Damaged:
    """A file with one bit changed, or its end cut off, while a block runs; unless it was written again in there."""

    def __init__(self, path: Path, draw: random.Random) -> None:
        self._path, self._content = path, path.read_bytes()
        if draw.random() < 0.8:
            place, bit = draw.randrange(len(self._content)), draw.randrange(8)
            changed = bytearray(self._content)
            changed[place] ^= 1 << bit
            self._changed, self._what = bytes(changed), f"bit {bit} of byte {place}"
        else:
            length = draw.randrange(len(self._content))
            self._changed, self._what = self._content[:length], f"an end after {length} bytes"

    def __enter__(self) -> str:
        self._path.write_bytes(self._changed)
        return f"{self._path.name}: {self._what}"

    def __exit__(self, *_: object) -> None:
        if self._path.exists() and self._path.read_bytes() == self._changed:
            self._path.write_bytes(self._content)


CASES = {
    "bit-flips-model": Case("any changed bit or lost end in a model is refused", 500 * len(MODEL_FILES), damage_model),
    "bit-flips-checkpoint": Case(
        "of a damaged checkpoint the one before is taken, loudly", 500 * len(CHECKPOINT_FILES), damage_checkpoint
    ),
    "bit-flips-commands": Case("the same through predict and train --resume", 60, damage_and_use),
}
