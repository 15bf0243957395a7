"""Fitted models as ONNX, for places without Python: base, networks, calibration and dial in one graph.

Networks, calibration, label priors, bounds and intervals are the code that predicts, traced. Only the base
and the encoding of columns (`nodes`), and the functions of the Student-t (`student_t`), are built from
operations that ONNX has.
"""

from __future__ import annotations

import copy
import itertools
import json
import logging
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tailwise._version import __version__
from tailwise.calibration.calibration import Calibration, Raw
from tailwise.calibration.intervals import ConformalIntervals
from tailwise.calibration.scaling import standard_deviation
from tailwise.distributions.members import Distribution, checked_coverage, stack
from tailwise.distributions.transform import Tabulated
from tailwise.labels.bins import LabelBins
from tailwise.labels.support import LabelSupport
from tailwise.model.model import Model
from tailwise.onnx.nodes import BASE, OUTPUTS, columns_inside, takes_columns, tree_nodes
from tailwise.onnx.student_t import StudentTails, traceable
from tailwise.tables.inputs import as_pandas
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
    method: str,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    coverage: float | None = 0.9,
    rare: float | None = None,
    raw_columns: bool = False,
) -> Path:
    """Write a fitted model as one ONNX file and return its path; see `TailRegressor.export_onnx`.

    The input ``x`` is float64 (N, F), a matrix of `TablePreprocessor.matrix`; an infinity counts as missing.
    With `raw_columns` the inputs are the columns of the table, (N,) each, as `column_inputs` makes them:
    numbers are float64, NaN where missing; categories are strings, empty where missing.

    The outputs are float64, in the units of y: ``prediction`` and ``std`` (N,), ``quantiles`` (N, Q),
    ``lower`` and ``upper`` (N,). With several targets they are (N, T) and (N, T, Q). The file's metadata has
    the levels, the coverage, `rare`, the emphasis and the names of the columns; with `raw_columns`,
    ``inputs`` says what each input is.

    Five CatBoost models of 1000 trees take about 24 MB. An emphasis needs memory for up to 100 numbers per
    row, and for each member of a mixture, several times: pass large tables in batches of some thousand rows.
    """
    levels = tuple(float(q) for q in quantiles)
    _check_can_be_exported(model, levels, coverage, rare)
    # Columns and bases are refused before the work, not after it.
    columns = columns_inside(model.table.encoder) if raw_columns else []
    trees = tree_nodes(model.base.targets, model.latent_bins) if model.base.targets else None
    graph = _Graph(model, levels, coverage, rare).eval()
    rows = graph.rows_to_check()
    inputs = [rows]
    if trees is not None:
        targets = zip(model.base.targets, model.latent_bins, strict=True)
        base = [(target.latent(rows.numpy()) - b.location) / b.scale for target, b in targets]
        inputs.append(torch.from_numpy(np.stack(base, axis=1)))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter's, about itself
        wanted = graph(*inputs)  # fills caches with real tensors, too
        proto = _traced(graph, [value[:7] for value in inputs])
    if trees is not None:
        trees.put(proto)
    # Under a label prior there is no emphasis.
    emphases = [None if math.isnan(target.emphasis) else target.emphasis for target in model.targets]
    for key, value in {
        "tailwise": __version__,
        "method": method,
        "quantiles": levels,
        "coverage": coverage,
        "rare": rare,
        "emphasis": emphases if model.several else emphases[0],
        "columns": model.table.encoder.names or [f"x{i}" for i in range(rows.shape[1])],
    }.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, json.dumps(value)
    data: bytes = proto.SerializeToString()
    _verify(data, rows, wanted, graph)
    if raw_columns:
        data = takes_columns(proto, columns).SerializeToString()
    path = Path(path)
    write_atomically(path, lambda part: part.write_bytes(data))
    return path


