"""`TailRegressor.fit_batches` on streams of rows."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from tailwise import TailRegressor
from tailwise.model import training as fitting
from tailwise.model.stream import StreamedRows
from tailwise.streams import FrameRows
from tailwise.streams.sources import ParquetRows
from tailwise.training import loop
from tailwise.training.ray_workers import RayWorkers
from tests.estimator.small_tables import quick

N = 600


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N), "c": rng.choice(list("uvw"), N)})
    data["y"] = np.exp(data.a) + 0.5 * (data.c == "u") + 0.1 * rng.normal(size=N)
    data["z"] = rng.poisson(np.exp(data.b)).clip(max=9)
    data["w"] = rng.integers(1, 4, N)
    return data


TABLE = table()
X = TABLE[["a", "b", "c"]]
ONE = {"target": "y", "drop": ["z", "w"]}


def stream() -> FrameRows:
    return FrameRows([TABLE[k : k + 100] for k in range(0, N, 100)])


def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The training data and the held-out rows that the loop was given."""
    given: list[Any] = []

    def remembered(network: Any, train: Any, valid: Any, config: Any, **options: Any) -> Any:
        given.extend([train, valid, config])
        return loop.fit(network, train, valid, config, **options)

    monkeypatch.setattr(fitting, "train", remembered)
    return given


def test_bins_weights_and_encodings_equal_those_of_the_table_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = seen(monkeypatch)
    streamed = quick(base=LinearRegression(), epochs=1).fit_batches(stream(), **ONE)
    held = data[0].survey.held_out(TABLE)
    assert held.sum() == 120
    train = TABLE[~held]
    whole = quick(base=LinearRegression(), epochs=1).fit(X[~held], train.y, eval_set=(X[held], TABLE.y[held]))
    assert (streamed.bins_.edges == whole.bins_.edges).all()
    assert (streamed.bins_.counts == whole.bins_.counts).all()
    assert (streamed.networks_[0].tails[0].w == whole.networks_[0].tails[0].w).all()
    assert streamed.calibrators_[0].labels.support == whole.calibrators_[0].labels.support
    assert streamed.feature_names_in_.tolist() == whole.feature_names_in_.tolist()
    assert streamed.target_names_ == ["y"]
    for name in ("center", "scale"):
        own, its = (getattr(m.preprocessor_.numeric, name) for m in (streamed, whole))
        assert np.allclose(own, its)
    assert len(data[1]) == 60  # the other half of the held-out rows fits the intervals


def test_training_sees_every_other_row_once_and_held_out_rows_never(monkeypatch: pytest.MonkeyPatch) -> None:
    data = seen(monkeypatch)
    quick(epochs=1).fit_batches(stream(), **ONE)
    rows: StreamedRows = data[0]
    first, again, other = ([batch[1].tolist() for batch in rows.shard(0, 1, 64, seed)] for seed in (5, 5, 6))
    assert first == again != other
    assert sorted(np.concatenate(first)) == sorted(TABLE.y[~rows.survey.held_out(TABLE)])
    assert rows.row_count == 480
    assert len(rows.encoded(TABLE[rows.survey.held_out(TABLE)])[1]) == 0


def test_rows_of_the_sample_get_out_of_fold_predictions_of_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    data = seen(monkeypatch)
    base = DecisionTreeRegressor(random_state=0)  # repeats the labels that it was fitted on
    model = quick(base=base, epochs=1).fit_batches(stream(), sample=200, **ONE)
    rows: StreamedRows = data[0]
    sampled = np.isin(TABLE.index, rows.sampled) & ~rows.survey.held_out(TABLE)
    _, labels, _, offset = rows.encoded(TABLE)
    sampled = sampled[~rows.survey.held_out(TABLE)]
    assert sampled.sum() == 200
    assert model.base_ is not None
    assert np.abs(labels - offset)[sampled].min() > 0  # no label is repeated
    fitted = model.base_[0].predict(rows.inputs.encoder.encoded(X[~rows.survey.held_out(TABLE)]))
    assert np.array_equal(fitted[~sampled], offset[~sampled])
    assert not np.array_equal(fitted[sampled], offset[sampled])


@pytest.mark.parametrize("shuffle", [0, 128])
def test_chunks_do_not_change_the_model(shuffle: int, tmp_path: Path) -> None:
    TABLE.to_parquet(tmp_path / "a.parquet", row_group_size=N)
    found = []
    for rows in (ParquetRows(tmp_path, chunk_rows=37), ParquetRows(tmp_path, chunk_rows=N)):
        model = quick(epochs=2, batch_size=50).fit_batches(rows, shuffle=shuffle, **ONE)
        found.append(model.predict_frame(X))
    pd.testing.assert_frame_equal(*found)


class Killed(Exception):
    """Stands for the end of a process."""


