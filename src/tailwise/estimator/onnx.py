"""Fitted models as ONNX, for places without Python: prediction, uncertainty and calibration in one graph.

What is exported is the very code that predicts, traced. Quantiles alone are computed otherwise, as
ONNX knows no Student-t: `StudentQuantiles` fits, for each exported level, a polynomial in the degrees
of freedom when the file is written.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.polynomial.chebyshev import Chebyshev
from numpy.typing import NDArray
from scipy import special
from torch import Tensor, nn

from tailwise._version import __version__
from tailwise.core.distributions import NIG, Distribution, Mixture, Normal, pooled
from tailwise.core.labels import LabelBins
from tailwise.data.writing import write_atomically
from tailwise.uncertainty.calibrator import Calibrator

if TYPE_CHECKING:
    from tailwise.estimator.regressor import TailRegressor

Floats = NDArray[np.float64]

OPSET = 18
MAX_ROWS = 2**31 - 1
TOLERANCE = 1e-4
"""How far onnxruntime may be off in units of the labels' standard deviation."""
MIN_DF = 0.5
"""Student-t quantiles with fewer degrees of freedom are taken at this many."""
_DEGREE = 24
_SMALL = 1e-7


def export_onnx(
    estimator: TailRegressor,
    path: str | Path,
    *,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    coverage: float | None = 0.9,
) -> Path:
    """Write the numeric part of a fitted `TailRegressor` as one ONNX file and return its path.

    The input ``x`` is float64 (N, F): ``estimator.preprocessor_.matrix(X)``. For arrays and tables of
    numbers these are the columns as they are, NaN where missing; for tables with text, categories
    or dates they are what skrub's vectorizer makes of them, which stays outside. An infinity counts as
    missing.

    The outputs are float64, in the units of y, scaled and conformal as those of the estimator:
    ``mean`` and ``std`` (N,), ``quantiles`` (N, Q), ``lower`` and ``upper`` (N,) of
    `predict_interval` at `coverage`. With several targets (N, T) and (N, T, Q). No `quantiles` or
    a `coverage` of None leave out what they ask for, which mixtures (ensembles, noise at inference,
    ``inference="marginal"``) need: their quantiles have no closed form. The file's metadata holds the
    levels, the coverage and the names of the columns. A file that exists is replaced.
    """
    _require_onnx()
    levels = tuple(float(q) for q in quantiles)
    if not all(0 < q < 1 for q in levels):
        raise ValueError(f"quantile levels must lie between 0 and 1, got {list(levels)}")
    if coverage is not None and not 0 < coverage < 1:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
    if estimator.preprocessor_ is None:
        raise ValueError(
            "export_onnx is for tables, and a backbone of your own may take anything: "
            "export `networks_` with torch.onnx and an input of yours"
        )
    graph = _Graph(estimator, levels, coverage).eval()
    columns = len(graph.encoder.center)
    example = torch.zeros(7, columns, dtype=torch.float64)
    with torch.no_grad():
        graph(example)  # refuses what cannot be exported, and fills caches with real tensors
    proto = _traced(graph, example)
    for key, value in {
        "tailwise": __version__,
        "method": estimator.method,
        "quantiles": levels,
        "coverage": coverage,
        "columns": _columns(estimator, columns),
    }.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, json.dumps(value)
    data: bytes = proto.SerializeToString()
    _verify(data, graph)
    path = Path(path)
    write_atomically(path, lambda part: part.write_bytes(data))
    return path


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"export_onnx needs {error.name}: pip install 'tailwise[export]'", name=error.name
        ) from error


def _columns(estimator: TailRegressor, count: int) -> list[str]:
    preprocessor = estimator.preprocessor_
    assert preprocessor is not None
    if preprocessor.vectorizer is not None:
        return [str(name) for name in preprocessor.vectorizer.get_feature_names_out()]
    return preprocessor.columns or [f"x{i}" for i in range(count)]


