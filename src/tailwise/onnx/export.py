"""Fitted models as ONNX, for places without Python: base, networks, calibration and dial in one graph.

The networks, the calibration, bounds and label priors are the code that predicts, traced. The base (`trees`)
and the functions of the Student-t (`quantiles`) are rebuilt from operations that ONNX has.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tailwise._version import __version__
from tailwise.calibration.calibration import Calibration, Labels
from tailwise.calibration.intervals import ConformalIntervals, OwnIntervals, majority
from tailwise.calibration.spreads import standard_deviation
from tailwise.distributions.members import Distribution, concatenate, pooled
from tailwise.labels.bins import LabelBins
from tailwise.model.inputs import TableInputs
from tailwise.model.model import Model
from tailwise.onnx.columns import columns_inside, raw_inputs, takes_columns
from tailwise.onnx.quantiles import Quantiles, StudentTails, TracedTilt, grid_root
from tailwise.onnx.trees import BASE, base_model, check_exportable, put_in_front
from tailwise.writing import write_atomically

Floats = NDArray[np.float64]

OPSET = 18
MAX_ROWS = 2**31 - 1
TOLERANCE = 1e-4
"""How far onnxruntime may be off in units of the labels' standard deviation."""
_CHECKED_ROWS = 33


def export_onnx(
    model: Model,
    path: str | Path,
    *,
    method: str,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    coverage: float | None = 0.9,
    raw_columns: bool = False,
) -> Path:
    """Write the numeric part of a fitted `TailRegressor` as one ONNX file and return its path.

    The input ``x`` is float64 (N, F): ``estimator.preprocessor_.matrix(X)``. For arrays and tables of
    numbers these are the columns as they are, NaN where missing. For tables with text, categories or
    dates they are the output of skrub's vectorizer, which is not part of the file. An infinity counts as
    missing.

    With `raw_columns` the inputs are the columns of the table instead, (N,) each, and the file encodes them:
    numbers are float64, NaN where missing; categories are strings, empty where missing. Text, dates and
    durations are an error. `column_inputs` makes the inputs from a table. A call needs at least one row.

    The outputs are float64, in the units of y, and agree with the estimator: ``prediction`` and ``std`` (N,),
    ``quantiles`` (N, Q), ``lower`` and ``upper`` (N,) of `predict_interval` at `coverage`. With several
    targets they are (N, T) and (N, T, Q). No `quantiles`, or a `coverage` of None, leaves those outputs out.
    The file has the label prior of the model, which `Model.at` changes.

    The file contains the base: CatBoost, LightGBM or scikit-learn's HistGradientBoostingRegressor. A model
    with another base, or with base predictions of your own, cannot be exported, nor can intervals by a column
    (`conformal_by`). Five CatBoost models of 1000 trees take about 24 MB. An emphasis needs memory for up to
    100 numbers per row, and for each member of a mixture, several times: pass large tables in batches of some
    thousand rows.

    The file's metadata has the levels, the coverage, the emphasis and the names of the columns; with
    `raw_columns`, ``inputs`` says what each input is. A file that exists is replaced.
    """
    if model.base.given:
        raise ValueError(
            "this model was fitted with base_prediction, from a model that cannot be part of an ONNX file: "
            "fit with base='auto' or base=None to export"
        )
    if model.inputs.groups.names and coverage is not None:
        raise ValueError(
            "intervals by a column (conformal_by) cannot be part of an ONNX file: pass coverage=None to "
            "leave out intervals, or fit without conformal_by"
        )
    for own in model.base.targets:
        check_exportable(own.models[0])
    require_onnx()
    levels = tuple(float(q) for q in quantiles)
    if not all(0 < q < 1 for q in levels):
        raise ValueError(f"quantile levels must lie between 0 and 1, got {list(levels)}")
    if coverage is not None and not 0 < coverage < 1:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
    if not isinstance(model.inputs, TableInputs):
        raise ValueError(
            "export_onnx is for tables, not for pictures or what a backbone of your own takes: "
            "export `networks_` with torch.onnx and an input of yours"
        )
    if raw_columns:
        columns_inside(model.inputs.encoder)  # refuses columns before the work, not after it
    graph = _Graph(model, levels, coverage).eval()
    rows, base, trees = graph.rows_to_check(), None, None
    if model.base.targets:
        trees = base_model(model.base.targets, model.bins, rows.shape[1], OPSET, rows.numpy())
        columns = zip(model.base.targets, model.bins, strict=True)
        base = torch.from_numpy(
            np.stack([(own.predict(rows.numpy()) - b.location) / b.scale for own, b in columns], axis=1)
        )
    with torch.no_grad():
        graph(rows, base)  # fills caches with real tensors
    proto = _traced(graph, rows[:7], None if base is None else base[:7])
    if trees is not None:
        put_in_front(trees, proto)
    # Under a label prior there is no emphasis.
    each = [None if math.isnan(target.emphasis) else target.emphasis for target in model.targets]
    for key, value in {
        "tailwise": __version__,
        "method": method,
        "quantiles": levels,
        "coverage": coverage,
        "emphasis": each if model.several else each[0],
        "columns": _columns(model.inputs, rows.shape[1]),
    }.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, json.dumps(value)
    data: bytes = proto.SerializeToString()
    _verify(data, graph, rows, base)
    if raw_columns:
        data = takes_columns(proto, model.inputs.encoder).SerializeToString()
    path = Path(path)
    write_atomically(path, lambda part: part.write_bytes(data))
    return path


