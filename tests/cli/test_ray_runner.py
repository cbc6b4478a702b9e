"""What a worker of `predict --runner ray` does with a file, without Ray (`scripts/benchmarks/cluster.py` runs one)."""

from __future__ import annotations

import json

import fsspec
import pyarrow
import pyarrow.parquet as pq
import pytest

from encoder_cls.answers import batches as ray_runner
from encoder_cls.answers.batches import PartWorker, Predictor, Work, remote_parts
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.inference.folder import CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE


@pytest.fixture
def store(tmp_path):
    """A folder of the object store, with three files of texts in it."""
    system = fsspec.filesystem("memory")
    for number, texts in enumerate((["rain today", "the match"], [None, "snow"], [])):
        table = pyarrow.table({"id": range(len(texts)), "text": pyarrow.array(texts, pyarrow.string())})
        with system.open(f"/in/part-{number}.parquet", "wb") as file:
            pq.write_table(table, file)
    yield system
    system.store.clear()


def worker_of(run, *, sha256="abc"):
    files = {name: (run.model / name).read_bytes() for name in (CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE)}
    return PartWorker(Work("memory://in", "memory://out", files, sha256, "numpy"))


def read(system, path):
    with system.open(path) as file:
        return pq.read_table(file)


def test_every_row_is_answered_once(store, trained_run, monkeypatch):
    """In its place, beside its columns; what is done is not done again."""
    monkeypatch.setattr(ray_runner, "BATCH_ROWS", 1)
    parts, worker = remote_parts("memory://in", "memory://out", model=trained_run.path), worker_of(trained_run)
    assert [worker.answer(part)[1:] for part in parts] == [(2, True), (2, True), (0, True)]
    assert sorted(store.ls("/out", detail=False)) == ["/out/_parts", *(f"/out/part-{n}.parquet" for n in range(3))]
    predictor = Predictor(str(trained_run.path))
    for number in range(3):
        expected = predictor(read(store, f"/in/part-{number}.parquet"))
        assert read(store, f"/out/part-{number}.parquet").equals(expected)
    assert read(store, "/out/part-1.parquet")["reason"].to_pylist() == ["blank", None]
    assert [worker.answer(part)[1:] for part in parts] == [(2, False), (2, False), (0, False)]


def test_what_is_not_as_it_was_is_answered_again(store, trained_run):
    """Another model, another input, answers without their record, or of another size."""
    (part, *_), worker = remote_parts("memory://in", "memory://out", model=trained_run.path), worker_of(trained_run)
    worker.answer(part)
    assert worker_of(trained_run, sha256="other").answer(part)[2]
    assert worker.answer(part)[2]
    store.rm(part.record)
    assert worker.answer(part)[2]
    with store.open(part.output, "ab") as file:
        file.write(b"more")
    assert worker.answer(part)[2]
    assert not worker.answer(part)[2]
    with store.open(part.record, "wb") as file:
        file.write(b"[1]")
    assert worker.answer(part)[2]
    assert json.loads(store.cat_file(part.record))["rows"] == 2


def test_a_file_that_cannot_be_read_is_named(store, trained_run):
    """And leaves no answers to it."""
    with store.open("/in/part-0.parquet", "wb") as file:
        file.write(b"no parquet")
    with store.open("/in/part-1.parquet", "wb") as file:
        pq.write_table(pyarrow.table({"words": ["rain"]}), file)
    worker = worker_of(trained_run)
    for part, message in zip(
        remote_parts("memory://in", "memory://out", model=trained_run.path),
        ("cannot be read", "no column"),
        strict=False,
    ):
        with pytest.raises(DataError, match=f"{part.source}.*{message}"):
            worker.answer(part)
        assert not store.exists(part.output)
        assert not store.exists(part.record)


@pytest.mark.parametrize(
    ("source", "output", "error", "message"),
    [
        ("memory://in", "memory://in", ConfigError, "is where the input is"),
        ("memory://in/part-0.parquet", "memory://in/", ConfigError, "is where the input is"),
        ("memory://in", "memory://out/../in", ConfigError, "is where the input is"),
        ("simplecache::memory://in", "memory://in", ConfigError, "is where the input is"),
        ("memory://nothing", "memory://out", DataError, "no Parquet file there"),
        ("nowhere://in", "memory://out", ConfigError, "nowhere"),
    ],
)
def test_places_that_cannot_be_are_refused(store, trained_run, source, output, error, message):
    """Before any work."""
    with pytest.raises(error, match=message):
        remote_parts(source, output, model=trained_run.path)


def test_no_output_replaces_files_of_this_machine_that_are_read(trained_run, tmp_path, monkeypatch):
    """The input by any of its names, a file linked to it, and the model are refused."""
    monkeypatch.chdir(tmp_path)
    for folder in ("in", "linked"):
        (tmp_path / folder).mkdir()
    pq.write_table(pyarrow.table({"text": ["rain"]}), "in/part.parquet")
    (tmp_path / "link").symlink_to("in")
    (tmp_path / "linked" / "part.parquet").hardlink_to("in/part.parquet")
    places = ("in", "link", "in/../in", "simplecache::file://link", f"file://{tmp_path}/in", "linked")
    for output in (*places, str(trained_run.model)):
        with pytest.raises(ConfigError, match=r"is among what is read|is a file that is read|is a part of"):
            remote_parts("in", output, model=trained_run.path)
    assert remote_parts("in", "out", model=trained_run.path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--runner", "dask"], "known runners are local, ray"),
        (["--runner", "ray"], "needs --input and --output"),
        (["--runner", "ray", "--input", "i", "--output", "o", "--explain", "--device", "cpu"], "--device, --explain"),
    ],
)
def test_options_that_this_runner_has_not_are_refused(cli, options, message):
    """Nothing is passed over in silence."""
    outcome = cli("predict", *options)
    assert outcome.code == 2
    assert message in outcome.err
