"""Requests that wait together are answered together, and right."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.model.model import Model
from tailwise.serving.batches_of_requests import Answer, Batcher
from tailwise.serving.counters import Counters
from tests.estimator.small_tables import quick
from tests.estimator.small_tables import table as numbers
from tests.serving.conftest import as_json

Ask = Callable[..., Future[Answer]]


@pytest.fixture
def batcher(model: TailRegressor) -> Iterator[Batcher]:
    found = Batcher(model, Counters("0"), max_rows=50, threads=1)
    yield found
    found.close()


def content(answer: Future[Answer]) -> dict[str, Any]:
    status, text = answer.result(timeout=60)
    assert status == 200, text
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def request(rows: list[dict[str, Any]], **options: Any) -> bytes:
    return json.dumps({"rows": rows, **options}).encode()


def held_up(monkeypatch: pytest.MonkeyPatch, model: TailRegressor) -> tuple[threading.Event, list[int]]:
    """Let the model predict only when the event is set; also return the rows of each call."""
    go, sizes = threading.Event(), []
    predict = Model.raw

    def waits(own: Model, rows: Any, *more: Any) -> Any:
        go.wait(60)
        sizes.append(len(rows))
        return predict(own, rows, *more)

    monkeypatch.setattr(Model, "raw", waits)
    return go, sizes


def test_requests_that_wait_are_predicted_at_once(
    batcher: Batcher, model: TailRegressor, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, sizes = held_up(monkeypatch, model)
    asked = [{}, {"coverage": 0.5}, {"emphasis": 1.0, "quantiles": [0.1, 0.9]}, {}]
    parts = [table[k : k + 1 + k] for k in range(len(asked))]
    answers = [
        batcher.submit(request(as_json(part), **options)) for part, options in zip(parts, asked, strict=True)
    ]
    refused = batcher.submit(b"nothing")
    go.set()
    assert refused.result().status == 400
    assert [answer.result().status for answer in answers] == [200] * 4
    assert sum(sizes) == 10 and len(sizes) <= 2  # the first may be predicted alone
    for part, options, answer in zip(parts, asked, answers, strict=True):
        found = content(answer)
        emphasis = options.get("emphasis")
        expected = model.predict_frame(part, options.get("coverage", 0.9), emphasis=emphasis)
        rows = pd.DataFrame(found["predictions"])
        for name in ("prediction", "std", "lower", "upper", "aleatoric_std", "epistemic_std"):
            np.testing.assert_allclose(rows[name], expected[name].to_numpy(), rtol=1e-5, atol=1e-6)
        assert rows["region"].tolist() == expected["region"].tolist()
        assert found["coverage"] == options.get("coverage", 0.9)
        assert found["emphasis"] == (model.emphasis_ if emphasis is None else emphasis)
        if "quantiles" in options:
            levels = pd.DataFrame(rows["quantiles"].tolist())
            quantiles = model.predict_quantiles(part, [0.1, 0.9], emphasis=emphasis)
            np.testing.assert_allclose(levels, quantiles, rtol=1e-5, atol=1e-6)


def test_a_batch_has_a_limit_and_closing_answers_what_waits(
    model: TailRegressor, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, sizes = held_up(monkeypatch, model)
    batcher = Batcher(model, Counters("0"), max_rows=30)
    answers = [batcher.submit(request(as_json(table[:20]))) for _ in range(5)]
    cancelled = batcher.submit(request(as_json(table[:20])))
    assert cancelled.cancel()
    go.set()
    batcher.close()
    assert all(len(content(answer)["predictions"]) == 20 for answer in answers)
    assert sum(sizes) == 100 and max(sizes) <= 40


def test_a_failure_spoils_no_other_request(
    batcher: Batcher, model: TailRegressor, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Model.encode

    def fails(own: Model, X: pd.DataFrame) -> Any:
        if (X["whole"] == 777).any():
            raise ValueError("a row\n  that cannot be predicted")
        if (X["whole"] == 666).any():
            raise KeyError("unexpected")
        return encode(own, X)

    monkeypatch.setattr(Model, "encode", fails)
    rows = as_json(table[:3])
    odd = [{**rows[0], "whole": value} for value in (777, 666)]
    good, bad, broken = (batcher.submit(request(part)) for part in (rows, odd[:1], odd[1:]))
    assert len(content(good)["predictions"]) == 3
    assert bad.result() == (422, b'{"error": "a row that cannot be predicted", "problems": []}')
    with pytest.raises(KeyError):
        broken.result()


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 400, "the body is not JSON"),
        (b"\xff\xfe", 400, "the body is not JSON"),
        (b"[" * 100_000, 400, "the body is not JSON: nested too deeply"),
        (b'{"rows": [{"number": NaN}]}', 400, "NaN is not allowed: write null"),
        (b"[]", 422, "the body must be an object with rows"),
        (b'{"rows": []}', 422, "rows must be a list of at least one object"),
        (b'{"rows": {}}', 422, "rows must be a list of at least one object"),
        (b'{"rows": [1], "coverag": 0.5}', 422, "unknown field 'coverag'; did you mean 'coverage'?"),
        (b'{"rows": [1], "coverage": 1}', 422, "coverage must be a number from 0.01 to 0.999"),
        (b'{"rows": [1], "coverage": true}', 422, "coverage must be a number"),
        (b'{"rows": [1], "quantiles": 0.5}', 422, "quantiles must be a list"),
        (b'{"rows": [1], "quantiles": [0.5, "a"]}', 422, "quantiles must be levels between 0 and 1"),
        (b'{"rows": [1], "emphasis": 2}', 422, "emphasis must be a number from 0 to 1"),
        (b'{"rows": [1]}', 422, "row 0 is the number '1', not an object"),
    ],
)
def test_wrong_requests(batcher: Batcher, body: bytes, status: int, error: str) -> None:
    answer = batcher.submit(body).result(timeout=60)
    assert answer.status == status and error in json.loads(answer.content)["error"]


def test_too_many_rows(batcher: Batcher) -> None:
    answer = batcher.submit(request([{}] * 51)).result(timeout=60)
    assert answer.status == 413 and b"51 rows, at most 50" in answer.content


def test_a_coverage_beyond_the_held_out_rows_is_a_note(batcher: Batcher, table: pd.DataFrame) -> None:
    found = content(batcher.submit(request(as_json(table[:1]), coverage=0.999)))
    assert any("The intervals span all training labels instead" in note for note in found["notes"])


def test_several_targets_and_a_model_without_a_dial() -> None:
    x, y = numbers(80)
    model = quick(epochs=1).fit(pd.DataFrame(x, columns=["a", "b", "c"]), pd.DataFrame({"u": y, "v": -y}))
    batcher = Batcher(model, Counters("0"))
    row = {"a": 0.5, "b": 1, "c": 0.1}
    found = content(batcher.submit(request([row], quantiles=[0.5])))["predictions"][0]
    expected = model.predict(pd.DataFrame([row]))[0]
    np.testing.assert_allclose([found["u"]["prediction"], found["v"]["prediction"]], expected, rtol=1e-5)
    assert set(found["u"]["quantiles"]) == {"0.5"}
    batcher.close()


@pytest.mark.parametrize("column", ["flag", "kind", "whole"])
def test_intervals_by_a_column(column: str) -> None:
    x, y = numbers(160)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "a": x[:, 0],
            "flag": rng.random(160) < 0.5,
            "kind": rng.choice(["u", "v"], 160),
            "whole": rng.integers(0, 3, 160),
        }
    )
    model = quick(epochs=1, conformal_by=column).fit(table, y * (1 + 3 * table["flag"]))
    batcher = Batcher(model, Counters("0"))
    found = content(batcher.submit(request(table[:30].to_dict(orient="records"), coverage=0.7)))
    batcher.close()
    upper = [row["upper"] for row in found["predictions"]]
    np.testing.assert_allclose(upper, model.predict_interval(table[:30], 0.7)[:, 1], rtol=1e-5)
