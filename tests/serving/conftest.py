"""A small model of a table of every kind of column, and servers that answer for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pandas as pd
import pytest
import uvicorn

from tailwise import TailRegressor
from tailwise.serving.web import Service, listen, server
from tests.estimator.saved_files import mixed
from tests.estimator.small_tables import quick


class Running(NamedTuple):
    """A server that answers in a thread."""

    service: Service
    client: httpx.Client
    server: uvicorn.Server
    thread: threading.Thread


def as_json(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as a client would send them."""
    rows = table.assign(
        day=table["day"].dt.strftime("%Y-%m-%d"), hour=table["hour"].map(lambda t: t.isoformat())
    )
    cells = rows.astype(object).where(rows.notna(), None).to_dict(orient="records")
    return [{str(k): v for k, v in row.items()} for row in cells]


@pytest.fixture(scope="session")
def table() -> pd.DataFrame:
    """Rows with numbers, flags, categories, text and dates; some cells are missing."""
    table = mixed(120)[0].reset_index(drop=True)
    return table.assign(number=table["number"].where(table.index % 9 != 0), empty=float("nan"))


@pytest.fixture(scope="session")
def model(table: pd.DataFrame) -> TailRegressor:
    labels = pd.Series(mixed(120)[1], name="price")
    return quick(epochs=1, folds=2).fit(table, labels)


@pytest.fixture(scope="session")
def model_file(model: TailRegressor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model.save(tmp_path_factory.mktemp("served") / "model.tailwise")


@contextmanager
def serving(model: TailRegressor, **options: Any) -> Iterator[Running]:
    """Serve a model until the end of the block."""
    service = Service(model, **options)
    web = server(service)
    with listen("127.0.0.1", 0) as sock:
        thread = threading.Thread(target=web.run, kwargs={"sockets": [sock]})
        thread.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{sock.getsockname()[1]}", timeout=60) as client:
            yield Running(service, client, web, thread)
        web.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def running(model: TailRegressor) -> Iterator[Running]:
    with serving(model, title="houses") as found:
        yield found


@pytest.fixture
def start(model: TailRegressor) -> Iterator[Callable[..., Running]]:
    """Start a server with other limits."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(serving(model, **options))
