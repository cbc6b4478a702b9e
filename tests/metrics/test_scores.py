"""The table of scores agrees with the metrics that are computed, and with the config."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from encoder_cls.config.schema import TrainConfig
from encoder_cls.evaluation.comparisons import INTERVALS
from encoder_cls.metrics.classification import MultiLabelMetrics, SingleLabelMetrics
from encoder_cls.metrics.scores import ALL_SCORES, SCORES, main_score, scores_of_task
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL


@pytest.mark.parametrize("metrics", [SingleLabelMetrics, MultiLabelMetrics])
def test_the_scores_of_a_task_are_fields_of_its_metrics(metrics):
    keys = {score.key for score in scores_of_task(metrics.task)}

    assert keys <= {field.name for field in fields(metrics)}


def test_keys_and_names_are_unique():
    assert len(SCORES) == len(ALL_SCORES)
    assert len({score.name for score in ALL_SCORES}) == len(ALL_SCORES)


@pytest.mark.parametrize("task", [SINGLE_LABEL, MULTI_LABEL])
def test_a_task_has_one_main_score_which_has_an_interval(task):
    """`main_score` fails if a task has several main scores, or none."""
    assert task in main_score(task).interval_in


def test_each_interval_of_the_table_can_be_computed():
    with_interval = {score.key for score in ALL_SCORES if score.interval_in}

    assert set(INTERVALS) == with_interval


def test_the_config_takes_the_scores_that_can_be_monitored():
    taken = get_args(get_type_hints(TrainConfig)["monitor"])

    assert set(taken) == {score.key for score in ALL_SCORES if score.can_be_monitored}
