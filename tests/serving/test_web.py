"""The server over real connections: answers, refusals, overload, shutdown."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailwise import TailRegressor
from tailwise.model.model import Model
from tailwise.serving.web import RETRY_SECONDS, Limits, Service, listen
from tests.estimator.small_tables import quick
from tests.estimator.small_tables import table as numbers
from tests.serving.conftest import Running, as_json, serving

Start = Callable[..., Running]


@pytest.fixture
def gate(model: TailRegressor, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The model predicts while this is set, as it is at first."""
    go = threading.Event()
    go.set()
    predict = Model.raw

    def waits(own: Model, rows: Any, *more: Any) -> Any:
        go.wait(60)
        return predict(own, rows, *more)

    monkeypatch.setattr(Model, "raw", waits)
    return go


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    "options", [{}, {"coverage": 0.5}, {"rare": 0.6}, {"emphasis": 1.0, "quantiles": [0.1, 0.9]}], ids=str
)
def test_answers_are_those_of_predict(
    options: dict[str, Any], running: Running, model: TailRegressor, table: pd.DataFrame
) -> None:
    answer = running.client.post("/predict", json={"rows": as_json(table), **options})
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    rows, emphasis = pd.DataFrame(answer.json()["predictions"]), options.get("emphasis")
    coverage, rare = options.get("coverage", 0.9), options.get("rare")
    expected = model.predict_frame(table, coverage, rare=rare, emphasis=emphasis)
    for name in expected.columns.drop("region"):
        np.testing.assert_allclose(rows[name], expected[name].to_numpy(), rtol=1e-5, atol=1e-6)
    assert rows["region"].tolist() == expected["region"].tolist()
    assert answer.json()["coverage"] == options.get("coverage", 0.9)
    assert answer.json()["emphasis"] == (model.emphasis_ if emphasis is None else emphasis)
    if "quantiles" in options:
        levels = pd.DataFrame(rows["quantiles"].tolist())
        quantiles = model.predict_quantiles(table, options["quantiles"], emphasis=emphasis)
        np.testing.assert_allclose(levels, quantiles, rtol=1e-5, atol=1e-6)


def test_notes_say_what_is_new_and_when_intervals_are_too_wide(running: Running) -> None:
    row = {**running.service.columns.example, "kind": "z"}
    notes = running.client.post("/predict", json={"rows": [row], "coverage": 0.999}).json()["notes"]
    assert "row 0: column 'kind' holds 'z', which training did not have" in notes[0]
    assert "The intervals span all training labels instead" in notes[1] and len(notes) == 2
    number = next(c for c in running.service.columns.all if c.kind == "number")
    row = {**running.service.columns.example, number.name: 1e12}
    notes = running.client.post("/predict", json={"rows": [row]}).json()["notes"]
    assert notes[0].startswith(
        f"row 0: column {number.name!r} holds 1e+12, far outside the range of training"
    )


def test_several_targets() -> None:
    x, y = numbers(80)
    model = quick(epochs=1).fit(pd.DataFrame(x, columns=["a", "b", "c"]), pd.DataFrame({"u": y, "v": -y}))
    row = {"a": 0.5, "b": 1, "c": 0.1}
    with serving(model) as server:
        answer = server.client.post("/predict", json={"rows": [row], "quantiles": [0.5]}).json()
    found, expected = answer["predictions"][0], model.predict(pd.DataFrame([row]))[0]
    np.testing.assert_allclose([found["u"]["prediction"], found["v"]["prediction"]], expected, rtol=1e-5)
    assert set(found["u"]["quantiles"]) == {"0.5"} and answer["emphasis"] == model.emphasis_


@pytest.mark.parametrize("kinds", [[True, False], ["u", "v"], [0, 1]], ids=str)
def test_intervals_by_a_column(kinds: list[Any]) -> None:
    x, y = numbers(160)
    table = pd.DataFrame({"a": x[:, 0], "kind": kinds * 80})
    model = quick(epochs=1, conformal_by="kind").fit(table, y * (1 + 3 * (table["kind"] == kinds[0])))
    with serving(model) as server:
        body = {"rows": table[:30].to_dict(orient="records"), "coverage": 0.7}
        rows = server.client.post("/predict", json=body).json()["predictions"]
    upper = [row["upper"] for row in rows]
    np.testing.assert_allclose(upper, model.predict_interval(table[:30], 0.7)[:, 1], rtol=1e-5)


def test_what_the_server_says_about_itself(running: Running) -> None:
    client = running.client
    assert client.get("/health").json() == {"status": "ok", "model": "houses", "waiting": 0, "limit": 64}
    for path in ("/", "/docs"):
        page = client.get(path).text
        assert "<h1>houses</h1>" in page and "<td>hour</td><td>date</td><td>no</td>" in page
        assert not re.search(r'(src|href)="(https?:)?//', page)  # nothing from another server
    example = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.S)
    assert example is not None
    body = example[1].replace("&#34;", '"').replace("&#39;", "'")
    assert client.post("/predict", content=body).status_code == 200


