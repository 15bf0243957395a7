"""The server over real connections: answers, refusals, overload, shutdown."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.model.model import Model
from tailwise.serving.web import RETRY_SECONDS, Limits, Service, listen
from tests.estimator.small_tables import quick
from tests.serving.conftest import Running, as_json, serving
from tests.serving.malformed_requests import malformed

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


def test_answers_are_those_of_predict(running: Running, model: TailRegressor, table: pd.DataFrame) -> None:
    answer = running.client.post("/predict", json={"rows": as_json(table), "coverage": 0.8})
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    found, expected = pd.DataFrame(answer.json()["predictions"]), model.predict_frame(table, 0.8)
    np.testing.assert_allclose(found["prediction"], expected["prediction"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["upper"], expected["upper"], rtol=1e-5, atol=1e-6)


def test_what_the_server_says_about_itself(running: Running) -> None:
    client = running.client
    assert client.get("/health").json() == {"status": "ok", "model": "houses", "waiting": 0, "limit": 64}
    assert client.get("/schema").json() == running.service.batcher.schema.to_json()
    assert "# TYPE tailwise_requests_total counter" in client.get("/metrics").text
    for path in ("/", "/docs", "/health", "/schema"):
        head, whole = client.head(path), client.get(path)
        assert head.status_code == 200 and head.content == b""
        assert head.headers["content-length"] == whole.headers["content-length"]
    for path in ("/", "/docs"):
        page = client.get(path).text
        assert "<h1>houses</h1>" in page and "<td>hour</td><td>date</td><td>no</td>" in page
        assert not re.search(r'(src|href)="(https?:)?//', page)  # nothing from another server
    example = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.S)
    assert example is not None
    body = example[1].replace("&#34;", '"').replace("&#39;", "'")
    assert client.post("/predict", content=body).status_code == 200


def test_the_page_says_that_there_are_more_categories() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"city": [f"city {k % 25}" for k in range(100)], "size": rng.normal(size=100)})
    with serving(quick(epochs=1).fit(table, rng.normal(size=100))) as found:
        page = found.client.get("/docs").text
    assert re.search(r"<td>city 0, .*, city 4, …</td>", page)


def test_refusals(running: Running, table: pd.DataFrame) -> None:
    client, row = running.client, as_json(table[:1])[0]
    answer = client.post("/predict", json={"rows": [row, {**row, "whole": "many"}]})
    assert answer.status_code == 422
    assert answer.json() == {
        "error": "row 1, column 'whole' is the text 'many', not a number",
        "problems": [{"row": 1, "column": "whole", "problem": "is the text 'many', not a number"}],
    }
    wrong = {**row, "whole": [1], "number": "12", "day": "31/01/2024"}
    del wrong["kind"]
    answer = client.post("/predict", json={"rows": [wrong, 5, {**row, "day": "soon"}]})
    cells = [(problem["row"], problem["column"]) for problem in answer.json()["problems"]]
    assert cells == [(0, "kind"), (0, "number"), (0, "whole"), (0, "day"), (1, None), (2, "day")]
    assert client.get("/predict").status_code == 405
    assert client.get("/nothing").json() == {"error": "Not Found", "problems": []}
    assert client.post("/predict", content=b"a=1", headers={"content-type": "text/plain"}).status_code == 415


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


def test_an_unexpected_error_is_status_500_without_details(
    running: Running, model: TailRegressor, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(own: Model, rows: Any) -> Any:
        raise KeyError("secret")

    monkeypatch.setattr(Model, "raw", fails)
    answer = running.client.post("/predict", json={"rows": as_json(table[:1])})
    assert answer.status_code == 500 and "secret" not in answer.text and "KeyError" in answer.text


def send_malformed(running: Running, count: int, seed: int) -> Counter[int]:
    """Send malformed requests and return how often each status came back."""
    statuses: Counter[int] = Counter()
    for sent in malformed(running.service.batcher.schema.example(), count, seed):
        answer = running.client.request(sent.method, sent.path, content=sent.body, headers=sent.headers)
        statuses[answer.status_code] += 1
        if answer.status_code >= 400 and sent.method == "POST":
            assert set(answer.json()) == {"error", "problems"}
    return statuses


def test_malformed_requests(running: Running) -> None:
    statuses = send_malformed(running, 40, seed=1)
    assert max(statuses) < 500 and statuses[422] > 10 and statuses[200] > 0
    assert running.client.get("/health").status_code == 200


@pytest.mark.slow
def test_a_thousand_malformed_requests(running: Running) -> None:
    statuses = send_malformed(running, 1000, seed=0)
    assert max(statuses) < 500, statuses
    assert sum(statuses.values()) == 1000 and statuses[422] > 300
    assert running.client.get("/health").status_code == 200


def test_bytes_that_are_not_http(running: Running) -> None:
    address = running.client.base_url
    for bad in (b"\x00\xff\r\n\r\n", b"POST /predict HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"GARBAGE"):
        with socket.create_connection((address.host, address.port), timeout=10) as sock:
            sock.sendall(bad)
            assert sock.recv(100).startswith(b"HTTP/1.1 400")
    with socket.create_connection((address.host, address.port), timeout=10) as sock:
        for part in (b"PO", b"ST /predict HTTP/1.1\r\nHost: x\r\n", b"Content-Length: 1\r\n\r\n", b"{"):
            sock.sendall(part)  # a slow client
            time.sleep(0.1)
        assert b"the body is not JSON" in sock.recv(1000)
    # a client that leaves in the middle of its body
    with socket.create_connection((address.host, address.port), timeout=10) as sock:
        sock.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    wait_for(lambda: running.service.waiting == 0)
    assert running.client.get("/health").status_code == 200


def test_an_address_that_is_taken_and_a_model_that_cannot_predict(
    model: TailRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        listen("127.0.0.1", 0) as sock,
        pytest.raises(ValueError, match=r"cannot listen on 127.0.0.1 port \d+: "),
    ):
        listen("127.0.0.1", sock.getsockname()[1])

    def fails(own: Model, rows: Any) -> Any:
        raise ValueError("polars is missing")

    monkeypatch.setattr(Model, "raw", fails)
    with pytest.raises(ValueError, match=r"cannot predict its example row: .*polars is missing"):
        Service(model)
