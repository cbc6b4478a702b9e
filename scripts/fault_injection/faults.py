"""Faults that are put into a running process (mutation testing), and a command line with one.

A fault replaces the object of a dotted name by a faulty one. `case`, drawn at `fraction`, must
notice it.
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
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """A fault, and the case that notices it."""

    name: str
    case: str
    fraction: float  # of the tries of the case
    target: str  # the dotted name of the object that is replaced
    make: Callable[[Any], Any]  # the faulty object, made of the original one


def changed(thing, **values):
    """A copy with other attributes."""
    thing = copy.copy(thing)
    vars(thing).update(values)
    return thing


def doing_nothing(_original):
    return lambda *_, **__: None


def constant(value):
    """Make a fault that replaces an object by this value."""
    return lambda _original: value


# Files and folders


def flushing_no_file(fsync):
    def flush(file):
        if not stat.S_ISREG(os.fstat(file).st_mode):
            fsync(file)

    return flush


def flushing_no_folder(fsync):
    def flush(file):
        if not stat.S_ISDIR(os.fstat(file).st_mode):
            fsync(file)

    return flush


def writing_in_place(write_file):
    def write(path, content, **options):
        if path.is_file() and isinstance(content, bytes):
            path.write_bytes(content)
        write_file(path, content, **options)

    return write


def naming_a_folder_first(_write_folder):
    def write(folder, files):
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)

    return write


def removing_older_folders_first(write_folder):
    def write(folder, files):
        shutil.rmtree(folder.parent, ignore_errors=True)
        write_folder(folder, files)

    return write


def keeping_temporary_files(unlink):
    def unlink_others(self, **options):
        if not self.name.startswith(".tmp-"):
            unlink(self, **options)

    return unlink_others


def hash_of_zeros(_content):
    return "0" * 64


def reading_any_json(path):
    return json.loads(path.read_bytes())


def locks_that_are_shared(flock):
    def lock(file, kind):
        if kind & fcntl.LOCK_EX:
            kind = kind & ~fcntl.LOCK_EX | fcntl.LOCK_SH
        flock(file, kind)

    return lock


def opening_through_links(opens):
    def open_file(self, mode="r", *arguments, **options):
        return opens(self, mode.replace("x", "w"), *arguments, **options)

    return open_file


# Checkpoints


def found_checkpoint(change):
    """Make a fault that changes the checkpoint that is loaded, if there is one."""

    def make(load_newest):
        def load(folder):
            found, warnings = load_newest(folder)
            if found:
                found = change(found)
            return found, warnings

        return load

    return make


def with_training_state(found, **values):
    """A checkpoint with other values in the state of the encoder's training."""
    training = changed(found.state.training, **values)
    return changed(found, state=changed(found.state, training=training))


def with_a_step_more_of_adam(found):
    moments = {}
    for name, value in found.moments.items():
        moments[name] = value + 1 if name.endswith(".step") else value
    return changed(found, moments=moments)


def with_a_step_less(found):
    training = found.state.training
    return with_training_state(found, step=max(training.step - 1, training.first_step))


def without_best_score(found):
    return with_training_state(found, best_score=None)


def without_weights(found):
    return changed(found, weights={}, moments={})


# Trainings


def forgetting_the_linear_model(run_linear_stage):
    def fit(run, progress, *arguments):
        if progress.state.step:
            return None
        return run_linear_stage(run, progress, *arguments)

    return fit


def fitting_another_linear_model(run_linear_stage):
    def fit(run, progress, *arguments):
        if progress.state.linear_score is not None:
            plan = progress.prepared.plan
            other_plan = changed(plan, linear_max_tokens=2)
            progress.prepared = changed(progress.prepared, plan=other_plan)
        return run_linear_stage(run, progress, *arguments)

    return fit


def saving_no_mixture_weights(save_classifier):
    def save(classifier, *arguments, **options):
        default_mixture = type(classifier.mixture)()
        save_classifier(changed(classifier, mixture=default_mixture), *arguments, **options)

    return save


def loading_no_linear_model(load_classifier):
    def load(*arguments, **options):
        classifier = load_classifier(*arguments, **options)
        return changed(classifier, linear=None)

    return load


def keeping_all_metrics(init):
    def init_log(self, *arguments, resume_after, **options):
        if resume_after:
            resume_after = dict.fromkeys(resume_after, 10**9)
        init(self, *arguments, resume_after=resume_after, **options)

    return init_log


