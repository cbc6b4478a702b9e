"""Faults that are put into a running process (mutation testing), and the command line with one of them.

A fault replaces the object of a dotted name by a changed one; `case`, drawn at `fraction`, notices it.
"""

import builtins
import contextlib
import copy
import fcntl
import functools
import json
import os
import pkgutil
import shutil
import socket
import stat
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple


class Fault(NamedTuple):
    """A fault: its name, the case that notices it, the dotted name, and the function that makes the faulty object."""

    name: str
    case: str
    fraction: float
    target: str
    make: object


def changed(thing, **values):
    """A copy with other attributes."""
    thing = copy.copy(thing)
    vars(thing).update(values)
    return thing


def nothing(_original):
    return lambda *_, **__: None


def constant(value):
    return lambda _original: value


def found_checkpoint(change):
    """Change a checkpoint that is loaded."""

    def make(load):
        def load_changed(folder):
            found, warnings = load(folder)
            return found and change(found), warnings

        return load_changed

    return make


def state(**change):
    """Change the state of the encoder's training in a checkpoint."""
    return found_checkpoint(
        lambda it: changed(
            it,
            state=changed(
                it.state,
                training=changed(
                    it.state.training,
                    **{key: of(it.state.training) for key, of in change.items()},
                ),
            ),
        )
    )


def one_step_more(found):
    moments = {
        name: value + 1 if name.endswith(".step") else value
        for name, value in found.moments.items()
    }
    return changed(found, moments=moments)


def of_mode(is_mode):
    """Leave files of a kind out."""
    return lambda flush: lambda file: None if is_mode(os.fstat(file).st_mode) else flush(file)


def rejoined(read):
    kept = []
    return lambda descriptor: (kept.append(read(descriptor)), b"".join(kept), kept[-1])[-1]


def always_first(submit):
    first = []
    return lambda self, request, classifier: (
        first.append(classifier),
        submit(self, request, first[0]),
    )[1]


def recorded_hash(hash_of):
    def make(path):
        record = path.parent / "_parts" / f"{path.stem}.json"
        return (
            json.loads(record.read_bytes())["output_sha256"] if record.is_file() else hash_of(path)
        )

    return make


def fitted_otherwise(fit):
    def fit_otherwise(run, progress, *more):
        if progress.state.linear_score is not None:
            plan = progress.prepared.plan
            otherwise = changed(plan, linear=plan.linear._replace(max_tokens=2))
            progress.prepared = changed(progress.prepared, plan=otherwise)
        return fit(run, progress, *more)

    return fit_otherwise


def summed_otherwise(sum_gradients):
    def sum_flipped(model, group):
        sum_gradients(model, group)
        for parameter in [
            it for it in model.parameters() if it.grad is not None and not it.grad.is_sparse
        ]:
            parameter.grad = parameter.grad.flip(0)

    return sum_flipped


def never_left(read):
    async def read_apart(self, request, body):
        apart = bytearray()
        await read(self, request, apart)
        body += apart
        self._held_bytes += len(apart)

    return read_apart


def backwards(data):
    rows = list(range(len(data.texts)))
    rows.reverse()
    return data._replace(texts=data.texts.take(rows))


SAVE = "encoder_cls.run.checkpoint"
RUN = "encoder_cls.training.train"
FILES = "encoder_cls.system.files"
OUTPUTS = "encoder_cls.bulk.output_checks"
PARTS = "encoder_cls.bulk.predict"
SERVER = "encoder_cls.serving.server._Server"
CACHE = "encoder_cls.system.cache"
EXCLUSIVE = fcntl.LOCK_EX

