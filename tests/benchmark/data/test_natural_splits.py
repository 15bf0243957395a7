"""Natural splits: random rows, a limit on training rows, and the rarest test labels."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from tailwise.benchmark import Source
from tailwise.benchmark.data.natural_splits import natural_split
from tailwise.benchmark.data.suites import generated

SOURCE = Source("toy", "y", partial(generated, rows=1000), leaks=("x7",))


def test_rows_are_split_at_random_and_training_rows_limited() -> None:
    split = natural_split(SOURCE, 0, max_rows=300)
    assert (len(split.y_train), len(split.y_test), split.total) == (300, 200, 1000)
    assert list(split.x_train.columns) == list(split.x_test.columns)
    assert "y" not in split.x_train and "x7" not in split.x_train and "kind" in split.x_train
    labels = generated(rows=1000)["y"].to_numpy()
    assert set(split.y_train) | set(split.y_test) <= set(labels)
    assert not set(split.y_train) & set(split.y_test)
    assert len(natural_split(SOURCE, 0).y_train) == 800
    np.testing.assert_array_equal(
        split.y_test, natural_split(SOURCE, 0).y_test
    )  # the limit is on training only


def test_a_seed_always_gives_the_same_rows_and_another_one_others() -> None:
    digests = [natural_split(SOURCE, seed).digest for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


def test_rows_without_a_label_are_dropped() -> None:
    table = generated(rows=100)
    table.loc[:9, "y"] = np.nan
    assert natural_split(Source("gaps", "y", lambda: table), 0).total == 90


def test_the_rarest_labels_are_those_far_from_the_others() -> None:
    split = natural_split(SOURCE, 0)
    assert split.rare.sum() == 30  # 15% of 200
    # The labels have one long right tail: the rarest are the largest, and a few of the smallest.
    assert split.y_test[split.rare].mean() > 2 * split.y_test[~split.rare].mean()
    assert split.rare[split.y_test.argmax()] and not split.rare[np.argsort(split.y_test)[100]]


def test_rarity_goes_by_training_labels_alone() -> None:
    split = natural_split(SOURCE, 0)
    # With all training labels near the largest test label, that label is no longer rare.
    top = split.y_test.max()
    moved = replace(split, y_train=top + np.random.default_rng(0).normal(size=800))
    assert split.rare[split.y_test.argmax()] and not moved.rare[split.y_test.argmax()]


def test_equal_labels_are_ordered_at_random_by_the_seed() -> None:
    table = pd.DataFrame({"x": np.arange(400.0), "y": np.repeat([0.0, 1.0], 200)})
    splits = [natural_split(Source("two", "y", lambda: table), seed) for seed in (0, 0, 1)]
    assert [split.rare.sum() for split in splits] == [12, 12, 12]
    np.testing.assert_array_equal(splits[0].rare, splits[1].rare)