def test_the_openapi_description_is_that_of_the_model(running: Running) -> None:
    page = running.client.get("/openapi.json").json()
    assert page["openapi"].startswith("3.1")
    assert set(page["paths"]) == {"/predict", "/health", "/metrics", "/schema"}
    predict = page["paths"]["/predict"]["post"]
    body = predict["requestBody"]["content"]["application/json"]
    rows = body["schema"]["properties"]["rows"]
    assert rows["items"]["required"] == running.client.get("/schema").json()["required"]
    assert rows["maxItems"] == 1000
    assert {"200", "400", "413", "422", "503"} <= set(predict["responses"])
    sent = running.client.post("/predict", json=body["example"]).json()
    schemas = page["components"]["schemas"]
    assert set(schemas["Prediction"]["properties"]) == set(sent["predictions"][0])
    assert set(schemas["Answer"]["properties"]) == set(sent)


def test_metrics(start: Start, table: pd.DataFrame) -> None:
    client = start().client
    rows = as_json(table[:5])
    for body in ({"rows": rows}, {"rows": rows}, {"rows": []}):
        client.post("/predict", json=body)
    text = client.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert "# TYPE tailwise_requests_total counter" in text
    for name, value in {
        'tailwise_requests_total{status="200"}': 2,
        'tailwise_requests_total{status="422"}': 1,
        "tailwise_request_seconds_count": 3,
        "tailwise_rows_total": 11,  # with the example at the start
        "tailwise_batches_total": 3,
        "tailwise_queue_requests": 0,
    }.items():
        assert float(lines[name]) == value


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 400, "Invalid JSON: EOF"),
        (b"[" * 100_000, 400, "Invalid JSON: recursion limit exceeded"),
        (b'{"rows": [' + b"9" * 10_000 + b"]}", 400, "Invalid JSON: number out of range"),
        (b'{"rows": []}', 422, "rows: List should have at least 1 item"),
        (b'{"coverag": 0.5, "rows": []}', 422, "coverag: unknown field; did you mean 'coverage'?"),
        (b'{"coverage": 1, "rows": [1]}', 422, "coverage: Input should be less than or equal to 0.999"),
        (b'{"quantiles": [0.5, "a"], "rows": [1]}', 422, "quantiles: 1: Input should be a valid number"),
        (b'{"emphasis": 2, "rows": [1]}', 422, "emphasis: Input should be less than or equal to 1"),
        (b'{"rows": [NaN]}', 422, "row 0 is 'nan': Input should be an object"),
    ],
)
def test_wrong_requests(running: Running, body: bytes, status: int, error: str) -> None:
    answer = running.client.post("/predict", content=body)
    said = answer.json()
    problems = [problem["problem"] for problem in said["problems"]]
    assert answer.status_code == status and any(error in text for text in (said["error"], *problems)), said


def test_refusals(running: Running, table: pd.DataFrame) -> None:
    client, row = running.client, as_json(table[:1])[0]
    answer = client.post("/predict", json={"rows": [row, {**row, "whole": "many"}]})
    problem = "is 'many': Input should be a number"
    assert answer.status_code == 422
    assert answer.json() == {
        "error": f"row 1, column 'whole' {problem}",
        "problems": [{"row": 1, "column": "whole", "problem": problem}],
    }
    assert client.get("/predict").status_code == 405
    assert client.get("/nothing").json() == {"error": "Not Found", "problems": []}
    many = client.post("/predict", json={"rows": [row] * 1001})
    assert many.status_code == 413 and "rows: List should have at most 1000 items" in many.json()["error"]


def test_a_large_body_is_refused_whether_or_not_it_says_so(start: Start) -> None:
    client = start(limits=Limits(max_body=1000, body_seconds=0.3)).client
    assert client.post("/predict", content=b" " * 1001).status_code == 413
    chunked = client.post("/predict", content=iter([b" " * 400] * 4))
    assert chunked.status_code == 413 and "larger than 1000 bytes" in chunked.json()["error"]
    assert client.post("/predict", content=b" " * 1000).status_code == 400

    def slow() -> Any:
        yield b"{"
        time.sleep(1)
        yield b"}"

    assert client.post("/predict", content=slow()).status_code == 408


