"""Tables larger than memory for commands: which files are streamed, and how a model is fitted to one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailwise.cli import read
from tailwise.cli.output import STANDARD, note

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor
    from tailwise.streams.sources import ParquetRows
    from tailwise.streams.survey import HeldOut
    from tailwise.training.ray_workers import RayWorkers

STREAM_ROWS = 5_000_000
"""A Parquet file with more rows than this is streamed, and so is every folder."""
MEASURED_ROWS = 100_000
"""Rows of a stream that a model is measured on, at most."""
_TEST_SEED = 1 << 32  # the seeds of held-out rows are smaller


def open_stream(source: str, wanted: bool, flags: Mapping[str, object]) -> ParquetRows | None:
    """Return a table as a stream if it is a folder or large, or if that is `wanted`; otherwise None.

    `flags` are the values of options that a stream does not take. One that is set is an error for a folder
    and with `wanted`; a large file is read as a whole then.
    """
    folder = source != STANDARD and Path(source).is_dir()
    rows = None if folder or source == STANDARD else _parquet_rows(Path(source))
    if not folder and rows is None:
        if wanted:
            raise ValueError(
                f"--stream and --ray are for Parquet files and folders of them, and {source} is neither"
            )
        return None
    unfit = [flag for flag, value in flags.items() if value not in (None, False)]
    if unfit and (folder or wanted):
        raise ValueError(f"{source} is read in parts, which {unfit[0]} does not go with: leave it out")
    if not (folder or wanted or (not unfit and (rows or 0) > STREAM_ROWS)):
        return None
    from tailwise.streams.sources import ParquetRows

    return ParquetRows(source)


def _parquet_rows(path: Path) -> int | None:
    """Return the number of rows of a Parquet file, 0 if reading it will fail; None for any other file."""
    if not path.is_file():  # to open a pipe would wait
        return None
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PAR1":
                return None
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    except Exception:
        return 0


@dataclass(frozen=True)
class StreamedTable:
    """A table that a model is trained on part by part; `held_out` says which rows are test rows."""

    stream: ParquetRows
    roles: read.Roles
    held_out: HeldOut | None = None
    workers: RayWorkers | None = None

    @classmethod
    def of(
        cls,
        stream: ParquetRows,
        roles: read.Roles,
        share: float,
        seed: int,
        workers: RayWorkers | None = None,
    ) -> StreamedTable:
        """Return a table with a share of its rows held out to measure on, at most `MEASURED_ROWS`."""
        from tailwise.streams.survey import held_share

        share = min(share, MEASURED_ROWS / stream.rows)
        held_out = held_share(share, _TEST_SEED + seed) if share > 0 else None
        table = cls(stream, roles, held_out, workers)
        _ = table.inputs  # raises an error for columns that are not there
        return table

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs."""
        from tailwise.model.stream import StreamColumns

        roles = self.roles
        return StreamColumns.of(self.stream, roles.targets, roles.weight, roles.drop).inputs

    def train(self, parameters: Mapping[str, Any], checkpoint: Path) -> TailRegressor:
        """Fit a model on the rows that are not test rows."""
        from tailwise.estimator import TailRegressor
        from tailwise.streams.survey import OtherRows

        rows: Any = self.stream if self.held_out is None else OtherRows(self.stream, self.held_out)
        return TailRegressor(**parameters).fit_batches(
            rows,
            self.roles.targets,
            weight=self.roles.weight,
            drop=self.roles.drop,
            checkpoint=checkpoint,
            workers=self.workers,
        )

    def test_rows(self) -> read.Rows | None:
        """Return the test rows, if there are any."""
        from tailwise.streams.survey import sampled_rows

        if self.held_out is None:
            return None
        columns = [*self.inputs, *self.roles.targets]
        return self._rows(sampled_rows(self.stream, self.held_out, columns).reset_index(drop=True))

    def like(self, source: str, reader: read.Reader) -> read.Rows:
        """Return the rows of another table to measure on, with the columns of this one."""
        import pandas as pd

        from tailwise.tables.columns import check_column

        other = open_stream(source, False, {})
        if other is None:
            like = pd.DataFrame(columns=self.inputs)
            return reader.rows(source, read.Roles(self.roles.targets), like=like)
        table = measured_rows(other, reader.shared.quiet)
        for column in (*self.inputs, *self.roles.targets):
            check_column(table, column, source)
        return self._rows(table)

    def _rows(self, table: pd.DataFrame) -> read.Rows:
        labels = table[list(self.roles.targets)].astype(float)
        return read.Rows(table[self.inputs], labels, name=self.stream.name)


def measured_rows(stream: ParquetRows, quiet: bool) -> pd.DataFrame:
    """Return the rows of a stream to measure a model on: all, or a random sample of `MEASURED_ROWS`."""
    from tailwise.streams.survey import held_share, sampled_rows

    share = min(1.0, MEASURED_ROWS / stream.rows)
    table = sampled_rows(stream, held_share(share, _TEST_SEED)).reset_index(drop=True)
    if len(table) < stream.rows:
        counts = f"{len(table)} of the {stream.rows} rows of {stream.name}"
        note(f"note: measured on a random sample of {counts}", quiet)
    return table
