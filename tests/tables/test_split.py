"""Splits: disjoint, covering, balanced, the same for the same seed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise import LabelBins
from tailwise.data import balanced_split, label_holdout, pooled_split, random_split
from tailwise.tables.split import dir_split

labels = st.one_of(
    st.lists(st.integers(-5, 40), min_size=1, max_size=300),
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=300),
)


def assert_covers(split, n):
    parts = [split.train, split.valid, split.test]
    assert all(part.dtype == np.int64 for part in parts)
    assert all((np.diff(part) > 0).all() for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))


def assert_same(first, second):
    for part in ("train", "valid", "test"):
        np.testing.assert_array_equal(getattr(first, part), getattr(second, part))


@given(y=labels, per_bin=st.integers(0, 30), seed=st.integers(0, 2**32))
def test_balanced_split_keeps_its_rule_in_every_bin(y, per_bin, seed):
    bins = LabelBins.from_labels(y)
    split = balanced_split(y, bins=bins, per_bin=per_bin, seed=seed)
    assert_covers(split, len(y))
    train, valid, test = (
        np.bincount(bins.index(np.asarray(y)[part]), minlength=len(bins))
        for part in (split.train, split.valid, split.test)
    )
    np.testing.assert_array_equal(valid, np.minimum(per_bin, bins.counts // 3))
    np.testing.assert_array_equal(valid, test)
    assert (train >= -(-bins.counts // 3)).all()
    assert ((train > 0) == (bins.counts > 0)).all()


@given(n=st.integers(1, 400), valid=st.floats(0, 0.49), test=st.floats(0, 0.49), seed=st.integers(0))
def test_random_split_has_the_shares_asked_for(n, valid, test, seed):
    split = random_split(n, valid=valid, test=test, seed=seed)
    assert_covers(split, n)
    assert len(split.train) >= 1
    assert abs(len(split.valid) - valid * n) <= 1
    assert abs(len(split.test) - test * n) <= 1
    assert_same(split, random_split(n, valid=valid, test=test, seed=seed))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n must be a whole number of at least 1"),
        ({"n": 5, "valid": 1.0}, "valid is a share of the rows"),
        ({"n": 5, "test": -0.1}, "test is a share of the rows"),
        ({"n": 5, "valid": 0.5, "test": 0.5}, "leave no rows for training"),
    ],
)
def test_random_split_says_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        random_split(**arguments)


@given(st.lists(st.integers(0, 6), min_size=3, max_size=120), st.integers(0, 5), st.integers(0, 99))
def test_pooled_split_keeps_the_test_rows_of_all_seeds_apart(y: list[int], per_bin: int, seed: int) -> None:
    a, b = (pooled_split(y, per_bin=per_bin, seed=s) for s in (seed, seed + 1))
    for one, other in ((a, a), (a, b), (b, a)):
        assert not set(one.test) & (set(other.train) | set(other.valid))
    assert not set(a.train) & set(a.valid)
    plain = balanced_split(y, per_bin=per_bin, seed=seed)
    values = np.array(y)
    for part in ("valid", "test"):  # as many of every bin as without a pool
        counts = [np.bincount(values[getattr(split, part)], minlength=7) for split in (a, plain)]
        np.testing.assert_array_equal(*counts)
    kept = np.bincount(values[a.train], minlength=7)
    assert (3 * kept >= np.bincount(values, minlength=7)).all()


@given(y=labels, share=st.floats(0.05, 0.9), seed=st.integers(0, 2**32))
def test_pooling_changes_only_what_small_bins_give(y: list[float], share: float, seed: int) -> None:
    index = LabelBins.from_labels(y).index(np.asarray(y))
    counts = np.bincount(index)
    large = (min(share, 1 - share) * counts >= 1)[index]
    plain, pooled = (label_holdout(y, share=share, seed=seed, pool_small=pool) for pool in (False, True))
    np.testing.assert_array_equal(plain[large[plain]], pooled[large[pooled]])
    rows, drawn = int((~large).sum()), int((~large[pooled]).sum())
    pools = 1 + min(share, 1 - share) * rows
    assert abs(drawn - share * rows) <= pools  # each pool rounds its own share, and has a row for each part
    assert len(pooled) < len(y)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 0.85])
def test_every_label_has_its_share_of_chances_to_be_held_out_extremes_included(share: float) -> None:
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.uniform(0, 1, 200), [-9.0, 1.5, 1.6], np.geomspace(2, 40, 14)])
    counts = LabelBins.from_labels(y).counts
    assert (counts == 1).sum() >= 8 and counts.max() > 50  # a crowd, and labels alone in their bins
    draws = 500
    held = np.zeros(y.size)
    for seed in range(draws):
        held[label_holdout(y, share=share, seed=seed, pool_small=True)] += 1
    # Binomial(draws, share): five standard deviations, for 217 rows.
    assert np.abs(held - share * draws).max() < 5 * np.sqrt(draws * share * (1 - share))


def test_small_bins_are_pooled_with_their_neighbours() -> None:
    y = np.array([0] * 50 + [1] * 50 + list(range(10, 101, 10)))  # ten labels alone in their bins
    for seed in range(50):
        low, high = y[label_holdout(y, share=0.2, seed=seed, pool_small=True)][-2:]
        assert 10 <= low <= 50 and 60 <= high <= 100  # one of each five
    assert not any((y[label_holdout(y, share=0.2, seed=seed)] > 1).any() for seed in range(50))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9, 1.0])
@pytest.mark.parametrize("y", [[3.0], [1.0, 2.0], [0.0, 7.0, 50.0]])
def test_a_row_is_always_left_to_train_on(y: list[float], share: float) -> None:
    kept = [len(y) - len(label_holdout(y, share=share, seed=s, pool_small=True)) for s in range(100)]
    assert min(kept) >= 1 and (share > 0 or max(kept) == len(y))


def test_dir_split_takes_a_third_of_each_label_up_to_a_maximum() -> None:
    y = np.repeat([1.0, 2.5, 7.0], [200, 10, 2])
    split = dir_split(y, per_label=30)
    for part in (split.valid, split.test):
        assert np.unique(y[part], return_counts=True)[1].tolist() == [30, 3]
    assert sorted([*split.train, *split.valid, *split.test]) == list(range(212))
    assert not np.array_equal(dir_split(y, seed=1).test, split.test)
