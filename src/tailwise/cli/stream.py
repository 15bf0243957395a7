"""Tables larger than memory for commands: which files are streamed, and what commands do with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailwise.cli.output import STANDARD, note
from tailwise.cli.read import Reader, Roles, Rows

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

Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Train on a Ray cluster: host:port, auto, or local to start one on this machine.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="N", min=1, help="With --ray, number of training processes; 2 by default."
    ),
]


def ray_workers(address: str | None, workers: int | None, device: str) -> RayWorkers | None:
    """Return the workers that --ray and --workers ask for."""
    if address is None:
        if workers is not None:
            raise ValueError("--workers is the number of processes on a Ray cluster: give --ray as well")
        return None
    from tailwise.training.ray_workers import RayWorkers

    cluster = RayWorkers(workers=workers or 2, address=address, gpus=device in ("gpu", "cuda"))
    cluster.check()
    return cluster


def open_stream(source: str, wanted: bool, flags: Mapping[str, object]) -> ParquetRows | None:
    """Return a table as a stream if it is a folder or large, or if that is `wanted`; otherwise None.

    `flags` are the values of options that a stream does not take. One that is set is an error for a folder
    and with `wanted`; a large file is read as a whole then.
    """
    path = Path(source)
    folder = source != STANDARD and path.is_dir() and _has_parquet(path)
    parquet = source != STANDARD and path.is_file() and _starts_like_parquet(path)
    if wanted and not folder and not parquet:
        raise ValueError(
            f"--stream and --ray are for Parquet files and folders of them, and {source} is neither"
        )
    if not (folder or parquet):
        return None
    from tailwise.streams.sources import ParquetRows

    unfit = [flag for flag, value in flags.items() if value not in (None, False)]
    if unfit and (folder or wanted):
        raise ValueError(f"{source} is read in parts, which {unfit[0]} does not go with: leave it out")
    if folder or wanted or (not unfit and _rows(path) > STREAM_ROWS):
        return ParquetRows(source)
    return None


def _has_parquet(folder: Path) -> bool:
    """Whether a folder has Parquet files; of one that has none, reading it says so."""
    from tailwise.streams.sources import parquet_files

    try:
        return bool(parquet_files(folder))
    except ValueError:
        return False


def _starts_like_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


def _rows(path: Path) -> int:
    """The rows of a Parquet file; 0 if it cannot be opened, which reading it explains."""
    try:
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    except Exception:
        return 0


@dataclass(frozen=True)
class StreamedTable:
    """A table that a model is trained on part by part; `held_out` says which rows are test rows."""

    stream: ParquetRows
    targets: list[str]
    drop: list[str]
    weight: str | None
    held_out: HeldOut | None = None
    workers: RayWorkers | None = None

    @classmethod
    def of(
        cls, stream: ParquetRows, roles: Roles, share: float, seed: int, workers: RayWorkers | None = None
    ) -> StreamedTable:
        """Return a table with a share of its rows held out to measure on, at most `MEASURED_ROWS`."""
        from tailwise.streams.survey import held_share

        share = min(share, MEASURED_ROWS / stream.rows)
        held_out = held_share(share, _TEST_SEED + seed) if share > 0 else None
        table = cls(stream, list(roles.targets), list(roles.drop), roles.weight, held_out, workers)
        _ = table.inputs  # raises an error for columns that are not there
        return table

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs."""
        from tailwise.model.stream import StreamColumns

        return StreamColumns.of(self.stream, self.targets, self.weight, self.drop).inputs

    def train(self, parameters: Mapping[str, Any], checkpoint: Path) -> TailRegressor:
        """Fit a model on the rows that are not test rows."""
        from tailwise.estimator import TailRegressor
        from tailwise.streams.survey import OtherRows

        rows: Any = self.stream if self.held_out is None else OtherRows(self.stream, self.held_out)
        return TailRegressor(**parameters).fit_batches(
            rows,
            self.targets,
            weight=self.weight,
            drop=self.drop,
            checkpoint=checkpoint,
            workers=self.workers,
        )

    def test_rows(self) -> Rows | None:
        """Return the test rows, if there are any."""
        from tailwise.streams.survey import sampled_rows

        if self.held_out is None:
            return None
        columns = [*self.inputs, *self.targets]
        return self._rows(sampled_rows(self.stream, self.held_out, columns).reset_index(drop=True))

    def like(self, source: str, reader: Reader) -> Rows:
        """Return the rows of another table to measure on, with the columns of this one."""
        import pandas as pd

        from tailwise.tables.columns import check_column

        other = open_stream(source, False, {})
        if other is None:
            return reader.rows(source, Roles(self.targets), like=pd.DataFrame(columns=self.inputs))
        table = measured_rows(other, reader.shared.quiet)
        for column in (*self.inputs, *self.targets):
            check_column(table, column, source)
        return self._rows(table)

    def _rows(self, table: pd.DataFrame) -> Rows:
        return Rows(table[self.inputs], table[self.targets].astype(float), name=self.stream.name)


def measured_rows(stream: ParquetRows, quiet: bool) -> pd.DataFrame:
    """Return the rows of a stream to measure a model on: all, or a random sample of `MEASURED_ROWS`."""
    from tailwise.streams.survey import held_share, sampled_rows

    share = min(1.0, MEASURED_ROWS / stream.rows)
    table = sampled_rows(stream, held_share(share, _TEST_SEED)).reset_index(drop=True)
    if len(table) < stream.rows:
        counts = f"{len(table)} of the {stream.rows} rows of {stream.name}"
        note(f"note: measured on a random sample of {counts}", quiet)
    return table


def predicted_chunks(
    model: TailRegressor,
    stream: ParquetRows,
    keep: Sequence[str],
    regions: dict[str, Counter[str]],
    coverage: float,
    dial: Mapping[str, Any],
) -> Iterator[pd.DataFrame]:
    """Yield a table of predictions for each chunk of a stream, and count the regions of the predictions."""
    import pandas as pd

    from tailwise.model.inputs import match_inputs
    from tailwise.streams.sources import SOURCE
    from tailwise.tables.columns import check_column

    empty = pd.DataFrame(columns=list(stream.columns))
    for column in keep:
        check_column(empty, column, stream.name)
    needed = list(match_inputs(model.model_, empty, stream.name).columns)
    for chunk in stream.chunks(list(dict.fromkeys([*needed, *keep]))):
        rows = match_inputs(model.model_, chunk, str(chunk.attrs[SOURCE]))
        frame = model.predict_frame(rows, coverage, **dial)
        yield beside_kept(frame, chunk, keep, regions)


def beside_kept(
    frame: pd.DataFrame, table: pd.DataFrame, keep: Sequence[str], regions: dict[str, Counter[str]]
) -> pd.DataFrame:
    """Return predictions behind the columns of their table to keep, and count the predicted regions."""
    import pandas as pd

    clash = next((name for name in keep if name in frame), None)
    if clash is not None:
        raise ValueError(f"the column {clash!r} of --keep has the name of a prediction: rename it")
    for name in map(str, frame):
        if name.startswith("region"):
            regions.setdefault(name, Counter()).update(frame[name].astype(str))
    return pd.concat([table[list(keep)], frame.set_axis(table.index)], axis=1)