def test_overload_is_refused_at_once_and_nothing_accepted_is_lost(
    start: Start, gate: threading.Event, table: pd.DataFrame
) -> None:
    found = start(limits=Limits(max_waiting=3))
    body = {"rows": as_json(table[:2])}
    gate.clear()
    with ThreadPoolExecutor(3) as pool:
        accepted = [pool.submit(found.client.post, "/predict", json=body) for _ in range(3)]
        wait_for(lambda: found.service.waiting == 3)
        refused = [found.client.post("/predict", json=body) for _ in range(5)]
        assert found.client.get("/health").json()["waiting"] == 3
        gate.set()
        answers = [answer.result() for answer in accepted]
    for answer in refused:
        assert answer.status_code == 503 and answer.headers["retry-after"] == str(RETRY_SECONDS)
        assert "busy: 3 requests wait" in answer.json()["error"]
    assert [len(answer.json()["predictions"]) for answer in answers] == [2, 2, 2]
    assert found.client.post("/predict", json=body).status_code == 200


def test_shutting_down_answers_what_was_accepted(
    start: Start, gate: threading.Event, table: pd.DataFrame
) -> None:
    found = start()
    gate.clear()
    with ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(found.client.post, "/predict", json={"rows": as_json(table[:2])})
        wait_for(lambda: found.service.waiting == 1)
        found.server.should_exit = True
        time.sleep(0.3)
        gate.set()
        assert len(accepted.result().json()["predictions"]) == 2
    found.thread.join(30)
    assert not found.thread.is_alive()
    with pytest.raises(httpx.TransportError):
        found.client.get("/health")


def test_requests_that_wait_are_predicted_at_once_and_a_failure_spoils_no_other(
    running: Running, gate: threading.Event, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, sizes = Model.encode, []

    def fails(own: Model, X: pd.DataFrame, *more: Any) -> Any:
        sizes.append(len(X))
        if (X["whole"] == 777).any():
            raise ValueError("a row\n  that cannot be predicted")
        if (X["whole"] == 666).any():
            raise KeyError("secret")
        return encode(own, X, *more)

    monkeypatch.setattr(Model, "encode", fails)
    rows = as_json(table[:2])

    def ask(whole: float) -> Any:
        body = {"rows": [rows[0], {**rows[1], "whole": whole}]}
        return running.client.post("/predict", json=body)

    gate.clear()
    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(ask, whole) for whole in (1, 2, 3, 777, 666, 4)]
        wait_for(lambda: running.service.waiting == 6)
        gate.set()
        statuses = [answer.result().status_code for answer in answers]
    assert statuses == [200, 200, 200, 422, 500, 200] and max(sizes) >= 10
    assert answers[3].result().json() == {"error": "a row that cannot be predicted", "problems": []}
    assert "secret" not in answers[4].result().text and "KeyError" in answers[4].result().text


ODD = ("\x00", "nan", "12", "2024-02-31", "99999999-01-01", "2024-03-31T02:30", 10**400, [[1]], {"a": {}})
CELLS = st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=20), st.sampled_from(ODD))
VALUES = CELLS | st.lists(CELLS, max_size=3) | st.just([0.5, 0.5])
NAMES = st.sampled_from(["coverage", "quantiles", "emphasis", "row", ""])
HEADERS = st.sampled_from([{"content-type": ";;;"}, {"content-encoding": "gzip"}, {"accept": "image/png"}])


@given(data=st.data())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_malformed_requests(running: Running, data: st.DataObject) -> None:
    """Wrong cells, rows, options, bodies and headers: never an error of the server."""
    example = running.service.columns.example
    cells = st.dictionaries(st.sampled_from([*example, "unknown", ""]), CELLS, max_size=3)
    rows = data.draw(st.lists(cells.map(lambda wrong: {**example, **wrong}) | CELLS, max_size=3))
    request = {"rows": rows, **data.draw(st.dictionaries(NAMES, VALUES, max_size=2))}
    body = json.dumps(request).encode(errors="surrogatepass")
    place, odd = data.draw(st.integers(0, len(body))), data.draw(st.binary(max_size=3))
    body = data.draw(
        st.sampled_from([body, body[:place] + odd + body[place:], body[:place], body + body, odd])
    )
    answer = running.client.post("/predict", content=body, headers=data.draw(HEADERS))
    assert answer.status_code == 200 or set(answer.json()) == {"error", "problems"}
    assert answer.status_code < 500, (body, answer.text)


def test_an_address_that_is_taken_and_a_model_that_cannot_predict(
    model: TailRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        listen("127.0.0.1", 0) as sock,
        pytest.raises(ValueError, match=r"cannot listen on 127.0.0.1 port \d+: "),
    ):
        listen("127.0.0.1", sock.getsockname()[1])

    def fails(*arguments: Any) -> Any:
        raise ValueError("polars is missing")

    monkeypatch.setattr(Model, "raw", fails)
    with pytest.raises(ValueError, match=r"cannot predict its example row: .*polars is missing"):
        Service(model)
