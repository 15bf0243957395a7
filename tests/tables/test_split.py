"""Splits: disjoint, balanced, with a share of every label."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise import LabelBins
from tailwise.data import label_holdout, pooled_split

labels = st.one_of(
    st.lists(st.integers(-5, 40), min_size=1, max_size=300),
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=300),
)


@given(st.lists(st.integers(0, 6), min_size=3, max_size=120), st.integers(0, 5), st.integers(0, 99))
def test_pooled_split_keeps_the_test_rows_of_all_seeds_apart(y: list[int], per_bin: int, seed: int) -> None:
    a, b = (pooled_split(y, per_bin=per_bin, seed=s) for s in (seed, seed + 1))
    for one, other in ((a, a), (a, b), (b, a)):
        assert not set(one.test) & (set(other.train) | set(other.valid))
    assert not set(a.train) & set(a.valid)
    values = np.array(y)
    for part in (a.valid, a.test):
        taken = np.minimum(per_bin, np.bincount(values, minlength=7) // 3)
        np.testing.assert_array_equal(np.bincount(values[part], minlength=7), taken)
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


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9, 1.0])
@pytest.mark.parametrize("y", [[3.0], [1.0, 2.0], [0.0, 7.0, 50.0]])
def test_a_row_is_always_left_to_train_on(y: list[float], share: float) -> None:
    kept = [len(y) - len(label_holdout(y, share=share, seed=s, pool_small=True)) for s in range(100)]
    assert min(kept) >= 1 and (share > 0 or max(kept) == len(y))
