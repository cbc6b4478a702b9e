"""`predict --runner ray`: which places it takes, and its predictions where Ray is installed."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pyarrow
import pyarrow.parquet as pq
import pytest

from encoder_cls.bulk.ray_spark import Predictor, check_places
from encoder_cls.errors import ConfigError, DataError


@pytest.fixture
def store():
    """An object store whose folder `in` has files of texts."""
    system = fsspec.filesystem("memory")
    for number, texts in enumerate((["rain today", "the match"], [None, "snow"])):
        table = pyarrow.table({"text": pyarrow.array(texts, pyarrow.string())})
        with system.open(f"/in/part-{number}.parquet", "wb") as file:
            pq.write_table(table, file)
    yield system
    system.store.clear()


@pytest.mark.parametrize(
    ("source", "output", "error", "message"),
    [
        ("memory://in", "memory://in", ConfigError, "is inside the input"),
        ("memory://in/part-0.parquet", "memory://in/", ConfigError, "exists already"),
        ("memory://in", "memory://out/../in", ConfigError, "is inside the input"),
        ("memory://in", "memory://in/deeper", ConfigError, "is inside the input"),
        ("simplecache::memory://in", "memory://in", ConfigError, "exists already"),
        ("memory://nothing", "memory://out", DataError, "no Parquet file there"),
        ("nowhere://in", "memory://out", ConfigError, "nowhere"),
    ],
)
@pytest.mark.usefixtures("store")
def test_impossible_places_are_refused(trained_run, source, output, error, message):
    with pytest.raises(error, match=message):
        check_places(source, output, model=trained_run.path)


@pytest.fixture
def folder_of_this_machine() -> None:
    """The folder `in`, and a link to it."""
    Path("in").mkdir()
    pq.write_table(pyarrow.table({"text": ["rain"]}), "in/part.parquet")
    Path("link").symlink_to("in")


@pytest.mark.parametrize(
    "output",
    [
        "in",
        "in/new",
        "link",
        "link/new",
        "in/../in",
        "simplecache::file://link",
        "file://{current}/in",
        "{run}",
        "{run}/model",
        "{run}/model/new",
    ],
)
@pytest.mark.usefixtures("folder_of_this_machine")
def test_no_output_is_where_files_of_this_machine_are_read(trained_run, output):
    """The input by any of its names, and the run of the model, are refused."""
    output = output.format(current=Path.cwd(), run=trained_run.path)
    refusal = r"is in a folder that is read|is a file that is read|is a part of|exists already"

    with pytest.raises(ConfigError, match=refusal):
        check_places("in", output, model=trained_run.path)


@pytest.mark.usefixtures("folder_of_this_machine")
def test_another_folder_of_this_machine_can_be_written_to(trained_run):
    source, target = check_places("in", "out", model=trained_run.path)

    assert source.path == str(Path("in").absolute())
    assert target.path == str(Path("out").absolute())


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_predicts_every_row(cli, trained_run):
    """Each row is predicted once, beside its columns; a missing column is named in one line."""
    pytest.importorskip("ray.data", reason="Ray is not installed")
    rows = pyarrow.table({"id": range(4), "text": ["rain today", "the match", None, "snow"]})
    Path("in").mkdir()
    pq.write_table(rows.slice(0, 2), "in/a.parquet")
    pq.write_table(rows.slice(2), "in/b.parquet")
    Path("bad").mkdir()
    pq.write_table(pyarrow.table({"words": ["rain"]}), "bad/a.parquet")
    command = ["predict", "--runner", "ray", "--workers", 1, "--engine", "numpy"]
    command += ["--model", trained_run.path]

    outcome = cli(*command, "--input", "in", "--output", "out")
    assert outcome.code == 0, outcome.err
    assert outcome.err.splitlines()[-1] == "out: the predictions for 4 rows"
    expected = Predictor(str(trained_run.path))(rows)
    assert pq.read_table("out").sort_by("id").equals(expected)

    outcome = cli(*command, "--input", "bad", "--output", "other")
    assert outcome.code == 3
    assert "no column 'text', which the model reads" in outcome.err.splitlines()[-1]