def _check_can_be_exported(
    model: Model, levels: Sequence[float], coverage: float | None, rare: float | None
) -> None:
    """Raise an error for a model or outputs that an ONNX file cannot hold."""
    require_onnx()
    if not model.inputs.is_table:
        raise ValueError(
            "export_onnx is for tables, not for pictures or what a backbone of your own takes: "
            "export `networks_` with torch.onnx and an input of yours"
        )
    refused = {
        "base_prediction: fit with base='auto' or None": model.base.given,
        "a target_transform of your own: fit with 'log', 'yeo-johnson' or None": any(
            isinstance(target.labels.transform, Tabulated) for target in model.targets
        ),
        "intervals by a column: pass coverage=None, or fit without conformal_by": (
            model.inputs.groups.names and coverage is not None
        ),
    }
    for what, there in refused.items():
        if there:
            raise ValueError(f"an ONNX file cannot hold {what}")
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"quantile levels must lie between 0 and 1, got {list(levels)}")
    if coverage is not None:
        checked_coverage(coverage)
    elif rare is not None:
        raise ValueError("rare is for intervals: give a coverage")


def column_inputs(model: Model, x: Any) -> dict[str, NDArray[Any]]:
    """Return rows of a table as the inputs of a file that `export_onnx` wrote with `raw_columns`.

    The result is what ``session.run`` of onnxruntime takes: the name of each input and its values, (N,).
    """
    encoder = model.table.encoder
    columns = columns_inside(encoder)
    if not encoder.encoders:
        return dict(zip((column.input for column in columns), encoder.matrix(x).T, strict=True))
    table = as_pandas(x)
    return {column.input: column.values(table[column.name]) for column in columns}


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


def _traced(graph: _Graph, inputs: Sequence[Tensor]) -> Any:
    """The graph as an ONNX model for any number of rows."""
    names, logger = ["x", BASE][: len(inputs)], logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # no notes on packages that it does not find
    try:
        # In two steps: of a model, torch.onnx would try tracing that fixes the number of rows.
        rows = [{0: torch.export.Dim("rows", max=MAX_ROWS)}] * len(inputs)
        exported = torch.export.export(graph, tuple(inputs), dynamic_shapes=rows, strict=False)
        program = torch.onnx.export(
            exported,
            dynamo=True,
            opset_version=OPSET,
            input_names=names,
            output_names=graph.outputs,
            verbose=False,
        )
    finally:
        logger.setLevel(level)
    assert program is not None
    proto = program.model_proto
    symbol = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == symbol:
                dim.dim_param = "rows"
    return proto