def test_a_killed_run_resumes_and_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    def dying_after(chunks: float) -> Callable[[], Iterator[pd.DataFrame]]:
        count = 0

        def tables() -> Iterator[pd.DataFrame]:
            nonlocal count
            for k in range(0, N, 100):
                count += 1
                if count > chunks:
                    raise Killed
                yield TABLE[k : k + 100]

        return tables

    whole = quick(epochs=3).fit_batches(dying_after(np.inf), **ONE)
    path = tmp_path / "state"
    with pytest.raises(Killed):  # a look at the columns, two passes of 6 chunks, and one epoch and a half
        quick(epochs=3).fit_batches(dying_after(1 + 12 + 9), checkpoint=path, **ONE)
    assert path.exists()
    resumed = quick(epochs=3).fit_batches(dying_after(np.inf), checkpoint=path, **ONE)
    assert len(resumed.histories_[0].history) == 3
    assert np.array_equal(resumed.predict(X), whole.predict(X))
    with pytest.raises(ValueError, match="was trained with training data"):
        quick(epochs=3).fit_batches(stream(), checkpoint=path, shuffle=7, **ONE)


def test_several_targets_weights_bounds_and_groups(tmp_path: Path) -> None:
    model = quick(epochs=1, bounds=(0, None), conformal_by="c", bins=15)
    with pytest.raises(ValueError, match=r"'y' lies between -0\..* beyond the bounds 0 and inf"):
        model.fit_batches(stream(), ["y", "z"], weight="w")
    model = quick(epochs=1, bounds=[None, (0, None)], conformal_by="c", bins=15)
    model.fit_batches(stream(), ["y", "z"], weight="w")
    first = model.bins_[0]
    assert len(first) == 15
    assert first.counts.sum() > 1.5 * 480  # weights, not rows
    assert model.calibrators_[1].labels.support.grid[:3] == (0, 1, 2)
    assert model.predict_interval(X)[:, 1, 0].min() >= 0
    model.save(tmp_path / "m.tailwise")
    loaded = TailRegressor.load(tmp_path / "m.tailwise")
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert loaded.score_by_region(X, TABLE[["y", "z"]]).shape[0] == 8


@pytest.mark.parametrize(
    ("params", "arguments", "words"),
    [
        ({}, {"target": "q"}, "unknown column of target 'q'"),
        ({}, {"target": "c"}, "target 'c' holds text: choose a column of numbers"),
        ({}, {"target": "y", "drop": list("abczw")}, "nothing to predict from"),
        ({}, {"target": "y", "sample": 0}, "sample must be positive"),
        ({"folds": 5}, {"target": "y"}, "a stream trains one network"),
        ({"backbone": "resnet18"}, {"target": "y"}, "choose a backbone for tables"),
        ({"validation_fraction": 0.01}, {"target": "y"}, "6 would be held out, fewer than 20"),
        ({"method": "smogn"}, {"target": "y"}, "makes new rows"),
    ],
)
def test_what_a_stream_cannot_serve_is_an_error(
    params: dict[str, Any], arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        quick(**params).fit_batches(stream(), **arguments)


def test_rows_that_cannot_be_used_name_their_place(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="weight 'w' is 0 in every row"):
        quick().fit_batches([TABLE.assign(w=0)], "y", weight="w", drop=["z"])
    with pytest.raises(ValueError, match="column 'd' holds lists, records or durations"):
        quick().fit_batches([TABLE.assign(d=pd.to_timedelta(TABLE.a, unit="s"))], "y")
    bad = TABLE.copy()
    bad.loc[590, "a"] = np.inf
    bad.to_parquet(tmp_path / "a.parquet", row_group_size=300)
    with pytest.raises(ValueError, match=r"a\.parquet, row group 1: column 'a' holds an infinity"):
        quick(epochs=1).fit_batches(tmp_path, sample=20, **ONE)


class Here(RayWorkers):
    """Workers that are this process: what would be sent to Ray is pickled, as Ray does."""

    @contextmanager
    def connected(self) -> Iterator[None]:
        yield

    def map(self, function: Any, items: Any) -> list[Any]:
        return [pickle.loads(pickle.dumps(function))(item) for item in items]

    def fit(self, model: Any, train: Any, valid: Any = None, config: Any = None, **options: Any) -> Any:
        config = replace(config, shards=self.workers)
        return loop.fit(model, pickle.loads(pickle.dumps(train)), valid, config, **options)


def test_workers_read_parts_of_the_files_and_count_every_label_once(tmp_path: Path) -> None:
    for k in range(3):
        TABLE[200 * k : 200 * (k + 1)].to_parquet(tmp_path / f"{k}.parquet", index=False)
    alone = quick(epochs=1).fit_batches(tmp_path, **ONE)
    shared = quick(epochs=1).fit_batches(tmp_path, **ONE, workers=Here(workers=2))
    assert (shared.bins_.edges == alone.bins_.edges).all()
    assert (shared.bins_.counts == alone.bins_.counts).all()
    assert len(shared.histories_[0].history) == 1
    in_memory = quick(epochs=1).fit_batches(stream(), **ONE, workers=Here(workers=2))
    assert (in_memory.bins_.counts == alone.bins_.counts).all()
