"""Random samples of a stream."""

import numpy as np
import pandas as pd

from tailwise.streams import FrameRows, RowStream
from tailwise.streams.sampling import (
    HeldOut,
    OtherRows,
    held_share,
    row_keys,
    sampled_rows,
)

N = 1000
TABLE = pd.DataFrame({"x": np.arange(N)})


def test_keys_differ_and_look_random() -> None:
    keys = row_keys(np.arange(20_000), seed=3)
    assert len(np.unique(keys)) == 20_000
    assert abs((keys < 2**62).mean() - 0.25) < 0.01
    assert abs(np.corrcoef(keys.astype(float), np.arange(20_000))[0, 1]) < 0.02
    assert (row_keys(np.arange(50), 3) != row_keys(np.arange(50), 4)).all()
    assert len(np.unique(row_keys(np.array([-1, 0, 2**63 - 1]), 0))) == 3
    assert row_keys(np.array([2**64 - 1], np.uint64), 0) == row_keys([-1], 0)


def test_held_out_rows_are_told_by_their_number() -> None:
    keys = row_keys(np.arange(N), seed=5)
    held = HeldOut(5, int(np.sort(keys)[49]))
    assert held(TABLE).sum() == 50
    assert (held(TABLE[200:300]) == held(TABLE)[200:300]).all()


def test_a_stream_is_parted_into_a_share_and_the_other_rows() -> None:
    stream, held = FrameRows([TABLE[k : k + 90] for k in range(0, N, 90)]), held_share(0.3, seed=2)
    part, others = sampled_rows(stream, held), OtherRows(stream, held)
    assert isinstance(others, RowStream)
    rest = pd.concat(list(others.chunks(["x"], seed=1)))
    assert sorted([*part.x, *rest.x]) == list(range(N))
    assert 250 < len(part) < 350
    assert (rest.index == rest.x).all()
    assert len(sampled_rows(stream, held_share(1.0, seed=2))) == N
