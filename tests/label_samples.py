"""Labels that tests of bins, kernels and weights share."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

law = settings(deadline=None, derandomize=True, max_examples=50)


def labels_with_counts(counts: list[int], start: int = 0) -> NDArray[np.float64]:
    """Integer labels start, start + 1, ... with the given number of each."""
    return np.repeat(np.arange(start, start + len(counts)), counts).astype(np.float64)


def skewed(seed: int, size: int = 400) -> NDArray[np.float64]:
    """A continuous, skewed label sample without ties."""
    return np.random.default_rng(seed).gamma(2.0, 1.0, size)


label_lists = st.one_of(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60),
    st.lists(st.integers(-300, 300).map(float), min_size=1, max_size=60),
    st.lists(st.sampled_from([0.0, 0.0, 0.0, 1e-3, 1.0, 7.5, 1e6]), min_size=1, max_size=60),
    st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20),
    st.builds(lambda seed, size: list(skewed(seed, size)), st.integers(0, 1000), st.integers(1, 200)),
)
