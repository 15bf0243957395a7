"""`TailRegressor`: deep imbalanced regression behind scikit-learn's fit and predict."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from torch import Tensor, nn

from tailwise.core.distributions import Distribution, concatenate
from tailwise.core.labels import LabelBins
from tailwise.data.equal_rows import merge_equal_rows
from tailwise.data.inputs import as_tensors, row_count, take_rows
from tailwise.data.splits import halves, label_holdout
from tailwise.data.tables.checks import checked_eval_set, checked_table, checked_targets, target_names
from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.estimator.parameters import (
    CONSTRAINTS,
    DEFAULT_BACKBONE,
    check_settings,
    predicting_device,
    train_config,
)
from tailwise.learning.loop import FitResult, TensorData, fit, predict
from tailwise.methods import build_model
from tailwise.networks.backbones import make_backbone
from tailwise.networks.trainable import Trainable
from tailwise.resampling.smogn import resampled
from tailwise.uncertainty.calibrator import Calibrator as Calibrator
from tailwise.uncertainty.calibrator import fit_calibrator

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
BackboneChoice = str | nn.Module | Callable[[], nn.Module]

BATCH = 8192
"""Rows that are predicted at a time, which bounds the memory that it takes."""
MIN_HOLDOUT = 20
"""With fewer rows than this to hold out, the training rows themselves select and calibrate."""


class TailRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc,unused-ignore]
    """Regression that stays accurate, and honest about its doubt, where labels are rare.

    Takes tables as they are (DataFrames with numbers, categories, dates, text and missing values,
    arrays, sparse matrices), several targets at once, or tensors of any kind with a backbone of
    your own. A part of the rows is held out to stop training, to calibrate the predicted
    uncertainty (VIR:calibrate) and to fit split-conformal intervals.

    Parameters
    ----------
    method : name of a method, see `tailwise.available_methods`.
    method_options : fields of `tailwise.networks.parts.Method` to change, such as ``{"regularizer": 0.01}``.
    backbone : ``"auto"`` or the name of a network for tables (`tailwise.networks.backbones`), a module, or a
        function that makes one. A module of your own gets X as tensors, without preprocessing.
    feature_dim : number of features a backbone of your own yields, if it has no `feature_dim`.
    bins : number of label bins, their edges, or None to choose them from the labels.
    epochs, batch_size : how long to train and on how many rows at a time; ``"auto"`` goes by the data.
    lr, weight_decay, patience : learning rate, its decay, epochs without improvement before it stops.
    monitor : validation metric to stop by, see `tailwise.core.metrics`.
    validation_fraction : share of every label bin that is held out.
    calibrate : whether the predicted uncertainty is scaled on held-out rows.
    conformal : ``"global"``, ``"region"`` (by the predicted label's region) or None for the
        distribution's own intervals.
    many, few : a label bin with more training rows than `many` is many-shot, with fewer than `few`
        few-shot.
    device : ``"auto"``, ``"cpu"``, ``"cuda"`` and so on: where to train. A `backbone` of your own predicts
        there too, if there is such a device; models of tables, which are small, predict on the CPU.
    random_state : seed; the same one gives the same numbers on one machine.
    verbose : 0 is silent, 1 shows progress.

    Examples
    --------
    >>> import numpy as np
    >>> from tailwise import TailRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 3))
    >>> y = np.exp(X[:, 0]) + 0.1 * rng.normal(size=400)
    >>> model = TailRegressor(epochs=30, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    >>> model.predict_interval(X[:2], coverage=0.9).shape
    (2, 2)
    """

    _parameter_constraints = CONSTRAINTS

    def __init__(
        self,
        *,
        method: str = "vir",
        method_options: Mapping[str, Any] | None = None,
        backbone: BackboneChoice = "auto",
        feature_dim: int | None = None,
        bins: int | ArrayLike | None = None,
        epochs: int | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        lr: float = 1e-3,
        weight_decay: float = 1e-4,
        patience: int | None = 16,
        monitor: str = "balanced_mae",
        validation_fraction: float = 0.2,
        calibrate: bool = True,
        conformal: Literal["global", "region"] | None = "region",
        many: int = 100,
        few: int = 20,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.method_options = method_options
        self.backbone = backbone
        self.feature_dim = feature_dim
        self.bins = bins
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.patience = patience
        self.monitor = monitor
        self.validation_fraction = validation_fraction
        self.calibrate = calibrate
        self.conformal = conformal
        self.many = many
        self.few = few
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        return tags

    # -- fit -----------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        eval_set: tuple[Any, Any] | None = None,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Train, calibrate and return self.

        `sample_weight` weighs rows; `eval_set` is an ``(X, y)`` to hold out in place of a part of X.
        With `checkpoint`, training is saved there after every epoch and taken up from there.
        """
        self._validate_params()
        check_settings(self)
        X = self._validated(X, reset=True)
        labels = self._labels(X, y, reset=True)
        self.target_names_ = target_names(y)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows, weight = merge_equal_rows(X, labels, sample_weight)
        X, labels = take_rows(X, rows), labels[rows]
        if eval_set is None:
            held = self._held_out(labels, seed)
            train = np.setdiff1d(np.arange(len(labels)), held)
            train = train if len(train) else np.arange(len(labels))
        else:
            held, train = None, np.arange(len(labels))
        self.bins_ = self._label_bins(labels[train], weight[train])
        x_train = self._prepare(take_rows(X, train))
        if eval_set is not None:
            given, truth = checked_eval_set(eval_set)
            y_held = self._labels(given, truth)
            x_held = self._features(self._validated(given, reset=False))
        elif held is not None and len(held):
            x_held, y_held = self._features(take_rows(X, held)), labels[held]
        else:
            x_held, y_held = x_train, labels
        select, confirm = halves(len(y_held), seed, 4 * MIN_HOLDOUT)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model_ = self._build(x_train)
            data = self._tensors(*self._resampled(x_train, labels[train], weight[train], seed))
            watched = self._tensors(take_rows(x_held, select), y_held[select])
            config = train_config(self, len(train), seed)
            shown = None if self.verbose else False
            self.history_: FitResult = fit(
                self.model_, data, watched, config, checkpoint=checkpoint, progress=shown
            )
        self.held_out_ = bool(eval_set is not None or (held is not None and len(held)))
        self.unseen_ = self.held_out_ and len(confirm) < len(y_held)
        self._calibrate(x_held, y_held, select, confirm)
        return self

    @property
    def _raw_inputs(self) -> bool:
        """Whether X goes to a backbone of the user's own, as tensors."""
        return not isinstance(self.backbone, str)

    def _validated(self, X: Any, *, reset: bool) -> Any:
        return X if self._raw_inputs else checked_table(self, X, reset=reset)

    def _labels(self, X: Any, y: Any, *, reset: bool = False) -> Floats:
        """Labels as numbers, one for each row; without `reset`, as many targets as there were at fit."""
        if y is None:
            raise ValueError(
                "This TailRegressor estimator requires y to be passed, but the target y is None."
            )
        labels = checked_targets(y)
        check_consistent_length(range(row_count(X)), labels)
        targets = labels.shape[1] if labels.ndim == 2 else 1
        if not reset and targets != self.n_targets_:
            raise ValueError(f"y has {targets} targets, but there were {self.n_targets_} at fit")
        return labels

    def _held_out(self, labels: Floats, seed: int) -> NDArray[np.int64]:
        """Rows to hold out: the same share of every label bin; none from a table too small for it."""
        if len(labels) * self.validation_fraction < MIN_HOLDOUT:
            return np.zeros(0, np.int64)
        first = labels if labels.ndim == 1 else labels[:, 0]
        return label_holdout(first, share=self.validation_fraction, seed=seed)

    def _label_bins(self, labels: Floats, weight: Floats) -> LabelBins | list[LabelBins]:
        given: dict[str, Any] = {}
        if self.bins is not None:
            given = {"count" if np.ndim(self.bins) == 0 else "edges": self.bins}
        if labels.ndim == 1:
            self.n_targets_ = 1
            return LabelBins.from_labels(labels, weight=weight, **given)
        self.n_targets_ = labels.shape[1]
        return [LabelBins.from_labels(column, weight=weight, **given) for column in labels.T]

    def _prepare(self, X: Any) -> Any:
        """Fit the preprocessing on training rows and return their features."""
        if self._raw_inputs:
            self.preprocessor_ = None
            return as_tensors(X)
        self.preprocessor_ = TablePreprocessor().fit(X)
        return torch.from_numpy(self.preprocessor_.transform(X))

    def _features(self, X: Any) -> Any:
        if self.preprocessor_ is None:
            return as_tensors(X)
        return torch.from_numpy(self.preprocessor_.transform(X))

    def _build(self, x: Any) -> Trainable:
        if isinstance(self.backbone, str):
            name = DEFAULT_BACKBONE if self.backbone == "auto" else self.backbone
            network: nn.Module = make_backbone(name, x.shape[1], rows=x)
        else:
            made = self.backbone if isinstance(self.backbone, nn.Module) else self.backbone()
            if not isinstance(made, nn.Module):
                raise TypeError(f"backbone gives {type(made).__name__}: it must be or make a torch module")
            # A module given as a parameter is never trained itself: fitting twice starts alike.
            network = copy.deepcopy(made)
        dim = self.feature_dim or getattr(network, "feature_dim", None)
        if dim is None:
            raise ValueError("give feature_dim, the number of features that the backbone yields")
        return build_model(self.method, network, int(dim), self.bins_, **(self.method_options or {}))

    def _resampled(self, x: Any, y: Floats, weight: Floats, seed: int) -> tuple[Any, Floats, Floats]:
        """Training rows as they are, or as a method wants them that resamples."""
        name = self.model_.method.resampling
        if name is None:
            return x, y, weight
        if self._raw_inputs or y.ndim == 2:
            raise ValueError(
                f"method {self.method!r} makes new rows between those of a table, for one target: "
                "choose another one for a backbone of your own or several targets"
            )
        x, y = resampled(name, x, y, weight, seed)
        return x, y, np.ones(len(y))

    def _tensors(self, x: Any, y: Floats, weight: Floats | None = None) -> TensorData:
        labels = torch.tensor(y)  # a copy: y may be read-only
        if weight is None or (weight == weight[0]).all():
            return TensorData(x, labels)
        return TensorData(x, labels, torch.from_numpy(weight / weight.mean()).float())

    def _calibrate(self, x: Any, y: Floats, select: NDArray[np.int64], confirm: NDArray[np.int64]) -> None:
        """Scale uncertainty on the rows that selected the weights; fit intervals on rows unseen so far."""
        raw = self._raw_prediction(x)
        self.calibrators_: list[Calibrator] = [
            fit_calibrator(
                raw if self.n_targets_ == 1 else raw[:, t],
                y if y.ndim == 1 else y[:, t],
                bins,
                select,
                confirm,
                calibrate=self.calibrate,
                conformal=self.conformal,
                many=self.many,
                few=self.few,
            )
            for t, bins in enumerate(self._all_bins())
        ]

    def _all_bins(self) -> list[LabelBins]:
        return self.bins_ if isinstance(self.bins_, list) else [self.bins_]

    # -- predict -------------------------------------------------------------------------------

    def _raw_prediction(self, x: Any) -> Distribution:
        """Predictions before calibration, in batches of bounded memory.

        Wherever a model was trained or comes from, it predicts in the same place, hence the same.
        """
        if self._raw_inputs:
            return predict(self.model_.to(predicting_device(self)), x, batch_size=BATCH)
        self.model_.to("cpu")
        # In float64 a row's prediction does not depend on the rows beside it, to the last digits
        # that anyone would compare; float32 products round differently for each batch size.
        network = copy.deepcopy(self.model_).double()
        return concatenate([predict(network, rows.double(), BATCH) for rows in x.split(BATCH)])

    def _distributions(self, X: Any) -> list[Distribution]:
        """Calibrated predictions of each target. (N,) each"""
        check_is_fitted(self, "model_")
        raw = self._raw_prediction(self._features(self._validated(X, reset=False)))
        each = [raw] if self.n_targets_ == 1 else [raw[:, t] for t in range(self.n_targets_)]
        return [calibrator.calibrated(d) for d, calibrator in zip(each, self.calibrators_, strict=True)]

    def _joined(self, columns: Sequence[Tensor]) -> Floats:
        arrays = [np.asarray(column.numpy(), np.float64) for column in columns]
        return arrays[0] if self.n_targets_ == 1 else np.stack(arrays, axis=1)

    def predict(self, X: Any, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Return the expected label of each row, and with `return_std` its total standard deviation.

        Both are in the units of y; (N,) for one target, (N, T) for several.
        """
        distributions = self._distributions(X)
        mean = self._joined([d.mean for d in distributions])
        return (mean, self._joined([d.std for d in distributions])) if return_std else mean

    def predict_distribution(self, X: Any) -> Distribution | list[Distribution]:
        """Return the calibrated predictive distribution; one per target if there are several."""
        distributions = self._distributions(X)
        return distributions[0] if self.n_targets_ == 1 else distributions

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Floats:
        """Return lower and upper ends of intervals that hold the label with the given probability.

        (N, 2) for one target, (N, T, 2) for several. Coverage holds on average over rows like the
        training rows (`conformal="region"`: over rows predicted in each region); coverage given the
        true label cannot be guaranteed by any method. `explain_intervals` says what is in force.
        """
        ends = [calibrator.interval(d, coverage) for d, calibrator in self._with_calibrators(X)]
        return np.stack([self._joined([e[side] for e in ends]) for side in (0, 1)], axis=-1)

    def _with_calibrators(self, X: Any) -> list[tuple[Distribution, Calibrator]]:
        return list(zip(self._distributions(X), self.calibrators_, strict=True))

    def predict_quantiles(self, X: Any, q: float | Sequence[float]) -> Floats:
        """Return quantiles of the calibrated distribution at the levels q, as new last dimension."""
        levels = np.atleast_1d(np.asarray(q, np.float64))
        if not (levels.size and ((levels > 0) & (levels < 1)).all()):
            raise ValueError(f"quantile levels must lie between 0 and 1, got {levels.tolist()}")
        distributions = self._distributions(X)
        columns = [self._joined([d.quantile(float(level)) for d in distributions]) for level in levels]
        return np.stack(columns, axis=-1)

    def predict_frame(self, X: Any, coverage: float = 0.9) -> pd.DataFrame:
        """Return a table: prediction, std, lower, upper, aleatoric_std, epistemic_std and region.

        The index is that of X. With several targets the columns of each end in ``_`` and its name, or its
        number if y had no names.
        """
        import pandas as pd

        columns: dict[str, Any] = {}
        for t, (d, calibrator) in enumerate(self._with_calibrators(X)):
            suffix = "" if self.n_targets_ == 1 else f"_{self.target_names_[t] if self.target_names_ else t}"
            found = calibrator.columns(d, coverage, self.many, self.few)
            columns |= {name + suffix: value for name, value in found.items()}
        index = X.index if hasattr(X, "index") and hasattr(X, "columns") else None
        return pd.DataFrame(columns, index=index)

    def score_by_region(self, X: Any, y: Any, coverage: float = 0.9) -> pd.DataFrame:
        """Return a tidy table of errors and coverage for all, many-, medium- and few-shot labels.

        Regions go by the true label's bin in training. `coverage` and `width` are those of
        `predict_interval`. With several targets a column ``target`` holds the name of each, or its number
        if y had no names.
        """
        import pandas as pd

        check_is_fitted(self, "model_")
        labels = self._labels(X, y)
        tables = []
        for t, (d, calibrator) in enumerate(self._with_calibrators(X)):
            own = labels if labels.ndim == 1 else labels[:, t]
            table = calibrator.scores(d, own, coverage, self.many, self.few)
            if self.n_targets_ > 1:
                table.insert(0, "target", self.target_names_[t] if self.target_names_ else t)
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    def explain_intervals(self, coverage: float = 0.9, target: int | None = None) -> str:
        """Say which intervals are in force, on what they rest, and what they promise.

        Of every target, or of the one whose number is given.
        """
        check_is_fitted(self, "model_")
        source = ""
        if not self.held_out_:
            source = (
                "No rows were held out (the table is too small): what is said below of held-out rows is of "
                "training rows, is optimistic, and promises nothing for new ones.\n"
            )
        elif not self.unseen_:
            source = (
                "The held-out rows are too few to be split: they stopped the training too, which makes any "
                "promise below approximate.\n"
            )
        chosen = self.calibrators_ if target is None else [self.calibrators_[target]]
        texts = [calibrator.explain(coverage) for calibrator in chosen]
        return source + "\n".join(texts)

    # -- files ---------------------------------------------------------------------------------

    def __getstate__(self) -> Any:
        """For pickle and joblib: weights as on a CPU, so that a machine without a GPU can read them."""
        state = super().__getstate__()
        model = state.get("model_")
        if model is None or model.device.type == "cpu":
            return state
        return {**state, "model_": copy.deepcopy(model).to("cpu")}

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the fitted model to one file, without pickle, and return its path; see `load`.

        A file that exists is an error unless `overwrite`. Of a backbone of your own only the weights
        are written.
        """
        from tailwise.estimator.saving import save

        check_is_fitted(self, "model_")
        return save(self, path, default_backbone=DEFAULT_BACKBONE, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, *, backbone: nn.Module | Callable[[], nn.Module] | None = None) -> Self:
        """Read a model written by `save`; predictions are the same to the last bit on one machine.

        A `backbone` of your own must be given again. Nothing in the file is run, and one that is
        damaged, changed or of another kind is an error that says so.
        """
        from tailwise.estimator.saving import load

        return load(path, into=cls, backbone=backbone)

    def export_onnx(
        self,
        path: str | Path,
        *,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        coverage: float | None = 0.9,
    ) -> Path:
        """Write the numeric part as ONNX and return its path: mean, std, quantiles, lower and upper.

        Scaling and conformal limits are inside. The input ``x`` is ``preprocessor_.matrix(X)``: float64,
        NaN where missing. No `quantiles` or a `coverage` of None leave those outputs out, as models that
        mix several predictions need; see `tailwise.estimator.onnx.export_onnx`.
        """
        from tailwise.estimator.onnx import export_onnx

        check_is_fitted(self, "model_")
        return export_onnx(self, path, quantiles=quantiles, coverage=coverage)