def _traced(graph: _Graph, example: Tensor) -> Any:
    """The graph as an ONNX model for any number of rows."""
    with torch.no_grad(), warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")  # the exporter's own, about itself
        # In two steps: of a model, torch.onnx would try tracing that fixes the number of rows.
        rows = torch.export.Dim("rows", max=MAX_ROWS)
        exported = torch.export.export(graph, (example,), dynamic_shapes={"x": {0: rows}}, strict=False)
        program = torch.onnx.export(
            exported, dynamo=True, opset_version=OPSET, input_names=["x"], verbose=False
        )
    assert program is not None
    proto = program.model_proto
    _rename(proto.graph, graph.outputs)
    return proto


def _verify(data: bytes, graph: _Graph) -> None:
    """Run an exported model on numbers of rows that the exporter has not seen, before anyone else does."""
    import onnxruntime

    scale = graph.scale.numpy()  # (T,)
    noise = np.random.default_rng(0).normal(size=(33, len(graph.encoder.center)))
    x = graph.encoder.center + graph.encoder.scale * torch.from_numpy(noise)
    try:
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        for rows in (1, len(x)):
            with torch.no_grad():
                wanted = graph(x[:rows])
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

    def __init__(self, estimator: TailRegressor, levels: tuple[float, ...], coverage: float | None) -> None:
        super().__init__()
        assert estimator.preprocessor_ is not None
        self.encoder = copy.deepcopy(estimator.preprocessor_.numeric).cpu()
        self.networks = nn.ModuleList(copy.deepcopy(network).cpu() for network in estimator.networks_)
        for part in self.networks.modules():
            bins = getattr(part, "bins", None)
            if isinstance(bins, LabelBins):
                vars(part)["bins"] = bins.standardized()
        self.calibrators = [_standardized(calibrator) for calibrator in estimator.calibrators_]
        bins = [calibrator.bins for calibrator in estimator.calibrators_]
        self.register_buffer("scale", torch.tensor([b.scale for b in bins], dtype=torch.float64))  # (T,)
        self.register_buffer(
            "location", torch.tensor([b.location / b.scale for b in bins], dtype=torch.float64)
        )
        self.levels, self.coverage = levels, coverage
        self.several = isinstance(estimator.bins_, list)
        self.quantiles = Quantiles(levels) if levels else None
        self.ends = None
        if coverage is not None and any(calibrator.conformal is None for calibrator in self.calibrators):
            self.ends = Quantiles(((1 - coverage) / 2, (1 + coverage) / 2))

    @property
    def outputs(self) -> list[str]:
        """Names of what it returns, in order."""
        names = ["mean", "std"]
        return names + ["quantiles"] * bool(self.levels) + ["lower", "upper"] * (self.coverage is not None)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """x: (N, F)"""
        raw = pooled([network(self.encoder(x)) for network in self.networks])
        each = [self._target(raw[:, t] if self.several else raw, t) for t in range(len(self.calibrators))]
        if not self.several:
            return each[0]
        return tuple(torch.stack(parts, dim=1) for parts in zip(*each, strict=True))

    def _target(self, own: Distribution, t: int) -> tuple[Tensor, ...]:
        calibrator = self.calibrators[t]
        own = calibrator.calibrated(own)
        found = [own.mean, own.std]
        if self.quantiles is not None:
            found.append(self.quantiles(own))
        if calibrator.conformal is not None and self.coverage is not None:
            found += calibrator.conformal.interval(own, self.coverage, finite=True)
        elif self.ends is not None:
            found += self.ends(own).unbind(-1)
        return tuple(
            (value if name == "std" else value + self.location[t]) * self.scale[t]
            for name, value in zip(self.outputs, found, strict=True)
        )


