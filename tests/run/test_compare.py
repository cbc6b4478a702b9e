"""`encoder-cls compare`: the files of runs side by side."""

from __future__ import annotations

import csv
import json
import math
import shutil
import sys
from pathlib import Path

import pytest
from support.programs import assert_failed

from encoder_cls.classifier.mixture import Mixture
from encoder_cls.classifier.model_folder import load_classifier, save_classifier
from encoder_cls.run.compare import summarize
from encoder_cls.run.run_folder import RunDir, read_metrics


def read_report(run: RunDir) -> dict[str, object]:
    """Read the report of a run."""
    return json.loads((run.eval / "report.json").read_text("utf-8"))


def change_report(run: RunDir, **values: object) -> None:
    """Replace values of the report of a run."""
    report = read_report(run) | values
    (run.eval / "report.json").write_text(json.dumps(report), "utf-8")


@pytest.fixture
def other(run_copy) -> RunDir:
    """A second run, with another name, other settings, and an interval in its report."""
    run = RunDir(Path(shutil.copytree(run_copy.path, "runs/other")))
    config = run.config_file.read_text("utf-8")
    config = config.replace("name: tiny", "name: other")
    config = config.replace("d_model: 16", "d_model: 32")
    run.config_file.write_text(config, "utf-8")
    change_report(run, accuracy=0.5, accuracy_interval=[0.25, 0.75])
    return run


def test_runs_are_compared_in_a_table(cli, run_copy, other):
    """The table has a row for each run and each setting that differs; there is no warning."""
    outcome = cli("compare", "runs/tiny", "runs/other")

    assert outcome.code == 0
    assert outcome.err == ""

    lines = outcome.out.splitlines()
    accuracy = read_report(run_copy)["accuracy"]
    assert lines[1].split()[:2] == ["runs/tiny", f"{accuracy:.4f}"]
    assert lines[2].split()[:5] == ["runs/other", "0.5000", "0.2500", "to", "0.7500"]
    assert " MB" in lines[1]

    widths = {len(line) for line in lines[:3]}
    assert len(widths) == 1

    head, *settings = lines[4:]
    assert head.split() == ["settings", "that", "differ", "runs/tiny", "runs/other"]
    assert [line.split() for line in settings] == [["model.d_model", "16", "32"]]


def test_a_folder_means_the_runs_inside(cli, run_copy, other):
    Path("runs/notes").mkdir()

    assert cli("compare", "runs").out == cli("compare", "runs/other", "runs/tiny").out
    assert "runs/notes: not a run" in cli("compare", "runs/notes").err


def test_a_link_to_a_run_of_the_folder_is_not_a_second_run(cli, run_copy, other):
    """`--group` would else take it for another seed. Named by itself, it is a run."""
    without_link = cli("compare", "runs").out
    Path("runs/live").symlink_to("other")

    assert cli("compare", "runs").out == without_link
    named = cli("compare", "runs/live", "runs/other", "runs/tiny")
    assert named.out == without_link
    assert "runs/live" in cli("compare", "runs/tiny", "runs/live").out


def test_the_comparison_can_be_written_as_json(cli, run_copy, other):
    outcome = cli("compare", "runs/tiny", "runs/other", "--json")

    comparison = json.loads(outcome.out)
    assert comparison["differing_settings"] == ["model.d_model"]
    tiny, other_run = comparison["runs"]

    report = read_report(run_copy)
    for key in ("accuracy", "macro_f1", "ece", "num_examples", "split"):
        assert tiny[key] == report[key]
    assert tiny["model_bytes"] == sum(file.stat().st_size for file in run_copy.model.iterdir())
    assert tiny["parameters"] > 1000

    assert other_run["run"] == "runs/other"
    assert other_run["accuracy_interval"] == [0.25, 0.75]
    assert other_run["settings"]["model.d_model"] == 32
    assert tiny["data_sha256"] is not None
    assert tiny["data_sha256"] == other_run["data_sha256"]


def change_prediction(run: RunDir, key: str) -> None:
    """Change the text or the label of a prediction of a run."""
    path = run.eval / "predictions.jsonl"
    lines = path.read_text("utf-8").splitlines()
    record = json.loads(lines[3])
    record[key] += "x"
    lines[3] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n", "utf-8")


def assert_warns_of_texts(outcome, num_examples: int) -> None:
    """Assert that a comparison warns that the second run was scored on other texts."""
    assert outcome.code == 0
    assert outcome.err == (
        "warning: the runs were scored on different texts, so their scores do not compare "
        f"(runs/tiny: 15 of test; runs/other: {num_examples} of test)\n"
    )


