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
