"""`predict --runner ray`: which places it takes, and its answers where Ray is installed."""

from __future__ import annotations

import fsspec
import pyarrow
import pyarrow.parquet as pq
import pytest

from encoder_cls.bulk.ray_spark import Predictor, check_places
from encoder_cls.errors import ConfigError, DataError


@pytest.fixture
def store(tmp_path):
    """A folder of an object store with files of texts in it."""
    system = fsspec.filesystem("memory")
    for number, texts in enumerate((["rain today", "the match"], [None, "snow"])):
        with system.open(f"/in/part-{number}.parquet", "wb") as file:
            pq.write_table(pyarrow.table({"text": pyarrow.array(texts, pyarrow.string())}), file)
    yield system
    system.store.clear()


@pytest.mark.parametrize(
    ("source", "output", "error", "message"),
    [
        ("memory://in", "memory://in", ConfigError, "is where the input is"),
        ("memory://in/part-0.parquet", "memory://in/", ConfigError, "exists already"),
        ("memory://in", "memory://out/../in", ConfigError, "is where the input is"),
        ("memory://in", "memory://in/deeper", ConfigError, "is where the input is"),
        ("simplecache::memory://in", "memory://in", ConfigError, "exists already"),
        ("memory://nothing", "memory://out", DataError, "no Parquet file there"),
        ("nowhere://in", "memory://out", ConfigError, "nowhere"),
    ],
)
def test_places_that_cannot_be_are_refused(store, trained_run, source, output, error, message):
    with pytest.raises(error, match=message):
        check_places(source, output, model=trained_run.path)


def test_no_output_is_where_files_of_this_machine_are_read(trained_run, tmp_path):
    """The input by any of its names, the model and the data of its run are refused."""
    (tmp_path / "in").mkdir()
    pq.write_table(pyarrow.table({"text": ["rain"]}), "in/part.parquet")
    (tmp_path / "link").symlink_to("in")
    places = (
        "in",
        "in/new",
        "link",
        "link/new",
        "in/../in",
        "simplecache::file://link",
        f"file://{tmp_path}/in",
    )
    for output in (
        *places,
        str(trained_run.model),
        str(trained_run.model / "new"),
        str(trained_run.path),
    ):
        with pytest.raises(
            ConfigError,
            match=r"is among what is read|is a file that is read|is a part of|exists already",
        ):
            check_places("in", output, model=trained_run.path)
    assert check_places("in", "out", model=trained_run.path)


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_predicts_every_row(cli, trained_run):
    """Once, beside its columns; where the model cannot answer, in one line."""
    pytest.importorskip("ray.data", reason="Ray is not installed")
    rows = pyarrow.table({"id": range(4), "text": ["rain today", "the match", None, "snow"]})
    for folder in ("in", "bad"):
        fsspec.filesystem("file").mkdir(folder)
    pq.write_table(rows.slice(0, 2), "in/a.parquet")
    pq.write_table(rows.slice(2), "in/b.parquet")
    command = [
        "predict",
        "--runner",
        "ray",
        "--workers",
        1,
        "--model",
        trained_run.path,
        "--engine",
        "numpy",
    ]
    outcome = cli(*command, "--input", "in", "--output", "out")
    assert (outcome.code, outcome.err.splitlines()[-1:]) == (0, ["out: the predictions for 4 rows"]), (
        outcome.err
    )
    expected = Predictor(str(trained_run.path))(rows)
    assert pq.read_table("out").sort_by("id").equals(expected)
    pq.write_table(pyarrow.table({"words": ["rain"]}), "bad/a.parquet")
    outcome = cli(*command, "--input", "bad", "--output", "other")
    assert outcome.code == 3
    assert "no column 'text', which the model reads" in outcome.err.splitlines()[-1]