def test_a_warning_says_that_the_texts_differ(cli, run_copy, other):
    change_prediction(other, "text")

    outcome = cli("compare", "runs/tiny", "runs/other")

    assert_warns_of_texts(outcome, 15)


def test_a_warning_says_that_the_numbers_of_texts_differ(cli, run_copy, other):
    change_report(other, num_examples=9)

    outcome = cli("compare", "runs/tiny", "runs/other")

    assert_warns_of_texts(outcome, 9)


def test_a_warning_says_that_labels_differ(cli, run_copy, other):
    """There is a warning if labels have been corrected between two runs."""
    change_prediction(other, "label")

    outcome = cli("compare", "runs/tiny", "runs/other")

    assert outcome.code == 0
    assert outcome.err == (
        "warning: some labels of the scored texts differ, as after corrections; encoder-cls eval "
        "runs/other --against runs/tiny scores both by the labels of the first\n"
    )


def test_a_run_without_a_report_is_shown_with_a_warning(cli, run_copy, other):
    shutil.rmtree(other.eval)

    outcome = cli("compare", "runs/tiny", "runs/other")

    assert outcome.code == 0
    assert outcome.err.startswith("warning: runs/other: no report yet; ")
    assert outcome.out.splitlines()[2].split()[:5] == ["runs/other", "-", "-", "-", "-"]


def test_a_folder_without_runs_is_refused(cli, run_copy):
    Path("empty").mkdir()

    assert_failed(cli("compare", "runs/tiny", "empty"), 2, "error: empty: not a run")


@pytest.mark.parametrize("content", ["[]", "[" * 100_000])
def test_a_file_that_is_no_report_is_refused(cli, run_copy, content):
    (run_copy.eval / "report.json").write_text(content)

    assert_failed(cli("compare", "runs/tiny"), 1, "report.json: not a report; write it again")


def test_pauses_do_not_count_as_training_time(run_copy):
    """Neither a night in which a run was stopped counts, nor a clock that is set back."""
    # Rows are two seconds apart, with a night after the fifth row, and the clock is set back by an
    # hour after the seventh row. The last line is incomplete.
    rows = read_metrics(run_copy.metrics_file)
    assert len(rows) > 8
    lines = []
    for number, row in enumerate(rows):
        row["time"] = 1000.0 + 2 * number
        if number > 4:
            row["time"] += 36_000
        if number > 6:
            row["time"] -= 3_600
        lines.append(json.dumps(row))
    lines.append('{"half')
    run_copy.metrics_file.write_text("\n".join(lines), "utf-8")

    seconds = summarize(run_copy.path)["seconds"]

    assert seconds == pytest.approx(2 * (len(rows) - 3))


def test_a_run_that_ended_without_its_encoder_has_no_parameters(run_copy):
    """A run may have trained an encoder, and still have the linear model alone as its model."""
    assert summarize(run_copy.path)["parameters"] > 1000

    classifier = load_classifier(run_copy.path)
    classifier.encoder = None
    classifier.mixture = Mixture()
    save_classifier(classifier, run_copy.model)

    assert summarize(run_copy.path)["parameters"] is None


@pytest.fixture
def seeded(run_copy, other) -> RunDir:
    """A third run, equal to the first one but for its seed and its scores."""
    run = RunDir(Path(shutil.copytree(run_copy.path, "runs/tiny-2")))
    config = run.config_file.read_text("utf-8").replace("\nseed: 0", "\nseed: 7")
    run.config_file.write_text(config, "utf-8")
    change_report(run_copy, accuracy=0.5, macro_f1=0.75)
    change_report(run, accuracy=0.7, macro_f1=0.75)
    return run


def test_runs_that_differ_in_seed_alone_are_one_row(cli, run_copy, other, seeded):
    """The row has means, sample standard deviations and the number of runs."""
    outcome = cli("compare", "runs/tiny", "runs/other", "runs/tiny-2", "--group")

    head, first, second, _, settings_head, setting = outcome.out.splitlines()
    assert head.split()[:4] == ["run", "accuracy", "runs", "p"]
    assert first.split()[:7] == ["runs/tiny", "0.6000", "±", "0.1414", "2", "-", "0.7500"]
    assert second.split()[:4] == ["runs/other", "0.5000", "1", "-"]
    assert settings_head.split()[-2:] == ["runs/tiny", "runs/other"]
    assert setting.split() == ["model.d_model", "16", "32"]

    groups = json.loads(cli("compare", "runs", "--group", "--json").out)["groups"]
    (pair,) = [group for group in groups if group["n"] == 2]
    assert pair["runs"] == ["runs/tiny", "runs/tiny-2"]
    assert pair["seeds"] == [0, 7]
    assert pair["accuracy"] == pytest.approx(0.6)
    assert pair["accuracy_deviation"] == pytest.approx(0.02**0.5)


