"""Batches that do not fit into memory: halved, said once, and the same rows are trained on."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tailwise.training.batches import Batch, Halves, divided
from tailwise.training.loop import TrainConfig, fit, predict
from tests.training.small_models import VALID, X_VALID, X, Y, vir

FITS = 20
"""Rows that fit into the memory of the GPU of these tests."""


class Small:
    """A model on a GPU with little memory: more than `FITS` rows at a time are an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fits: int = FITS) -> None:
        self.model, self.rows = vir(), list[int]()
        for name in ("loss", "forward"):
            monkeypatch.setattr(self.model, name, self._limited(getattr(self.model, name), fits, name))

    def _limited(self, function: Any, fits: int, name: str) -> Any:
        def limited(x: torch.Tensor, *others: Any, **named: Any) -> Any:
            if len(x) > fits:
                raise torch.OutOfMemoryError("CUDA out of memory")
            if name == "loss":
                self.rows.append(len(x))
            return function(x, *others, **named)

        return limited


CONFIG = TrainConfig(epochs=4, batch_size=45, accelerator="cpu", patience=None)


def test_training_goes_on_with_smaller_batches_and_resumes_with_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    whole = Small(monkeypatch)
    history = fit(whole.model, (X, Y), VALID, CONFIG).history
    # Every row of every epoch, in parts that fit, and validation rows are halved on their own.
    assert whole.rows == [11, 11, 7, 8, 8, *[9] * 5, *[9] * 30] and sum(whole.rows) == 4 * 90
    said = [record.getMessage().partition(": ")[2].partition(";")[0] for record in caplog.records]
    assert said == [f"batches are halved to {rows} rows" for rows in (23, 11, 30, 15)]
    kept = tmp_path / "kept"
    for epochs in (2, 4):
        part = Small(monkeypatch)
        config = TrainConfig(**{**vars(CONFIG), "epochs": epochs})
        resumed = fit(part.model, (X, Y), VALID, config, checkpoint=kept).history
    assert [row["loss"] for row in resumed] == [row["loss"] for row in history]
    assert all(p.equal(q) for p, q in zip(part.model.parameters(), whole.model.parameters(), strict=True))


def test_predictions_in_halves_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Small(monkeypatch)
    found, expected = predict(small.model, X_VALID), predict(vir(), X_VALID)
    assert found.mean.allclose(expected.mean) and len(found) == len(X_VALID)


def test_a_gpu_without_memory_for_two_rows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="not enough memory for 2 rows at a time: use a smaller network"):
        fit(Small(monkeypatch, fits=1).model, (X, Y), VALID, CONFIG)


def test_every_part_of_a_batch_is_divided() -> None:
    batch = Batch((X, X[:, 0]), Y, sample_weight=Y + 1, rows=torch.arange(len(Y)))
    parts = divided(batch, 4)
    assert [len(part.y) for part in parts] == [22, 23, 22, 23]
    assert torch.cat([part.x[1] for part in parts]).equal(X[:, 0]) and parts[0].offset is None
    rows = [part.rows for part in parts if part.rows is not None]
    assert torch.cat(rows).equal(torch.arange(len(Y)))
    tidied: list[bool] = []
    halves = Halves(tidy=lambda: tidied.append(True))
    assert halves(lambda part: len(part.y), batch) == [90] and not tidied
