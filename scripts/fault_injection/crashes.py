"""Cases about processes that end, or meet, at the wrong moment."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path
from unittest import mock

from cases import Case
from processes import fork, kill_at_file_event, limit_memory, start
from samples import (
    VARIANTS,
    Workspace,
    assert_mendable,
    assert_same_run,
    engine_of,
    hashes_of,
    last_weights,
    predict,
)

from encoder_cls.system.files import sha256

LONGEST_TRAINED = 6.5  # seconds until a real command is killed; in the first 2.5 it has not begun to train
SLOW_MACHINE = 5.0  # seconds that count as at once, where one would do on an idle machine
FILE_EVENTS_OF_A_RUN = 240
ANY_TEXT = "soup and rain with a ball"


def kill_real(space: Workspace, draw: random.Random, number: int) -> None:
    """Real processes, killed at any moment, started again, until one comes to the end."""
    variant, run = _variant(number), space.new_path("killed")
    for _ in range(draw.randint(1, 4)):
        process = start(space.train(variant, run), cwd=space.folder)
        if process.wait(draw.uniform(0.1, LONGEST_TRAINED)) is None:
            process.signal(signal.SIGKILL)
            process.end()
    space.finish(variant, run, begin=start)


def kill_forked(space: Workspace, draw: random.Random, number: int) -> None:
    """Copies of this process: many kills, half of them just as a file or folder is made, renamed or removed."""
    _kill_and_finish(space, _variant(number), draw)


def kill_continued(space: Workspace, draw: random.Random, number: int) -> None:
    """A run that goes on from another, killed in the same ways: exact, and the other run has no byte changed."""
    variant = space.continued(_variant(number))
    former = space.reference(_variant(number))
    before = hashes_of(former)
    _kill_and_finish(space, variant, draw)
    assert hashes_of(former) == before, "the run that was gone on from has changed"


def _kill_and_finish(space: Workspace, variant: str, draw: random.Random) -> None:
    run = space.new_path("killed")
    for _ in range(draw.randint(1, 4)):
        if draw.random() < 0.5:
            event = draw.randint(1, FILE_EVENTS_OF_A_RUN)
            process = fork(space.train(variant, run), cwd=space.folder, prepare=partial(kill_at_file_event, event, run))
        else:
            process = fork(space.train(variant, run), cwd=space.folder)
            if process.wait(draw.uniform(0, 1.5)) is None:
                process.signal(signal.SIGKILL)
        assert process.end().code in {0, -signal.SIGKILL}
    space.finish(variant, run)


def stop(space: Workspace, draw: random.Random, number: int) -> None:
    """SIGTERM or SIGINT at any moment, again and again: each ends with its code at once, the run is exact."""
    variant, run = _variant(number), space.new_path("stopped")
    kind = draw.choice([signal.SIGTERM, signal.SIGINT])
    process = fork(space.train(variant, run), cwd=space.folder)
    if process.wait(draw.uniform(0, 1.5)) is None:
        asked = time.monotonic()
        process.signal(kind)
        ended = process.end()
        waited = time.monotonic() - asked
        assert waited < SLOW_MACHINE, f"ended {waited:.1f} s after the signal"
        # Before there is anything to save, SIGTERM ends a process by itself.
        assert ended.code in {0, 128 + kind, -kind if kind == signal.SIGTERM else 130}, (ended.code, ended.err)
        assert "Traceback" not in ended.err, ended.err
        # One validation may just have been at its end.
        assert ended.err.partition("stopping after this step")[2].count("validation loss") <= 1, "it went on training"
        if ended.code == 128 + kind and "stopped at step" in ended.err:
            assert list((run / "checkpoints").glob("step-*")), "no checkpoint was written"
    space.finish(variant, run)


def stop_twice(space: Workspace, draw: random.Random, number: int) -> None:
    """A second signal ends at once, whatever is being done; the run is exact all the same."""
    variant = _variant(number)
    run = space.new_path("stopped-twice")
    process = fork(space.train(variant, run), cwd=space.folder)
    if process.wait(draw.uniform(0, 1.5)) is None:
        process.signal(signal.SIGTERM)
        time.sleep(draw.uniform(0, 0.02))
        process.signal(signal.SIGTERM)
        asked = time.monotonic()
        ended = process.end()
        assert time.monotonic() - asked < SLOW_MACHINE
        assert ended.code in {0, 143, -signal.SIGTERM}, (ended.code, ended.err)
    space.finish(variant, run)


def two_trainers(space: Workspace, _draw: random.Random, number: int) -> None:
    """Two real processes started at once: one trains to the end, the other names it within a second."""
    variant = _variant(number)
    run = space.new_path("contested")
    ended = [process.end() for process in [start(space.train(variant, run), cwd=space.folder) for _ in range(2)]]
    winner, loser = sorted(ended, key=lambda one: one.code)
    if loser.code == 0:  # it came when the other had finished, or before it was really there
        assert "this run is finished" in loser.err, loser.err
    else:
        assert_mendable(loser, code=1, named="is training here")
        assert loser.cpu_seconds < 1, f"the loser worked for {loser.cpu_seconds:.2f} s"
    assert winner.code == 0, winner.err
    assert_same_run(run, space.reference(variant))


def predict_while_saving(space: Workspace, draw: random.Random, number: int) -> None:
    """Eight readers at once while training replaces the model: each answer is that of one complete model."""
    readers, calls, engine = 8, 8, engine_of(number)
    run = space.new_path("busy")
    often = ["--set", "train.validate_every=1", "--set", "train.patience=null", "--set", "train.epochs=6"]
    answers = space.new_path("answers")
    arguments = space.train("labels", run, *often)
    known = fork(arguments, cwd=space.folder, prepare=partial(_tell_answers, answers, engine)).end()
    assert known.code == 0, known.err
    complete = set(answers.read_text().splitlines())

    run = space.new_path("busy")
    trainer = fork(space.train("labels", run, *often), cwd=space.folder)
    while not (run / "model" / "model.safetensors").exists():
        assert trainer.wait(0.01) is None, "training ended before it had a model"
    arguments = predict(run, engine, "--format", "jsonl", "--top-k", "9", ANY_TEXT)
    for _ in range(calls):
        time.sleep(draw.uniform(0, 0.05))
        for process in [fork(arguments, cwd=space.folder) for _ in range(readers)]:
            ended = process.end()
            assert ended.code == 0, ended.err
            assert ended.out.decode().strip() in complete, f"no model ever said: {ended.out.decode()}"
    assert trainer.end().code == 0


def _tell_answers(path: Path, engine: str) -> None:
    """Make this process write down what each model that it saves answers."""
    from encoder_cls.answers.classify import Answerer
    from encoder_cls.answers.formats import written
    from encoder_cls.answers.inputs import Input, Source
    from encoder_cls.answers.request import Request
    from encoder_cls.inference.classifier import Classifier
    from encoder_cls.inference.folder import load_classifier, save_classifier, save_guarantees
    from encoder_cls.inference.guarantees import Familiarity, Guarantees

    def save_and_tell(saved: Classifier, folder: Path, *, dtypes: dict[str, str] | None = None) -> None:
        save_classifier(saved, folder, dtypes=dtypes)
        tell(folder)

    def promise_and_tell(folder: Path, guarantees: Guarantees | None, familiarity: Familiarity | None) -> None:
        save_guarantees(folder, guarantees, familiarity)
        tell(folder)

    def tell(folder: Path) -> None:
        loaded = load_classifier(folder, device="cpu", engine=engine)
        request = Request("jsonl", top_k=9, batch_tokens=8192)
        with path.open("ab") as file:
            file.writelines(written(Source(given=[Input(ANY_TEXT)]), Answerer(loaded, request)))

    for name, module in list(sys.modules.items()):  # wherever it was imported to, also in a module that is new
        for save, telling in ((save_classifier, save_and_tell), (save_guarantees, promise_and_tell)):
            if name.startswith("encoder_cls.") and getattr(module, save.__name__, None) is save:
                mock.patch.object(module, save.__name__, telling).start()


CHANGES = [
    ["--set", "train.log_every=1"],
    ["--set", "train.checkpoint_every=1"],
    ["--set", "train.checkpoint_every=null"],
    ["--set", "train.keep_checkpoints=5"],
    ["--set", "train.validate_every=2"],
    ["--set", "train.validate_every=7"],
    ["--set", "train.log_every=5", "--set", "train.checkpoint_every=2", "--set", "train.keep_checkpoints=1"],
    [],
]


def metamorphic(space: Workspace, draw: random.Random, number: int) -> None:
    """Watching more or less often, another place and another hash seed change no weight."""
    changes, variant = CHANGES[number % len(CHANGES)], _variant(number // len(CHANGES))
    common = ["--set", "train.patience=null", "--set", "train.learning_rate=0.02"]
    if "train.validate_every" in str(changes):  # the best weights of pretraining depend on when it was validated
        common += ["--set", "pretrain.epochs=0"]
    plain, changed = space.new_path("plain"), space.new_path("another name") / "deeper" / "run"
    assert fork(space.train(variant, plain, *common), cwd=space.folder).end().code == 0
    seed = {"PYTHONHASHSEED": str(draw.randint(1, 10_000))}
    ended = start(space.train(variant, changed, *common, *changes), cwd=space.folder, environment=seed).end()
    assert ended.code == 0, ended.err
    one, other = (last_weights(run) for run in (plain, changed))
    assert one == other, f"other weights with {changes}"
    if "train.validate_every" not in str(changes):
        best, other_best = (sha256((run / "model" / "model.safetensors").read_bytes()) for run in (plain, changed))
        assert best == other_best, f"other best weights with {changes}"


def diverge(space: Workspace, draw: random.Random, number: int) -> None:
    """A learning rate that is far too high: exit 4, the step named, no weight on disk that is no number."""
    import safetensors.torch

    variant, run = _variant(number), space.new_path("diverged")
    rate = 10 ** draw.uniform(18, 37)
    ended = fork(space.train(variant, run, "--set", f"train.learning_rate={rate:.3g}"), cwd=space.folder).end()
    assert_mendable(ended, code=4, named="diverged at step")
    for path in run.rglob("*.safetensors"):
        tensors = safetensors.torch.load_file(path)
        assert all(tensor.isfinite().all() for tensor in tensors.values()), f"{path} holds what is no number"


def too_little_memory(space: Workspace, draw: random.Random, number: int) -> None:
    """A limit of memory that training meets somewhere; however libraries take it, with enough it goes on exactly."""
    variant, run = _variant(number), space.new_path("short-of-memory")
    room = round(10 ** draw.uniform(5, 8.3))
    ended = fork(space.train(variant, run), cwd=space.folder, prepare=partial(limit_memory, room)).end()
    # Some libraries abort by themselves: that cannot be put into one line.
    assert ended.code in {0, 1, -signal.SIGABRT, -signal.SIGSEGV}, ended.err
    assert "Traceback" not in ended.err, ended.err
    space.finish(variant, run)


def resume_finished(space: Workspace, _draw: random.Random, number: int) -> None:
    """Resuming a finished run changes nothing and says so."""
    run = space.reference(_variant(number))
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.rglob("*")}
    ended = fork(space.train(_variant(number), run), cwd=space.folder).end()
    assert ended.code == 0, ended.err
    assert "this run is finished; nothing to do" in ended.err
    assert before == {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.rglob("*")}


def crash_while_another_reads(space: Workspace, draw: random.Random, number: int) -> None:
    """Whatever a killed training left, predict answers from a complete model or says that there is none yet."""
    variant, run = _variant(number), space.new_path("abandoned")
    event = draw.randint(1, FILE_EVENTS_OF_A_RUN)
    fork(space.train(variant, run), cwd=space.folder, prepare=partial(kill_at_file_event, event, run)).end()
    engine = engine_of(number, kinds=len(VARIANTS))
    ended = fork(predict(run, engine, "--format", "jsonl", ANY_TEXT), cwd=space.folder).end()
    if (run / "model" / "model.safetensors").exists():
        assert ended.code == 0, ended.err
        assert json.loads(ended.out)["label"]
    else:
        assert_mendable(ended, code=2, named=str(run))


def _variant(number: int) -> str:
    return list(VARIANTS)[number % len(VARIANTS)]


CASES = {
    "kill-real": Case("kill -9 at any moment loses nothing (real processes)", 60, kill_real),
    "kill-forked": Case("kill -9 at any moment loses nothing (forks, at file operations too)", 300, kill_forked),
    "kill-continued": Case(
        "kill -9 of a run that goes on from another: exact, the other unchanged", 100, kill_continued
    ),
    "kill-and-read": Case("after kill -9 predict still finds a complete model", 100, crash_while_another_reads),
    "signals": Case("SIGTERM and SIGINT end training at once, exactly resumable", 200, stop),
    "two-signals": Case("a second signal ends at once and loses no more", 50, stop_twice),
    "two-trainers": Case("of two trainers in a folder one wins, the other says so", 50, two_trainers),
    "predict-while-saving": Case("readers never see half a model (64 reads a try)", 8, predict_while_saving),
    "metamorphic": Case("how often one looks, where, and hash seeds change no weight", 24, metamorphic),
    "divergence": Case("diverged training stops with exit 4 and leaves finite weights", 30, diverge),
    "memory": Case("whatever too little memory does, the run can go on exactly", 40, too_little_memory),
    "resume-finished": Case("resuming a finished run does nothing", 6, resume_finished),
}