# fmt: off
FAULTS = [
    Fault("a file is not flushed", "flush-order[model", 1, "os.fsync", of_mode(stat.S_ISREG)),
    Fault("a folder is not flushed", "flush-order[model", 1, "os.fsync", of_mode(stat.S_ISDIR)),
    Fault("a file is written in place", "kill-every-call[model", 1, f"{FILES}.write_file",
     lambda write: lambda path, content, **more: (
         path.is_file() and isinstance(content, bytes) and path.write_bytes(content), write(path, content, **more))),
    Fault("a checkpoint has its name before its files", "flush-order[checkpoints", 1, f"{FILES}.write_folder",
     lambda _: lambda folder, files: (folder.mkdir(parents=True),
                                      [(folder / name).write_bytes(content) for name, content in files.items()])),
    Fault("the old checkpoint goes first", "kill-every-call[checkpoints", 1, f"{FILES}.write_folder",
     lambda write: lambda folder, files: (shutil.rmtree(folder.parent, ignore_errors=True), write(folder, files))),
    Fault("what is half written stays", "refuse-every-call[model", 1, "pathlib.Path.unlink",
     lambda unlink: lambda self, **more: None if self.name.startswith(".tmp-") else unlink(self, **more)),
    Fault("a checkpoint's hash is not compared", "bit-flips-checkpoint", 0.05, f"{FILES}.sha256",
     constant(lambda _: "0" * 64)),
    Fault("a model's hash is not compared", "bit-flips-model", 0.05, f"{FILES}.sha256", constant(lambda _: "0" * 64)),
    Fault("sizes are not limited", "hostile-model", 1, f"{FILES}.MOST_BYTES", constant(10**18)),
    Fault("Adam's count of steps is one ahead", "kill-forked", 0.03,
     f"{SAVE}.load_newest", found_checkpoint(one_step_more)),
    Fault("a resumed run goes on a step early", "kill-forked", 0.05, f"{SAVE}.load_newest",
     state(step=lambda it: max(it.step - 1, it.first_step))),
    Fault("the best score is forgotten", "kill-forked", 0.4, f"{SAVE}.load_newest", state(best_score=lambda _: None)),
    Fault("a resumed run forgets the linear classifier", "kill-forked", 0.05, f"{RUN}.fit_linear_model",
     lambda fit: lambda run, progress, *more: None if progress.state.step else fit(run, progress, *more)),
    Fault("a resumed run fits another linear classifier", "kill-forked", 0.05, f"{RUN}.fit_linear_model", fitted_otherwise),
    Fault("mixture weights are not saved", "saved-model", 1,
     "encoder_cls.classifier.model_folder.save_classifier",
     lambda save: lambda it, *more, **options: save(
         changed(it, mixture=type(it.mixture)()), *more, **options)),
    Fault("the linear classifier is not loaded", "saved-model", 1,
     "encoder_cls.classifier.model_folder.load_classifier",
     lambda load: lambda *more, **options: changed(load(*more, **options), linear=None)),
    Fault("linear features in any order are taken", "hostile-model", 1, "encoder_cls.linear.linear_model.are_increasing",
     constant(lambda *_: True)),
    Fault("random numbers depend on what was drawn before", "kill-forked", 0.05,
     "encoder_cls.encoder.training.torch",
     lambda torch: SimpleNamespace(**vars(torch) | {"manual_seed": lambda _: None})),
    Fault("metrics are not cut on resume", "kill-forked", 0.1, "encoder_cls.run.metrics_log.MetricsLog.__init__",
     lambda init: lambda self, *more, resume_after, **options: init(
         self, *more, resume_after=resume_after and dict.fromkeys(resume_after, 10**9), **options)),
    Fault("a signal is not heard", "signals", 0.2, "encoder_cls.system.stop.check_stop", nothing),
    Fault("two may train in a folder", "two-trainers", 0.1, "fcntl.flock",
     lambda flock: lambda file, kind: flock(file, kind ^ EXCLUSIVE | fcntl.LOCK_SH if kind & EXCLUSIVE else kind)),
    Fault("classes are in the order of a hash table", "metamorphic", 0.5, "encoder_cls.data.labels.sorted",
     constant(lambda found, **_: list(found))),
    Fault("validation changes the model", "metamorphic", 1, "encoder_cls.encoder.torch_encoder.TorchEncoder.logits",
     lambda run: lambda self, *more, **options: (
         run(self, *more, **options), [it.data.mul_(0.999) for it in self.model.parameters()])[0]),
    Fault("what is no number is trained on", "divergence", 1, "math.isfinite", constant(lambda _: True)),
    Fault("a full disk for the curves ends the run", "full-tensorboard", 1,
     "encoder_cls.run.tensorboard.TensorBoard._until_refused", constant(lambda self: contextlib.nullcontext())),
    Fault("surplus fields are dropped", "csv-fuzz", 0.3, "encoder_cls.data.reading.delimited._rows",
     lambda rows: lambda *more: ((line, fields[:2]) for line, fields in rows(*more))),
    Fault("control characters are printed", "predict-fuzz", 0.1, "encoder_cls.system.display.json_text",
     constant(functools.partial(json.dumps, ensure_ascii=False, allow_nan=False))),
    Fault("what is read may be written over", "outputs", 0.3, f"{OUTPUTS}._identities", constant(lambda _: ())),
    Fault("an output may be among what is read", "outputs", 0.3, f"{OUTPUTS}._Target.is_inside", nothing),
    Fault("data of the run may be written over", "outputs", 0.5,
     "encoder_cls.run.run_folder.RunDir.data_sources", constant(lambda _: [])),
    Fault("two outputs may be one file", "outputs", 0.5, f"{OUTPUTS}.check_outputs",
     lambda check: lambda outputs, **more: [check([output], **more) for output in outputs]),
    Fault("a temporary name is opened through a link", "outputs", 0.5, "pathlib.Path.open",
     lambda opens: lambda self, mode="r", *more, **options: opens(self, mode.replace("x", "w"), *more, **options)),
    Fault("a replaced file gets another mode", "outputs", 0.5, "pathlib.Path.chmod", nothing),
    Fault("a long line is put together at each read", "sizes[1-line_of_standard_input]", 1,
     "encoder_cls.bulk.inputs._next_block", rejoined),
    Fault("a confusion matrix of any size is written", "sizes[0-many_classes]", 1,
     "encoder_cls.metrics.classification.LARGEST_MATRIX", constant(10**9)),
    Fault("all texts are on one page", "sizes[0-page_of_many_texts]", 1,
     "encoder_cls.bulk.classify_chunks.MOST_PAGE_TEXTS", constant(10**9)),
    Fault("endings of texts are in small letters", "folder-fuzz", 0.2, "encoder_cls.data.source_files.texts_of",
     lambda texts: lambda folder: [path for path in texts(folder) if path.suffix == ".txt"]),
    Fault("hidden folders are classes", "folder-fuzz", 0.2, "encoder_cls.data.source_files._visible",
     constant(lambda folder: sorted(folder.iterdir()))),
    Fault("blank lines have no answer", "folder-fuzz", 0.2, "encoder_cls.data.reading.text_lines.numbered_lines",
     lambda lines: lambda *more: ((where, line) for where, line in lines(*more) if line.strip())),
    Fault("a stop leaves accepted requests without an answer", "serve-stop", 0.2, f"{SERVER}._stop_by",
     lambda stop: lambda self, number: self.__dict__.update(force_exit=True, should_exit=True) or stop(self, number)),
    Fault("a second signal is not heard", "serve-stop[0-twice]", 1, f"{SERVER}._stop_by",
     lambda stop: lambda self, number: None if self._service.batcher.is_stopping else stop(self, number)),
    Fault("a second signal ends with another code", "serve-stop[0-twice]", 1, f"{SERVER}._stop_by",
     lambda stop: lambda self, number: stop(self, -1 if self._service.batcher.is_stopping else number)),
    Fault("the port of a killed server is kept", "serve-kill", 0.2, "socket.socket.setsockopt",
     lambda set_to: lambda self, level, name, *value: (
         None if name == socket.SO_REUSEADDR else set_to(self, level, name, *value))),
    Fault("one model answers for another", "serve-reload", 0.3,
     "encoder_cls.serving.batching.Batcher.submit", always_first),
    Fault("what comes of a reload is not reported", "serve-reload", 0.1, f"{SERVER}._reload",
     lambda reload: lambda self: setattr(self, "_log", lambda _: None) or reload(self)),
    Fault("bytes of answered requests stay counted", "serve-hostile[0-too-many-texts]", 1,
     "encoder_cls.serving.app.Service._read", never_left),
    Fault("idle connections keep their places", "serve-hostile[0-idle-crowd]", 1,
     "encoder_cls.serving.server.Connection.waits_for_client", constant(property(lambda _: False))),
    Fault("what a killed process began to answer stays", "parts-kill", 0.2, f"{FILES}._remove_unfinished",
     constant(lambda *_, **__: "")),
    Fault("a part is done by two processes", "parts-together", 0.3, f"{PARTS}.locked",
     constant(lambda *_, **__: contextlib.nullcontext())),
    Fault("answers need not fit their record", "parts-changed[0-damaged-answers]", 1,
     f"{PARTS}._hash_of", recorded_hash),
    Fault("another model's answers count as done", "parts-changed[0-another-model]", 1, f"{PARTS}._Folder.__init__",
     lambda init: lambda self, *more, **options: (
         init(self, *more, **options), self._expected.update(model_sha256=""))[0]),
    Fault("a record has the answers of another part removed", "parts-changed[0-the-record-of-another-part]", 1,
     f"{PARTS}._remove_old_format",
     constant(lambda part, record: record.get("output", part.output.name) != part.output.name
              and (part.output.parent / record["output"]).unlink(missing_ok=True))),
    Fault("an input that changes meanwhile is not noticed", "parts-changed-meanwhile", 0.3, f"{PARTS}._state_of",
     constant(lambda _: (0,))),
    Fault("a full disk leaves what is half answered", "parts-full-disk", 0.4, "pathlib.Path.unlink",
     lambda unlink: lambda self, **more: None if self.name.startswith(".tmp-") else unlink(self, **more)),
    Fault("a resumed run begins with its first weights again", "kill-continued", 0.06, f"{SAVE}.load_newest",
     found_checkpoint(lambda it: changed(it, weights={}, moments={}))),
    Fault("something is written into the base run", "kill-continued", 0.01,
     "encoder_cls.run.run_report._compare_with_base_run",
     lambda compare: lambda run, **options: (
         run.config.from_run and Path(run.config.from_run, "eval/compared").touch(), compare(run, **options))[1]),
    Fault("gradients that processes share are in another order", "kill-rank", 0.2,
     "encoder_cls.encoder.training.sum_gradients", summed_otherwise),
    Fault("a search begins the trial of a killed process anew", "kill-tune", 0.2, "encoder_cls.tuning.search.train",
     lambda train: lambda *more, **options: train(*more, **options | {"resume": False})),
    Fault("a damaged entry of the cache is used", "damage-cache", 1,
     f"{CACHE}._has_digest", constant(lambda *_: True)),
    Fault("what a killed process left in the cache stays", "kill-cache", 1, f"{CACHE}.remove_leftovers", nothing),
    Fault("the cache forgets whose texts come first", "kill-cache", 0.1, "encoder_cls.text.tokenized_data._from_entry",
     lambda made: lambda entry: backwards(made(entry))),
]
# fmt: on


def put(fault):
    """Put a fault into this process."""
    owner, name, original = place_of(fault.target)
    replacement = fault.make(original)
    setattr(owner, name, replacement)
    is_own = isinstance(owner, ModuleType) and not isinstance(original, ModuleType)
    if (
        is_own and getattr(original, "__module__", owner.__name__) == owner.__name__
    ):  # wherever it was imported to
        for module in [it for key, it in sys.modules.items() if key.startswith("encoder_cls")]:
            if vars(module).get(name) is original:
                setattr(module, name, replacement)


def place_of(target):
    """The owner of the attribute that a dotted name leads to, the attribute's name and its value."""
    path, _, name = target.rpartition(".")
    owner = pkgutil.resolve_name(path)
    return owner, name, getattr(owner, name, None) or getattr(builtins, name)


def put_named():
    """Put the fault into this process that its environment names, if any."""
    for fault in FAULTS:
        if fault.name == os.environ.get("FAULT"):
            put(fault)


if __name__ == "__main__":
    put_named()
    from encoder_cls.cli.app import main

    main()