def column_inputs(model: Model, x: Any) -> dict[str, NDArray[Any]]:
    """Return rows of a table as the inputs of a file that `export_onnx` wrote with `raw_columns`.

    The result is what ``session.run`` of onnxruntime takes: the name of each input and its values, (N,).
    """
    return raw_inputs(model.table.encoder, x)


def require_onnx() -> None:
    """Raise an error if a package that the export needs is not installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"export_onnx needs {error.name}: pip install 'tailwise[export]'", name=error.name
        ) from error


def _columns(inputs: TableInputs, count: int) -> list[str]:
    return inputs.encoder.names or [f"x{i}" for i in range(count)]


def _traced(graph: _Graph, x: Tensor, base: Tensor | None) -> Any:
    """The graph as an ONNX model for any number of rows."""
    given = (x,) if base is None else (x, base)
    with torch.no_grad(), warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")  # the exporter's own, about itself
        # In two steps: of a model, torch.onnx would try tracing that fixes the number of rows.
        rows = torch.export.Dim("rows", max=MAX_ROWS)
        exported = torch.export.export(graph, given, dynamic_shapes=[{0: rows}] * len(given), strict=False)
        program = torch.onnx.export(
            exported, dynamo=True, opset_version=OPSET, input_names=["x", BASE][: len(given)], verbose=False
        )
    assert program is not None
    proto = program.model_proto
    _rename(proto.graph, graph.outputs)
    return proto


def _verify(data: bytes, graph: _Graph, x: Tensor, base: Tensor | None) -> None:
    """Run an exported model on numbers of rows that the exporter has not seen, before anyone else does."""
    import onnxruntime

    scale = graph.scale.numpy()  # (T,)
    try:
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        for rows in (1, len(x)):
            with torch.no_grad():
                wanted = graph(x[:rows], None if base is None else base[:rows])
            for found, value in zip(session.run(None, {"x": x[:rows].numpy()}), wanted, strict=True):
                units = scale.reshape(-1, *[1] * (value.dim() - 2)) if graph.several else scale[0]
                # The median, as rounding may carry a single row into the next label bin.
                off = np.median(np.abs(found - value.numpy()) / units, axis=0).max()
                if found.shape != value.shape or not off < TOLERANCE:
                    raise ValueError(f"outputs of shape {found.shape} differ by {off:.1g}")
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise RuntimeError(
            f"torch {torch.__version__} has not exported this network faithfully ({reason}): "
            "upgrade torch and onnxscript, or choose another backbone"
        ) from error


def _rename(graph: Any, names: Sequence[str]) -> None:
    """Name the outputs and the rows; a value inside with the name of an output makes room."""
    renamed = dict(zip((value.name for value in graph.output), names, strict=True))
    renamed |= {name: f"{name}_inside" for name in names if name not in renamed}
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    for value in (*graph.initializer, *graph.value_info, *graph.output):
        value.name = renamed.get(value.name, value.name)
    symbol = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.value_info, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == symbol:
                dim.dim_param = "rows"


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's notes on packages that it does not find."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class _Graph(nn.Module):
    """From raw numbers to calibrated predictions; a copy, so that tracing leaves the model alone.

    It works in standard deviations of the labels and returns to their units at the end, by tensors: the
    exporter rounds plain numbers to float32 and drops those it takes for 0, as 1e-12 is.
    """

    scale: Tensor
    location: Tensor

    def __init__(
        self,
        model: Model,
        levels: tuple[float, ...],
        coverage: float | None,
    ) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(model.table.encoder.numeric).cpu()
        # In the precision of training: half the size, and fast everywhere.
        self.networks = nn.ModuleList(copy.deepcopy(network).cpu().float() for network in model.networks)
        for part in self.networks.modules():
            bins = getattr(part, "bins", None)
            if isinstance(bins, LabelBins):
                vars(part)["bins"] = bins.standardized()
        calibrators, bins = model.targets, model.bins
        self.intervals = [_standardized(target) for target in calibrators]
        self.register_buffer("scale", torch.tensor([b.scale for b in bins], dtype=torch.float64))  # (T,)
        self.register_buffer(
            "location", torch.tensor([b.location / b.scale for b in bins], dtype=torch.float64)
        )
        self.levels, self.coverage = levels, coverage
        self.several = model.several
        self.quantiles = Quantiles(levels) if levels else None
        self.ends = None
        if coverage is not None and any(isinstance(own, OwnIntervals) for own in self.intervals):
            self.ends = Quantiles(((1 - coverage) / 2, (1 + coverage) / 2))
        self.scalings = [target.scaling for target in calibrators]
        self.supports = [target.labels.support for target in calibrators]
        self.bounds = nn.ModuleList(_TracedBounds(target.labels) for target in calibrators)
        self.tilts = nn.ModuleList(_traced_tilt(target) for target in calibrators)

    @property
    def outputs(self) -> list[str]:
        """Names of what it returns, in order."""
        names = ["prediction", "std"]
        return names + ["quantiles"] * bool(self.levels) + ["lower", "upper"] * (self.coverage is not None)

    def rows_to_check(self) -> Tensor:
        """Rows like those of the training table, some with missing values, one with nothing else."""
        rng = np.random.default_rng(0)
        noise = rng.normal(size=(_CHECKED_ROWS, len(self.encoder.center)))
        noise[rng.random(noise.shape) < 0.1] = np.nan
        noise[1] = np.nan
        return self.encoder.center + self.encoder.scale * torch.from_numpy(noise)

    def forward(self, x: Tensor, base: Tensor | None = None) -> tuple[Tensor, ...]:
        """x: (N, F), base: (N, T), standardised as labels are"""
        inputs, offset = self.encoder(x), None
        if base is not None:
            inputs = torch.cat([inputs, base.to(inputs.dtype)], dim=1)
            offset = base if self.several else base[:, 0]
        raw = [network(inputs, offset=offset) for network in self.networks]
        each = [
            self._target([own[:, t] for own in raw] if self.several else raw, t)
            for t in range(len(self.intervals))
        ]
        if not self.several:
            return each[0]
        return tuple(torch.stack(parts, dim=1) for parts in zip(*each, strict=True))

    def _in_use(self, raw: Distribution, t: int) -> Distribution:
        """A prediction, calibrated, within the bounds and under the label prior."""
        bounded: Distribution = self.bounds[t](self.scalings[t].apply(raw))
        found: Distribution = self.tilts[t](bounded)
        return found

    def _interval(
        self,
        intervals: ConformalIntervals,
        coverage: float,
        raw: Sequence[Distribution],
        own: Distribution,
        t: int,
    ) -> tuple[Tensor, Tensor]:
        """Ends as in `Predicted.interval`, from one distribution for all networks: a small graph."""
        if len(raw) == 1 or not intervals.votes:
            return intervals.ends(own, coverage)
        ends = intervals.ends(self._in_use(concatenate(raw), t), coverage)
        lower, upper = (end.reshape(len(raw), -1) for end in ends)
        return majority(lower, upper, own.point)

    def _target(self, raw: Sequence[Distribution], t: int) -> tuple[Tensor, ...]:
        intervals = self.intervals[t]
        bounds: Any = self.bounds[t]
        own = self._in_use(pooled(raw), t)
        found = [own.point, standard_deviation(own)]
        if self.quantiles is not None:
            found.append(self.quantiles(own))
        if isinstance(intervals, ConformalIntervals) and self.coverage is not None:
            found += self._interval(intervals, self.coverage, raw, own, t)
        elif self.ends is not None:
            found += self.ends(own).unbind(-1)
        named = dict(zip(self.outputs, found, strict=True))
        for name, value in named.items():
            named[name] = (value if name == "std" else value + self.location[t]) * self.scale[t]
            if name != "std":
                named[name] = bounds.clip(named[name])
        support = self.supports[t]
        if "quantiles" in named:
            named["quantiles"] = support.nearest(named["quantiles"])
        if "lower" in named:
            named["lower"], named["upper"] = support.between(named["lower"], named["upper"])
        return tuple(named.values())


def _standardized(target: Calibration) -> ConformalIntervals | OwnIntervals:
    """Intervals of a target, for labels in units of their standard deviation."""
    own = target.intervals
    return replace(own, bins=own.bins.standardized()) if isinstance(own, ConformalIntervals) else own


def _traced_tilt(target: Calibration) -> TracedTilt:
    """The tilt and bounds of a target, for labels in units of their standard deviation."""
    tilt = target.prior.tilt + target.labels.bounds.tilt
    b = target.bins
    return TracedTilt(tilt.rescale(-b.location / b.scale, 1 / b.scale))


class _TracedBounds(nn.Module):
    """The bounds of a target, for labels in standard deviations; `clip` takes labels in their units."""

    low: Tensor
    high: Tensor

    def __init__(self, labels: Labels) -> None:
        super().__init__()
        b = labels.bins
        self.bounds = labels.bounds.rescale(-b.location / b.scale, 1 / b.scale)
        self.tails = StudentTails()
        for name in ("low", "high"):
            end = getattr(labels.bounds, name)
            self.register_buffer(name, torch.tensor(end, dtype=torch.float64))

    def forward(self, distribution: Distribution) -> Distribution:
        return self.bounds.centred(distribution, self.tails, grid_root)

    def clip(self, y: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(y, self.low), self.high)