def _standardized(calibrator: Calibrator) -> Calibrator:
    """What was learnt on held-out rows, for labels in units of their standard deviation."""
    bins = calibrator.bins.standardized()
    conformal = None if calibrator.conformal is None else replace(calibrator.conformal, bins=bins)
    return Calibrator(bins, calibrator.scaling, conformal)


class Quantiles(nn.Module):
    """Quantiles of predictions at fixed levels, from operations that ONNX has. (N,) -> (N, Q)"""

    def __init__(self, levels: Sequence[float]) -> None:
        super().__init__()
        self.student = StudentQuantiles(levels)

    def forward(self, distribution: Distribution) -> Tensor:
        """Return one column per level."""
        if isinstance(distribution, NIG):
            d = distribution
            scale = (d.beta / d.alpha * (1 + 1 / d.nu)).sqrt()
            standardized: Tensor = self.student(2 * d.alpha)
            return d.gamma.unsqueeze(-1) + scale.unsqueeze(-1) * standardized
        if isinstance(distribution, Normal):
            return distribution.mean.unsqueeze(-1) + distribution.std.unsqueeze(-1) * self.student.normal
        what = "a mixture" if isinstance(distribution, Mixture) else f"a {type(distribution).__name__}"
        raise ValueError(
            f"this model predicts {what}, whose quantiles cannot be exported: pass quantiles=() "
            "and, unless the model has conformal intervals, coverage=None"
        )


class StudentQuantiles(nn.Module):
    """Quantiles of the standard Student-t at fixed levels, for any degrees of freedom. (N,) -> (N, Q)

    log(t_q(df) / z_q), with z_q the normal quantile, is smooth in 1 / df and grows linearly at its
    end: a polynomial of low degree in 1 / df, fitted to SciPy's values, is off by less than a
    factor of 1e-7 from 2 degrees of freedom on, and of 1e-5 from `MIN_DF` on, for levels between
    0.0001 and 0.9999.

    >>> StudentQuantiles([0.05, 0.5, 0.975])(torch.tensor([4.0], dtype=torch.float64)).numpy().round(4)
    array([[-2.1318,  0.    ,  2.7764]])
    """

    normal: Tensor
    coefficients: Tensor

    def __init__(self, levels: Sequence[float]) -> None:
        super().__init__()
        upper = np.maximum(levels, 1 - np.asarray(levels, np.float64))  # t is odd about 1/2
        columns = [_log_ratio_polynomial(q) if q > 0.5 else np.zeros(_DEGREE + 1) for q in upper]
        self.register_buffer("normal", torch.from_numpy(special.ndtri(np.asarray(levels, np.float64))))
        self.register_buffer("coefficients", torch.from_numpy(np.stack(columns, axis=1)))  # (degree + 1, Q)

    def forward(self, df: Tensor) -> Tensor:
        """df: (N,) float64 -> (N, Q)"""
        x = (df.reciprocal() * (2 * MIN_DF) - 1).clamp(-1.0, 1.0).unsqueeze(-1)
        first, second = torch.zeros_like(x), torch.zeros_like(x)
        for c in self.coefficients[1:].flip(0).unbind(0):  # Clenshaw's recurrence
            first, second = c + 2 * x * first - second, first
        return self.normal * torch.exp(self.coefficients[0] + x * first - second)


def _log_ratio_polynomial(q: float) -> Floats:
    """Chebyshev coefficients of log(t_q / z_q) over 1 / df from 0 to 1 / MIN_DF, for q above 1/2."""
    z = float(special.ndtri(q))

    def log_ratio(inverse: Floats) -> Floats:
        # Hill's expansion where SciPy would lose digits.
        near = (z**2 + 1) / 4 * inverse
        exact = special.stdtrit(1 / np.maximum(inverse, _SMALL), q) / z
        return np.where(inverse < _SMALL, np.log1p(near), np.log(exact))

    fitted = Chebyshev.interpolate(log_ratio, _DEGREE, domain=[0.0, 1 / MIN_DF])
    return np.asarray(fitted.coef, np.float64)
