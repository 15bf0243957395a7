"""A model measured on rows with labels, and a second one beside it: all rows at once, or part by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailwise.cli.streamed import ShownOnce, labelled_chunks

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.calibration.column_groups import ColumnGroups
    from tailwise.calibration.interval_scores import RunningCoverage
    from tailwise.estimator import TailRegressor
    from tailwise.report.baselines import Lineup, RunningLineup
    from tailwise.streams.parquet_rows import ParquetRows


@dataclass
class Measuring:
    """What is measured: targets with their places in the model, and coverage by the groups of a column.

    `figures` and `coverages`, by target, are sums over the rows of all parts.
    """

    model: TailRegressor
    columns: Mapping[str, int]
    coverage: float
    dial: Mapping[str, Any]
    groups: ColumnGroups | None = None
    second: tuple[Path, TailRegressor] | None = None
    rows: int = 0
    figures: dict[str, RunningLineup] = field(default_factory=dict)
    coverages: dict[str, RunningCoverage] = field(default_factory=dict)

    def line_up(
        self, inputs: pd.DataFrame, labels: pd.DataFrame, name: str, **levels: Any
    ) -> dict[str, Lineup]:
        """Score the models and their baselines on rows of the table `name`, for each target."""
        from tailwise.model.matching import match_inputs, match_targets
        from tailwise.report.baselines import line_up
        from tailwise.report.scoring import score_model

        rows, found = match_inputs(self.model.model_, inputs, name), {}
        for column, place in self.columns.items():
            other = None
            if self.second is not None:
                path, model = self.second
                own = match_targets(model.model_, inputs, [column], str(path))[column]
                theirs = match_inputs(model.model_, inputs, name)
                other = score_model(model, theirs, labels[column], self.coverage, target=own, **levels)
                if model.method == self.model.method:
                    other = replace(other, title=f"{other.title} ({path.name})")
            given = {"target": place, "other": other, **self.dial, **levels}
            found[column] = line_up(self.model, rows, labels[column], self.coverage, **given)
        return found

    def add_stream(self, stream: ParquetRows, inputs: pd.DataFrame, quiet: bool) -> None:
        """Take in every row of a stream that has labels, in parts; `inputs` are some of its rows."""
        from tailwise.model.matching import match_inputs
        from tailwise.report.baselines import RunningLineup
        from tailwise.tables.columns import split_targets

        models = [self.model, *([] if self.second is None else [self.second[1]])]
        needed = [str(c) for model in models for c in match_inputs(model.model_, inputs, stream.name).columns]
        needed += [] if self.groups is None else [str(self.groups.column)]
        shown_once = ShownOnce()
        for chunk, source in labelled_chunks(stream, needed, list(self.columns), quiet):
            part, labels, _ = split_targets(chunk, list(self.columns), source)
            with shown_once:
                lineups = self.line_up(part, labels, source, levels=())
            for column, lineup in lineups.items():
                self.figures.setdefault(column, RunningLineup()).add(lineup)
            self.add_coverage(lineups, chunk)
            self.rows += len(chunk)

    def add_coverage(self, lineups: Mapping[str, Lineup], table: pd.DataFrame) -> None:
        """Take in the intervals of rows of a table, if coverage goes by the groups of a column."""
        from tailwise.calibration.interval_scores import RunningCoverage

        if self.groups is None:
            return
        codes = self.groups.codes(table[str(self.groups.column)])
        for column, lineup in lineups.items():
            scored = lineup.ours
            running = self.coverages.setdefault(column, RunningCoverage(self.groups))
            running.add(codes, scored.lower, scored.upper, scored.y)