def changing_weights_in_validation(logits):
    def logits_and_change(self, *arguments, **options):
        found = logits(self, *arguments, **options)
        for parameter in self.model.parameters():
            parameter.data.mul_(0.999)
        return found

    return logits_and_change


def flipping_gradients(sum_gradients):
    def sum_and_flip(model, group):
        sum_gradients(model, group)
        for parameter in model.parameters():
            if parameter.grad is not None and not parameter.grad.is_sparse:
                parameter.grad = parameter.grad.flip(0)

    return sum_and_flip


def touching_the_base_run(compare_with_base_run):
    def compare(run, **options):
        if run.config.from_run:
            Path(run.config.from_run, "eval/compared").touch()
        return compare_with_base_run(run, **options)

    return compare


def beginning_anew(train):
    def train_anew(*arguments, **options):
        return train(*arguments, **options | {"resume": False})

    return train_anew


def reading_texts_backwards(from_entry):
    def read(entry):
        data = from_entry(entry)
        rows = list(range(len(data.texts)))
        rows.reverse()
        return data._replace(texts=data.texts.take(rows))

    return read


# Data


def in_any_order(values, **_options):
    return list(values)


def dropping_fields(rows):
    def two_fields(*arguments):
        for line, fields in rows(*arguments):
            yield line, fields[:2]

    return two_fields


def with_small_endings_only(texts_of):
    return lambda folder: [path for path in texts_of(folder) if path.suffix == ".txt"]


def with_hidden_folders(folder):
    return sorted(folder.iterdir())


def skipping_blank_lines(numbered_lines):
    def lines(*arguments):
        for where, line in numbered_lines(*arguments):
            if line.strip():
                yield where, line

    return lines


# Predictions


def protecting_no_folder(_, why):
    from encoder_cls.system.outputs import Taken

    return Taken(why)


def checking_each_output_alone(check_outputs):
    def check(outputs, **options):
        for output in outputs:
            check_outputs([output], **options)

    return check


def trusting_the_record(hash_of):
    def recorded_hash(path):
        record = path.parent / "_parts" / f"{path.stem}.json"
        if not record.is_file():
            return hash_of(path)
        return json.loads(record.read_bytes())["output_sha256"]

    return recorded_hash


def for_any_model(init):
    def init_folder(self, *arguments, **options):
        init(self, *arguments, **options)
        self._expected["model_sha256"] = ""

    return init_folder


def removing_recorded_predictions(part, record):
    if record.get("output", part.output.name) != part.output.name:
        (part.output.parent / record["output"]).unlink(missing_ok=True)


# The server


def stopping_at_once(stop_by):
    def stop(self, number):
        self.force_exit = True
        self.should_exit = True
        stop_by(self, number)

    return stop


def ignoring_a_second_signal(stop_by):
    def stop(self, number):
        if not self._service.batcher.is_stopping:
            stop_by(self, number)

    return stop


def with_another_exit_code(stop_by):
    def stop(self, number):
        stop_by(self, -1 if self._service.batcher.is_stopping else number)

    return stop


def keeping_the_port(setsockopt):
    def set_option(self, level, name, *values):
        if name != socket.SO_REUSEADDR:
            setsockopt(self, level, name, *values)

    return set_option


def predicting_by_the_first_model(submit):
    classifiers = []

    def submit_to_first(self, request, classifier):
        classifiers.append(classifier)
        return submit(self, request, classifiers[0])

    return submit_to_first


def reloading_silently(reload):
    def reload_silently(self):
        self._log = lambda _: None
        reload(self)

    return reload_silently


def appending_without_repair(_original):
    def append(_table, file, line):
        file.seek(0, os.SEEK_END)
        num_written = 0
        while num_written < len(line):
            num_written += file.write(line[num_written:])

    return append


def counting_bytes_forever(read):
    async def read_apart(self, request, body):
        apart = bytearray()
        await read(self, request, apart)
        body += apart
        self._held_bytes += len(apart)

    return read_apart


FILES = "encoder_cls.system.files"
LOAD_CHECKPOINT = "encoder_cls.run.checkpoint_files.load_newest"
RUN_LINEAR_STAGE = "encoder_cls.training.train.run_linear_stage"
OUTPUTS = "encoder_cls.run.output_checks"
PARTS = "encoder_cls.bulk.resumable_folder"
SERVER = "encoder_cls.serving.server._Server"

CACHE = "encoder_cls.system.cache"