def test_a_group_can_be_named_by_a_pattern_and_tested_against_the_best(cli, run_copy, seeded):
    for number in range(3):
        run = RunDir(Path(shutil.copytree(run_copy.path, f"runs/large-{number}")))
        change_report(run, accuracy=0.9, macro_f1=0.7)
    command = ["compare", "--group", "small=runs/tiny*", "large=runs/large-?"]

    small, large = json.loads(cli(*command, "--json").out)["groups"]
    assert small["runs"] == ["runs/tiny", "runs/tiny-2"]
    assert [large["name"], large["n"]] == ["large", 3]

    lines = cli(*command, "--format", "markdown").out.splitlines()
    # The difference of .3 has a standard error of .1 and one degree of freedom: t is 3, and its
    # distribution that of Cauchy.
    p_value = 1 - 2 / math.pi * math.atan(3)
    assert f"| small | 0.6000 ± 0.1414 | 2 | {p_value:.4f} | **0.7500" in lines[2]
    assert "| large | **0.9000 ± 0.0000** | 3 | - | 0.7000" in lines[3]

    refused = cli("compare", "--group", "none=runs/none-*")
    assert_failed(refused, 2, "none=runs/none-*: no run matches 'runs/none-*'")


def test_tables_can_be_markdown_latex_and_csv(cli, run_copy, other, seeded):
    """Markup in names is escaped; CSV has unrounded numbers, and settings as further columns."""
    run_copy.path.rename("runs/a_b")
    command = ["compare", "runs/a_b", "runs/other", "runs/tiny-2", "--group", "--format"]

    markdown = cli(*command, "markdown").out
    assert "| --- | ---: | ---: |" in markdown
    assert r"| runs/a\_b | **0.6000 ± 0.1414** | 2 | - |" in markdown
    assert r"| model.d\_model | 16 | 32 |" in markdown

    latex = cli(*command, "latex").out
    assert r"runs/a\_b & \textbf{0.6000 $\pm$ 0.1414} & 2 & - & " in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2

    first, second = csv.DictReader(cli(*command, "csv").out.splitlines())
    assert float(first["accuracy"]) == pytest.approx(0.6)
    assert float(first["accuracy_deviation"]) == pytest.approx(0.02**0.5)
    assert first["model.d_model"] == "16"
    assert second["accuracy_deviation"] == ""

    assert_failed(cli(*command, "csv", "--json"), 2, "--json and --format csv: two formats")


def test_a_file_has_the_curves_of_runs(cli, run_copy, other, monkeypatch):
    """Without matplotlib, a report has no picture, and curves name what installs it."""
    outcome = cli("compare", "runs/tiny", "runs/other", "--curves", "curves.svg")

    assert outcome.code == 0
    assert outcome.err == "wrote curves.svg\n"
    first = Path("curves.svg").read_bytes()
    assert first.startswith(b"<?xml")
    assert cli("compare", "runs/tiny", "runs/other", "--curves", "curves.svg").code == 0
    assert Path("curves.svg").read_bytes() == first

    refused = cli("compare", "runs/tiny", "--curves", "curves.gif")
    assert_failed(refused, 2, "--curves curves.gif: unknown ending '.gif'", ".svg")
    refused = cli("compare", "runs/tiny", "--curves", "runs/tiny/model/curves.svg")
    assert_failed(refused, 2, "is a part of")

    with monkeypatch.context() as without_matplotlib:
        without_matplotlib.setitem(sys.modules, "matplotlib", None)
        refused = cli("compare", "runs/tiny", "--curves", "curves.svg")
        assert_failed(refused, 2, "needs matplotlib: pip install 'encoder-cls[plots]'")
        assert cli("eval", run_copy.path).code == 0
    assert (run_copy.eval / "report.html").exists()
    assert not (run_copy.eval / "confusion_matrix.png").exists()

    run_copy.metrics_file.write_text("")
    assert_failed(cli("compare", "runs/tiny", "--curves", "a.png"), 2, "no run has trained an enc")
    assert not Path("a.png").exists()
