"""`predict --runner ray`: which places it takes, and its predictions where Ray is installed."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pyarrow
import pyarrow.parquet as pq
import pytest

from encoder_cls import Predictor
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.extras.ray.runner import check_places


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


INSIDE = "is inside what is read"


@pytest.mark.parametrize(
    ("source", "output", "error", "message"),
    [
        ("memory://in", "memory://in", ConfigError, INSIDE),
        ("memory://in", "memory://out/../in/deeper", ConfigError, INSIDE),
        ("memory://in/part-0.parquet", "memory://in/", ConfigError, "exists already"),
        ("memory://nothing", "memory://out", DataError, "no Parquet file there"),
        ("nowhere://in", "memory://out", ConfigError, "nowhere"),
        ("in", "in/new", ConfigError, INSIDE),
        ("in", "link/new", ConfigError, INSIDE),
        ("in", "file://{current}/link", ConfigError, INSIDE),
        ("in", "{run}/model/new", ConfigError, INSIDE),
    ],
)
@pytest.mark.usefixtures("store")
def test_impossible_places_are_refused(trained_run, source, output, error, message):
    """Folders of this machine are known by any of their names."""
    Path("in").mkdir()
    pq.write_table(pyarrow.table({"text": ["rain"]}), "in/part.parquet")
    Path("link").symlink_to("in")
    output = output.format(current=Path.cwd(), run=trained_run.path)

    with pytest.raises(error, match=message):
        check_places(source, output, model=trained_run.path)


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