FAULTS = [
    Fault(
        "a file is not flushed",
        case="flush-order[model",
        fraction=1,
        target="os.fsync",
        make=flushing_no_file,
    ),
    Fault(
        "a folder is not flushed",
        case="flush-order[model",
        fraction=1,
        target="os.fsync",
        make=flushing_no_folder,
    ),
    Fault(
        "a file is written in place",
        case="kill-every-call[model",
        fraction=1,
        target=f"{FILES}.write_file",
        make=writing_in_place,
    ),
    Fault(
        "a checkpoint has its name before its files",
        case="flush-order[checkpoints",
        fraction=1,
        target=f"{FILES}.write_folder",
        make=naming_a_folder_first,
    ),
    Fault(
        "the old checkpoint goes first",
        case="kill-every-call[checkpoints",
        fraction=1,
        target=f"{FILES}.write_folder",
        make=removing_older_folders_first,
    ),
    Fault(
        "what is half written stays",
        case="refuse-every-call[model",
        fraction=1,
        target="pathlib.Path.unlink",
        make=keeping_temporary_files,
    ),
    Fault(
        "a checkpoint's hash is not compared",
        case="bit-flips-checkpoint",
        fraction=0.05,
        target=f"{FILES}.sha256",
        make=constant(hash_of_zeros),
    ),
    Fault(
        "a model's hash is not compared",
        case="bit-flips-model",
        fraction=0.05,
        target=f"{FILES}.sha256",
        make=constant(hash_of_zeros),
    ),
    Fault(
        "sizes are not limited",
        case="hostile-model",
        fraction=1,
        target=f"{FILES}.MAX_BYTES",
        make=constant(10**18),
    ),
    Fault(
        "JSON is read however deep it is nested",
        case="damaged-runs[review-nested_json",
        fraction=1,
        target="encoder_cls.run.run_folder.read_json",
        make=constant(reading_any_json),
    ),
    Fault(
        "Adam's count of steps is one ahead",
        case="kill-forked",
        fraction=0.03,
        target=LOAD_CHECKPOINT,
        make=found_checkpoint(with_a_step_more_of_adam),
    ),
    Fault(
        "a resumed run goes on a step early",
        case="kill-forked",
        fraction=0.05,
        target=LOAD_CHECKPOINT,
        make=found_checkpoint(with_a_step_less),
    ),
    Fault(
        "the best score is forgotten",
        case="kill-forked",
        fraction=0.4,
        target=LOAD_CHECKPOINT,
        make=found_checkpoint(without_best_score),
    ),
    Fault(
        "a resumed run forgets the linear model",
        case="kill-forked",
        fraction=0.05,
        target=RUN_LINEAR_STAGE,
        make=forgetting_the_linear_model,
    ),
    Fault(
        "a resumed run fits another linear model",
        case="kill-forked",
        fraction=0.05,
        target=RUN_LINEAR_STAGE,
        make=fitting_another_linear_model,
    ),
    Fault(
        "mixture weights are not saved",
        case="saved-model",
        fraction=1,
        target="encoder_cls.classifier.model_folder.save_classifier",
        make=saving_no_mixture_weights,
    ),
    Fault(
        "the linear model is not loaded",
        case="saved-model",
        fraction=1,
        target="encoder_cls.classifier.model_folder.load_classifier",
        make=loading_no_linear_model,
    ),
    Fault(
        "linear features in any order are taken",
        case="hostile-model",
        fraction=1,
        target="encoder_cls.linear.linear_model.are_increasing",
        make=constant(lambda *_: True),
    ),
    Fault(
        "random numbers depend on what was drawn before",
        case="kill-forked",
        fraction=0.05,
        target="encoder_cls.encoder_training.training_step.seed_random_numbers",
        make=doing_nothing,
    ),
    Fault(
        "metrics are not cut on resume",
        case="kill-forked",
        fraction=0.1,
        target="encoder_cls.run.metrics_log.MetricsLog.__init__",
        make=keeping_all_metrics,
    ),
    Fault(
        "a signal is not heard",
        case="signals",
        fraction=0.2,
        target="encoder_cls.system.stop.check_stop",
        make=doing_nothing,
    ),
    Fault(
        "two may train in a folder",
        case="two-trainers",
        fraction=0.1,
        target="fcntl.flock",
        make=locks_that_are_shared,
    ),
    Fault(
        "classes are in the order of a hash table",
        case="metamorphic",
        fraction=0.5,
        target="encoder_cls.data.classes.sorted",
        make=constant(in_any_order),
    ),
    Fault(
        "validation changes the model",
        case="metamorphic",
        fraction=1,
        target="encoder_cls.encoder.torch_encoder.TorchEncoder.logits",
        make=changing_weights_in_validation,
    ),
    Fault(
        "what is no number is trained on",
        case="divergence",
        fraction=1,
        target="math.isfinite",
        make=constant(lambda _: True),
    ),
    Fault(
        "a full disk for the curves ends the run",
        case="full-tensorboard",
        fraction=1,
        target="encoder_cls.run.tensorboard.TensorBoard._warning_once",
        make=constant(lambda _: contextlib.nullcontext()),
    ),
    Fault(
        "surplus fields are dropped",
        case="csv-fuzz",
        fraction=0.3,
        target="encoder_cls.data.reading.delimited._rows",
        make=dropping_fields,
    ),
    Fault(
        "control characters are printed",
        case="predict-fuzz",
        fraction=0.1,
        target="encoder_cls.system.json_values.json_text",
        make=constant(functools.partial(json.dumps, ensure_ascii=False, allow_nan=False)),
    ),
    Fault(
        "what is read may be written over",
        case="outputs",
        fraction=0.3,
        target=f"{OUTPUTS}._files_of_source",
        make=constant(lambda _: ()),
    ),
    Fault(
        "an output may be among what is read",
        case="outputs",
        fraction=0.3,
        target=f"{OUTPUTS}.everything_in",
        make=constant(protecting_no_folder),
    ),
    Fault(
        "data of the run may be written over",
        case="outputs",
        fraction=0.5,
        target="encoder_cls.run.run_folder.RunDir.data_sources",
        make=constant(lambda _: []),
    ),
    Fault(
        "two outputs may be one file",
        case="outputs",
        fraction=0.5,
        target=f"{OUTPUTS}.check_outputs",
        make=checking_each_output_alone,
    ),
    Fault(
        "a temporary name is opened through a link",
        case="outputs",
        fraction=0.5,
        target="pathlib.Path.open",
        make=opening_through_links,
    ),
    Fault(
        "a replaced file gets another mode",
        case="outputs",
        fraction=0.5,
        target="pathlib.Path.chmod",
        make=doing_nothing,
    ),
    Fault(
        "a line of standard input has any length",
        case="sizes[0-line_of_standard_input]",
        fraction=1,
        target="encoder_cls.bulk.standard_input.LONGEST_LINE",
        make=constant(10**18),
    ),
    Fault(
        "a confusion matrix of any size is written",
        case="sizes[0-many_classes]",
        fraction=1,
        target="encoder_cls.metrics.classification.MAX_MATRIX_CLASSES",
        make=constant(10**9),
    ),
    Fault(
        "all texts of a page are explained",
        case="sizes[0-page_of_many_texts]",
        fraction=1,
        target="encoder_cls.bulk.html_format.MAX_EXPLAINED_ROWS",
        make=constant(10**9),
    ),
    Fault(
        "endings of texts are in small letters",
        case="folder-fuzz",
        fraction=0.2,
        target="encoder_cls.data.source_files.texts_of",
        make=with_small_endings_only,
    ),
    Fault(
        "hidden folders are classes",
        case="folder-fuzz",
        fraction=0.2,
        target="encoder_cls.data.source_files._visible",
        make=constant(with_hidden_folders),
    ),
    Fault(
        "blank lines have no prediction",
        case="folder-fuzz",
        fraction=0.2,
        target="encoder_cls.data.reading.text_lines.numbered_lines",
        make=skipping_blank_lines,
    ),
    Fault(
        "a stop leaves accepted requests without a response",
        case="serve-stop",
        fraction=0.2,
        target=f"{SERVER}.on_stop_signal",
        make=stopping_at_once,
    ),
    Fault(
        "a second signal is not heard",
        case="serve-stop[0-twice]",
        fraction=1,
        target=f"{SERVER}.on_stop_signal",
        make=ignoring_a_second_signal,
    ),
    Fault(
        "a second signal ends with another code",
        case="serve-stop[0-twice]",
        fraction=1,
        target=f"{SERVER}.on_stop_signal",
        make=with_another_exit_code,
    ),
    Fault(
        "the port of a killed server is kept",
        case="serve-kill",
        fraction=0.2,
        target="socket.socket.setsockopt",
        make=keeping_the_port,
    ),
    Fault(
        "one model predicts for another",
        case="serve-reload",
        fraction=0.3,
        target="encoder_cls.serving.request_queue.Batcher.submit",
        make=predicting_by_the_first_model,
    ),
    Fault(
        "what comes of a reload is not reported",
        case="serve-reload",
        fraction=0.1,
        target=f"{SERVER}._reload",
        make=reloading_silently,
    ),
    Fault(
        "bytes of finished requests stay counted",
        case="serve-hostile[0-too-many-texts]",
        fraction=1,
        target="encoder_cls.serving.app.Service._read",
        make=counting_bytes_forever,
    ),
    Fault(
        "idle connections keep their places",
        case="serve-hostile[0-idle-crowd]",
        fraction=1,
        target="encoder_cls.system.web.connections.Connection.is_waiting_for_client",
        make=constant(property(lambda _: False)),
    ),
    Fault(
        "labels are acknowledged before they are written",
        case="label-kill",
        fraction=0.1,
        target="encoder_cls.extras.label.label_table.LabelTable._append_line",
        make=doing_nothing,
    ),
    Fault(
        "a part of a label stays on a full disk",
        case="label-full-disk",
        fraction=0.3,
        target="encoder_cls.extras.label.label_table.LabelTable._append_line",
        make=appending_without_repair,
    ),
    Fault(
        "what a killed process began to write stays",
        case="parts-kill",
        fraction=0.2,
        target=f"{FILES}._remove_unfinished",
        make=constant(lambda *_, **__: None),
    ),
    Fault(
        "a part is done by two processes",
        case="parts-together",
        fraction=0.3,
        target=f"{PARTS}.locked",
        make=constant(lambda *_, **__: contextlib.nullcontext()),
    ),
    Fault(
        "predictions need not fit their record",
        case="parts-changed[0-damaged-predictions]",
        fraction=1,
        target=f"{PARTS}._hash_of",
        make=trusting_the_record,
    ),
    Fault(
        "another model's predictions count as done",
        case="parts-changed[0-another-model]",
        fraction=1,
        target=f"{PARTS}.ResumableFolder.__init__",
        make=for_any_model,
    ),
    Fault(
        "a record has the predictions for another part removed",
        case="parts-changed[0-the-record-of-another-part]",
        fraction=1,
        target=f"{PARTS}._remove_old_format",
        make=constant(removing_recorded_predictions),
    ),
    Fault(
        "an input that changes meanwhile is not noticed",
        case="parts-changed-meanwhile",
        fraction=0.3,
        target=f"{PARTS}._state_of",
        make=constant(lambda _: (0,)),
    ),
    Fault(
        "a full disk leaves a file that is half written",
        case="parts-full-disk",
        fraction=0.4,
        target="pathlib.Path.unlink",
        make=keeping_temporary_files,
    ),
    Fault(
        "a resumed run begins with its first weights again",
        case="kill-continued",
        fraction=0.06,
        target=LOAD_CHECKPOINT,
        make=found_checkpoint(without_weights),
    ),
    Fault(
        "something is written into the base run",
        case="kill-continued",
        fraction=0.01,
        target="encoder_cls.run.loaded_run._compare_with_base_run",
        make=touching_the_base_run,
    ),
    Fault(
        "gradients that processes share are in another order",
        case="kill-rank",
        fraction=0.2,
        target="encoder_cls.encoder_training.training_step.sum_gradients",
        make=flipping_gradients,
    ),
    Fault(
        "a search begins the trial of a killed process anew",
        case="kill-tune",
        fraction=0.2,
        target="encoder_cls.extras.tune.search.train",
        make=beginning_anew,
    ),
    Fault(
        "a damaged entry of the cache is used",
        case="damage-cache",
        fraction=1,
        target=f"{CACHE}._has_digest",
        make=constant(lambda *_: True),
    ),
    Fault(
        "what a killed process left in the cache stays",
        case="kill-cache",
        fraction=1,
        target=f"{CACHE}.remove_leftovers",
        make=doing_nothing,
    ),
    Fault(
        "the cache forgets whose texts come first",
        case="kill-cache",
        fraction=0.1,
        target="encoder_cls.text.tokenized_data._from_entry",
        make=reading_texts_backwards,
    ),
]


def put(fault):
    """Put a fault into this process."""
    owner, name, original = place_of(fault.target)
    replacement = fault.make(original)
    setattr(owner, name, replacement)

    is_own = isinstance(owner, ModuleType) and not isinstance(original, ModuleType)
    if not is_own or getattr(original, "__module__", owner.__name__) != owner.__name__:
        return

    # Modules that have imported the object have another reference to it.
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("encoder_cls") and vars(module).get(name) is original:
            setattr(module, name, replacement)


def place_of(target):
    """The owner of the attribute of a dotted name, the attribute's name and its value."""
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
