"""The benchmark of streams (research/studies/streaming.py): its rows, its figures and its line."""

from pathlib import Path

import pyarrow.parquet as pq

from research.studies import streaming


def test_rows_are_the_same_every_time_and_a_fit_on_them_is_measured(tmp_path: Path) -> None:
    for name in ("a", "b"):
        streaming.write_rows(tmp_path / name, 700, file_rows=400, group_rows=150)
    first, second = (pq.read_table(tmp_path / name) for name in ("a", "b"))
    assert first.equals(second)
    assert first.shape == (700, 21)
    found = streaming.measure(tmp_path / "a", None, epochs=1)
    assert found["rows"] == 560
    assert found["exact"]
    assert found["peak"] > 2**20
    assert "560 rows: two passes" in streaming.parts(found)
    shown = streaming.line(found)
    assert shown.startswith("| 560 | 0.00 GB | none |")
    assert shown.endswith("| equal |")
    assert shown.count("|") == streaming.HEADER.splitlines()[0].count("|")
    assert streaming.evaluate(tmp_path / "a").startswith("evaluated 700 rows: ")
    written = (tmp_path / "a" / "part-0000.parquet").stat().st_mtime_ns
    streaming.write_rows(tmp_path / "a", 700, file_rows=400, group_rows=150)
    assert (tmp_path / "a" / "part-0000.parquet").stat().st_mtime_ns == written