def _verify(data: bytes, x: Tensor, wanted: Sequence[Tensor], graph: _Graph) -> None:
    """Run an exported model on numbers of rows that the exporter has not seen, before anyone else does."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        for rows in (1, len(x)):
            for output, whole in zip(session.run(None, {"x": x[:rows].numpy()}), wanted, strict=True):
                value = whole[:rows].numpy()
                units = graph.scale.numpy().reshape(-1, *[1] * (value.ndim - 1 - graph.several))
                # The median, as rounding may carry a single row into the next label bin.
                off = np.median(np.abs(output - value) / units, axis=0).max()
                if output.shape != value.shape or not off < TOLERANCE:
                    raise ValueError(f"outputs of shape {output.shape} differ by {off:.1g}")
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise RuntimeError(
            f"the ONNX file would not predict as the model does ({reason}): use a base without a link, "
            f"another backbone, or another version of torch ({torch.__version__} here) and onnxscript"
        ) from error


class _Graph(nn.Module):
    """From raw numbers to calibrated predictions; a copy, so that tracing leaves the model alone.

    It works in standard deviations of the labels and returns to their units at the end, by tensors: the
    exporter rounds plain numbers to float32 and drops those it takes for 0, as 1e-12 is.
    """

    scale: Tensor
    location: Tensor
    ends: Tensor
    reach: Tensor
    levels: Tensor

    def __init__(
        self, model: Model, levels: Sequence[float], coverage: float | None, rare: float | None = None
    ) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(model.table.encoder.numeric).cpu()
        # In the precision of training: half the size, and fast everywhere.
        self.networks = nn.ModuleList(copy.deepcopy(network).cpu().float() for network in model.networks)
        for part in self.networks.modules():
            bins = getattr(part, "bins", None)
            if isinstance(bins, LabelBins):
                vars(part)["bins"] = bins.standardized()
        self.tails, self.several = StudentTails(), model.several
        self.coverage, self.rare = coverage, rare
        self.targets = [_standardized(target) for target in model.targets]
        transforms = [target.labels.transform for target in model.targets]
        self.supports = [target.labels.support for target in model.targets]
        limits = [target.labels.limits for target in model.targets]
        for name, values in {
            "scale": [b.scale for b in model.bins],  # (T,)
            "location": [b.location / b.scale for b in model.bins],
            "ends": [(ends.low, ends.high) for ends in limits],  # (T, 2)
            # (T, 2) of the base, as predictions in label units and back are limited
            "reach": [
                ((t.low - b.location) / b.scale, (t.high - b.location) / b.scale)
                for t, b in zip(transforms, model.latent_bins, strict=True)
            ],
            "levels": [[level] for level in levels],  # (Q, 1)
        }.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

    @property
    def outputs(self) -> list[str]:
        """Names of what it returns, in order."""
        quantiles, interval = len(self.levels) > 0, self.coverage is not None
        return list(itertools.compress(OUTPUTS, (True, True, quantiles, interval, interval)))

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
            base = torch.minimum(torch.maximum(base, self.reach[:, 0]), self.reach[:, 1])
            inputs = torch.cat([inputs, base.to(inputs.dtype)], dim=1)
            offset = base if self.several else base[:, 0]
        every = stack([network(inputs, offset=offset) for network in self.networks])
        with traceable(self.tails):
            targets = [
                self._target(every[..., t] if self.several else every, t) for t in range(len(self.targets))
            ]
        return tuple(
            torch.stack(parts, dim=1) if self.several else parts[0] for parts in zip(*targets, strict=True)
        )

    def _target(self, raw: Distribution, t: int) -> tuple[Tensor, ...]:
        predicted = self.targets[t](Raw.of(raw, np.zeros(0, np.int64)))
        distribution, support = predicted.distribution, self.supports[t]
        answers = [
            self._in_label_units(distribution.point, t),
            standard_deviation(distribution) * self.scale[t],
        ]
        if len(self.levels):
            quantiles = distribution.quantile(self.levels).T
            answers.append(support.nearest(self._in_label_units(quantiles, t)))
        if self.coverage is not None:
            ends = predicted.interval(self.coverage, self.rare)
            lower, upper = (self._in_label_units(end, t) for end in ends)
            answers += support.between(lower, upper)
        return tuple(answers)

    def _in_label_units(self, y: Tensor, t: int) -> Tensor:
        """Return labels that were standardised in their units, within the bounds."""
        low, high = self.ends[t].unbind()
        return torch.minimum(torch.maximum((y + self.location[t]) * self.scale[t], low), high)


def _standardized(target: Calibration) -> Calibration:
    """Return a calibration for labels in units of their standard deviation; all of them are possible."""
    labels, shift, scale = target.labels, -target.bins.location / target.bins.scale, 1 / target.bins.scale
    latent = labels.latent_bins
    transform: Any = labels.transform
    if not transform.is_identity:
        units = -latent.location / latent.scale, 1 / latent.scale
        transform = transform.rescale(units, (shift, scale))
    bins, intervals = target.bins.standardized(), target.intervals
    if isinstance(intervals, ConformalIntervals):
        intervals = intervals.standardized()
    return replace(
        target,
        labels=replace(
            labels,
            bins=bins,
            bounds=labels.bounds.rescale(shift, scale),
            support=LabelSupport(),
            transform=transform,
        ),
        prior=replace(target.prior, tilt=target.prior.tilt.rescale(shift, scale)),
        intervals=intervals,
    )
