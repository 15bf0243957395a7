"""`TailRegressor`: deep imbalanced regression behind scikit-learn's fit and predict."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from torch import Tensor, nn

from tailwise.core.distributions import Distribution, concatenate, pooled
from tailwise.core.labels import LabelBins
from tailwise.core.lookup import nearest
from tailwise.data.equal_rows import merge_equal_rows
from tailwise.data.inputs import as_tensors, row_count, take_rows
from tailwise.data.splits import halves, label_holdout
from tailwise.data.tables.checks import checked_eval_set, checked_table, checked_targets, target_names
from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.estimator.bases import (
    FOLDS,
    CrossFitted,
    MakeBase,
    cross_fit,
    deal_folds,
    given_predictions,
    resolve_base,
)
from tailwise.estimator.parameters import CONSTRAINTS, DEFAULT_BACKBONE
from tailwise.learning.config import TrainConfig
from tailwise.learning.loop import FitResult, TensorData, fit, predict
from tailwise.methods import build_model, get_method
from tailwise.networks.backbones import make_backbone
from tailwise.networks.trainable import Trainable
from tailwise.resampling.smogn import resampled
from tailwise.uncertainty.calibrator import Calibrator as Calibrator
from tailwise.uncertainty.calibrator import fit_calibrator

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
BackboneChoice = str | nn.Module | Callable[[], nn.Module]

Rows = NDArray[np.int64]

BATCH = 8192
"""Rows that are predicted at a time, which bounds the memory."""
MIN_HOLDOUT = 20
"""With fewer rows than this to hold out, the training rows themselves stop and calibrate."""
MIN_FOLD_ROWS = 8
"""With fewer rows per fold than this, ``folds="auto"`` trains one network."""
MAX_FOLDED_ROWS = 20_000
"""With more rows than this, ``folds="auto"`` trains one network: a fifth of them calibrates well enough."""


class _Data(NamedTuple):
    """Rows on their way to a network."""

    features: Any
    labels: Floats  # (N,) or (N, T)
    weight: Floats  # (N,)
    offset: Floats | None  # base predictions, in the shape of the labels

    def rows(self, rows: Rows) -> _Data:
        offset = None if self.offset is None else self.offset[rows]
        return _Data(take_rows(self.features, rows), self.labels[rows], self.weight[rows], offset)

    def tensors(self, *, weighted: bool = True) -> TensorData:
        """As the training loop takes them; weights have a mean of 1."""
        weight = None
        if weighted and not (self.weight == self.weight[0]).all():
            weight = torch.from_numpy(self.weight / self.weight.mean()).float()
        offset = None if self.offset is None else torch.tensor(self.offset)
        # A copy: the labels may be read-only.
        return TensorData(self.features, torch.tensor(self.labels), weight, offset=offset)


def _numbered(path: Path, k: int) -> Path:
    return path if k == 0 else path.with_name(f"{path.name}.{k}")


class TailRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc,unused-ignore]
    """Regression that stays accurate, and honest about its uncertainty, where labels are rare.

    Takes tables as they are (DataFrames with numbers, categories, dates, text and missing values,
    arrays, sparse matrices), several targets at once, or tensors of any kind with a backbone of
    your own.

    A base regressor (boosted trees) is cross-fitted first, and a network predicts the distribution around
    its prediction (VIR:offset). There is a network for each of five folds of the rows. Each fold is held
    out once: it stops the training of its network, calibrates the predicted uncertainty (VIR:calibrate),
    chooses the emphasis on rare labels (VIR:dial) and fits the conformal intervals. So every row trains
    and every row calibrates.

    Parameters
    ----------
    method : name of a method, see `tailwise.available_methods`.
    method_options : fields of `tailwise.networks.parts.Method` to change, such as ``{"regularizer": 0.01}``.
    base : the model that the network starts from: ``"auto"``, ``"catboost"``, ``"lightgbm"``,
        ``"hist-gradient-boosting"``, a scikit-learn regressor (it is cloned), or None. It sees the table as
        a matrix of numbers, with NaN where values are missing.
    folds : number of networks, each with its own held-out fold; 1 holds out `validation_fraction` of the
        rows once. ``"auto"`` is 5 for up to 20,000 rows and 1 beyond.
    emphasis : how much predictions attend to rare labels, from 0 (labels occur as in training) to 1
        (every label is equally likely). ``"auto"`` takes the value with the smallest error for rare
        held-out labels whose error over all of them is at most 1% above that of the base (without a base:
        of emphasis 0).
    backbone : ``"auto"`` or the name of a network for tables (`tailwise.networks.backbones`), a module, or a
        function that makes one. A module of your own gets X as tensors, without preprocessing.
    feature_dim : number of features a backbone of your own yields, if it has no `feature_dim`.
    bins : number of label bins, their edges, or None to choose them from the labels.
    epochs, batch_size : how long to train and on how many rows at a time; ``"auto"`` goes by the data.
    lr, weight_decay, patience : learning rate, its decay, epochs without improvement before it stops.
    monitor : validation metric to stop by, see `tailwise.metrics`.
    validation_fraction : share of every label bin that is held out if there is one network.
    calibrate : whether the predicted uncertainty is scaled on held-out rows; ``"balanced"`` gives every
        label bin the same weight in that.
    conformal : ``"global"``, ``"region"`` (by the predicted label's region) or None for the
        distribution's own intervals.
    many, few : a label bin with more training rows than `many` is many-shot, with fewer than `few`
        few-shot.
    device : ``"auto"``, ``"cpu"``, ``"cuda"`` and so on: where to train. A `backbone` of your own predicts
        there too, if there is such a device; networks for tables are small and predict on the CPU.
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
        method: str = "vir-dial",
        method_options: Mapping[str, Any] | None = None,
        base: Any = "auto",
        folds: int | Literal["auto"] = "auto",
        emphasis: float | Literal["auto"] = "auto",
        backbone: BackboneChoice = "auto",
        feature_dim: int | None = None,
        bins: int | ArrayLike | None = None,
        epochs: int | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        lr: float = 1e-3,
        weight_decay: float = 1e-4,
        patience: int | None = 16,
        monitor: str = "nll",
        validation_fraction: float = 0.2,
        calibrate: bool | Literal["balanced"] = True,
        conformal: Literal["global", "region"] | None = "region",
        many: int = 100,
        few: int = 20,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.method_options = method_options
        self.base = base
        self.folds = folds
        self.emphasis = emphasis
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
        *,
        base_prediction: ArrayLike | None = None,
    ) -> Self:
        """Train, calibrate and return self.

        `sample_weight` weighs rows. `eval_set` is an ``(X, y)`` to stop and calibrate by instead of a part
        of X; one network is trained then. `base_prediction` has one value per label from a model of your
        own, for rows that it was not fitted on; it takes the place of `base`, and every prediction needs it
        too. With `checkpoint`, training is saved there after every epoch and resumed from there. The
        networks after the first add ``.1``, ``.2`` and so on to its name.
        """
        self._validate_params()
        self._check_parameters()
        X = self._validated(X, reset=True)
        labels = self._labels(X, y, reset=True)
        self.target_names_ = target_names(y)
        self.n_targets_ = labels.shape[1] if labels.ndim == 2 else 1
        make_base = self._resolved_base(len(labels), base_prediction)
        given = None if base_prediction is None else given_predictions(base_prediction, labels.shape)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        keys = labels if given is None else np.column_stack([labels, given])
        rows, weight = merge_equal_rows(X, keys, sample_weight)
        X, labels, given = take_rows(X, rows), labels[rows], None if given is None else given[rows]

        parts = self._parts(labels, seed, alone=eval_set is not None)
        trained = np.unique(np.concatenate([train for train, _ in parts]))
        self.bins_ = self._label_bins(labels[trained], weight[trained])
        self._fit_preprocessing(take_rows(X, trained))
        features, matrix = self._features(X)
        self.base_, offset = self._fitted_base(make_base, matrix, labels, weight, seed)
        self.base_given_ = given is not None
        data = _Data(features, labels, weight, given if given is not None else offset)
        watched = None if eval_set is None else self._watched(eval_set)
        held = self._train(data, parts, watched, trained, seed, checkpoint)
        self._calibrate(*held)
        return self

    @property
    def _raw_inputs(self) -> bool:
        """Whether X goes to a backbone of the user's own, as tensors."""
        return not isinstance(self.backbone, str)

    def _check_parameters(self) -> None:
        """Raise an error for parameters that name nothing or contradict one another."""
        get_method(self.method).parts.with_options(**(self.method_options or {}))
        if self.conformal not in ("global", "region", None):
            hint = nearest(str(self.conformal), ("global", "region"))
            raise ValueError(f"unknown conformal {self.conformal!r}{hint}, or None")
        if self.few > self.many:
            raise ValueError(f"few={self.few} must not exceed many={self.many}")
        if self.feature_dim is not None and isinstance(self.backbone, str):
            raise ValueError(
                f"feature_dim is for a backbone of your own; {self.backbone!r} has its own: leave it out"
            )

    def _resolved_base(self, rows: int, base_prediction: ArrayLike | None) -> MakeBase | None:
        """The base to fit, if any. Methods that make new rows and own backbones have none by default."""
        unasked = isinstance(self.base, str) and self.base == "auto"
        if base_prediction is not None:
            if not unasked and self.base is not None:
                raise ValueError(f"give base_prediction or base={self.base!r}, not both")
            return None
        resampling = get_method(self.method).parts.with_options(**(self.method_options or {})).resampling
        if unasked and (self._raw_inputs or resampling is not None):
            return None
        make = resolve_base(self.base, rows)
        if make is not None and self._raw_inputs:
            raise ValueError(
                "a base takes tables, and a backbone of your own may take anything: leave out base, or pass "
                "its predictions as base_prediction"
            )
        if make is not None and resampling is not None:
            raise ValueError(f"method {self.method!r} makes new rows, which have no base: pass base=None")
        return make

    def _validated(self, X: Any, *, reset: bool) -> Any:
        return X if self._raw_inputs else checked_table(self, X, reset=reset)

    def _labels(self, X: Any, y: Any, *, reset: bool = False) -> Floats:
        """Labels as numbers, one for each row; without `reset`, as many targets as at fit."""
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

    def _parts(self, labels: Floats, seed: int, *, alone: bool) -> list[tuple[Rows, Rows]]:
        """Training rows and held-out rows of each network.

        With `alone` there is one network and nothing is held out. Without enough rows the training rows
        themselves stop and calibrate.
        """
        rows = np.arange(len(labels))
        first = labels if labels.ndim == 1 else labels[:, 0]
        folds = self.folds
        if folds == "auto":
            folds = FOLDS if MIN_FOLD_ROWS * FOLDS <= len(rows) <= MAX_FOLDED_ROWS else 1
        if alone:
            return [(rows, rows[:0])]
        if folds > 1:
            if len(rows) < folds:
                raise ValueError(f"folds={folds} needs at least {folds} rows, got {len(rows)}")
            fold = deal_folds(first, seed, folds)
            return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(folds)]
        if len(rows) * self.validation_fraction < MIN_HOLDOUT:
            return [(rows, rows)]
        held = label_holdout(first, share=self.validation_fraction, seed=seed)
        train = np.setdiff1d(rows, held)
        return [(train, held)] if len(train) and len(held) else [(rows, rows)]

    def _label_bins(self, labels: Floats, weight: Floats) -> LabelBins | list[LabelBins]:
        given: dict[str, Any] = {}
        if self.bins is not None:
            given = {"count" if np.ndim(self.bins) == 0 else "edges": self.bins}
        if labels.ndim == 1:
            return LabelBins.from_labels(labels, weight=weight, **given)
        return [LabelBins.from_labels(column, weight=weight, **given) for column in labels.T]

    def _all_bins(self) -> list[LabelBins]:
        return self.bins_ if isinstance(self.bins_, list) else [self.bins_]

    def _fit_preprocessing(self, X: Any) -> None:
        self.preprocessor_ = None if self._raw_inputs else TablePreprocessor().fit(X)

    def _features(self, X: Any) -> tuple[Any, Floats | None]:
        """Features for the network, and the matrix of numbers that they come from, for a base."""
        if self.preprocessor_ is None:
            return as_tensors(X), None
        matrix = self.preprocessor_.matrix(X)
        return torch.from_numpy(self.preprocessor_.scaled(matrix)), matrix

    def _fitted_base(
        self, make: MakeBase | None, matrix: Floats | None, labels: Floats, weight: Floats, seed: int
    ) -> tuple[list[CrossFitted] | None, Floats | None]:
        """The base of each target, and out-of-fold predictions in the shape of the labels."""
        if make is None or matrix is None:
            return None, None
        columns = labels.reshape(len(labels), -1).T
        fold = deal_folds(columns[0], seed)
        fitted = [cross_fit(make, matrix, column, weight, fold, seed) for column in columns]
        offset = np.stack([held for _, held in fitted], axis=1).reshape(labels.shape)
        return [base for base, _ in fitted], offset

    def _offset(self, matrix: Floats | None, rows: int, base_prediction: ArrayLike | None) -> Floats | None:
        """Base predictions for new rows, if the model has a base. (N,) or (N, T)"""
        shape = (rows,) if self.n_targets_ == 1 else (rows, self.n_targets_)
        if self.base_given_:
            if base_prediction is None:
                raise ValueError("this model was fitted with base_prediction: pass it for these rows as well")
            return given_predictions(base_prediction, shape)
        if base_prediction is not None:
            raise ValueError("this model was fitted without base_prediction: leave it out")
        if self.base_ is None:
            return None
        assert matrix is not None
        return np.stack([base.predict(matrix) for base in self.base_], axis=1).reshape(shape)

    def _inputs(self, features: Any, offset: Floats | None) -> Any:
        """What the network takes: features, and for tables the standardised base prediction beside them."""
        if offset is None or self.preprocessor_ is None:
            return features
        columns = offset.reshape(len(offset), -1)
        standardized = [(columns[:, t] - b.location) / b.scale for t, b in enumerate(self._all_bins())]
        beside = torch.from_numpy(np.stack(standardized, axis=1)).to(features.dtype)
        return torch.cat([features, beside], dim=1)

    def _watched(self, eval_set: Any) -> _Data:
        """Rows of an `eval_set`, checked."""
        given, truth = checked_eval_set(eval_set)
        if self.base_given_:
            raise ValueError("eval_set cannot be used with base_prediction: leave one of them out")
        labels = self._labels(given, truth)
        features, matrix = self._features(self._validated(given, reset=False))
        return _Data(features, labels, np.ones(len(labels)), self._offset(matrix, len(labels), None))

    def _build(self, x: Any) -> Trainable:
        if isinstance(self.backbone, str):
            name = DEFAULT_BACKBONE if self.backbone == "auto" else self.backbone
            network: nn.Module = make_backbone(name, x.shape[1], rows=x)
        else:
            made = self.backbone if isinstance(self.backbone, nn.Module) else self.backbone()
            if not isinstance(made, nn.Module):
                raise TypeError(f"backbone gives {type(made).__name__}: it must be or make a torch module")
            # A module given as a parameter is never trained itself, so that fitting twice gives the same.
            network = copy.deepcopy(made)
        dim = self.feature_dim or getattr(network, "feature_dim", None)
        if dim is None:
            raise ValueError("give feature_dim, the number of features that the backbone yields")
        options = self.method_options or {}
        return build_model(self.method, network, int(dim), self.bins_, offset=self._has_offset, **options)

    @property
    def _has_offset(self) -> bool:
        return self.base_ is not None or self.base_given_

    def _train(
        self,
        data: _Data,
        parts: Sequence[tuple[Rows, Rows]],
        watched: _Data | None,
        trained: Rows,
        seed: int,
        checkpoint: str | Path | None,
    ) -> tuple[Distribution, _Data, Rows, Rows]:
        """Train a network for each part; return predictions for held-out rows, those rows, and which of
        them may choose (`select`) and which nothing has used so far (`confirm`)."""
        inputs = self._inputs(data.features, data.offset)
        data = data._replace(features=inputs)
        if watched is not None:
            watched = watched._replace(features=self._inputs(watched.features, watched.offset))
        self.networks_: list[Trainable] = []
        self.histories_: list[FitResult] = []
        held, predictions = [], []
        with torch.random.fork_rng(devices=[]):
            for k, (train, rest) in enumerate(parts):
                valid = watched if watched is not None else data.rows(rest)
                select, confirm = np.arange(len(valid.labels)), np.arange(len(valid.labels))
                if len(parts) == 1:
                    select, confirm = halves(len(valid.labels), seed, 4 * MIN_HOLDOUT)
                torch.manual_seed(seed + k)
                network = self._build(take_rows(inputs, trained))
                path = None if checkpoint is None else _numbered(Path(checkpoint), k)
                self.histories_.append(
                    fit(
                        network,
                        self._resampled(network, data.rows(train), seed).tensors(),
                        valid.rows(select).tensors(weighted=False),
                        self._train_config(len(train), seed + k),
                        checkpoint=path,
                        progress=None if self.verbose else False,
                    )
                )
                self.networks_.append(network)
                held.append(valid)
                predictions.append(self._network_prediction(network, valid.features, valid.offset))
        self.held_out_ = watched is not None or parts[0][0] is not parts[0][1]
        self.unseen_ = self.held_out_ and len(parts) == 1 and len(confirm) < len(held[0].labels)
        if len(parts) > 1:
            rows = np.concatenate([rest for _, rest in parts])
            select = confirm = np.arange(len(rows))
            return concatenate(predictions), data.rows(rows), select, confirm
        return predictions[0], held[0], select, confirm

    def _resampled(self, network: Trainable, data: _Data, seed: int) -> _Data:
        """Training rows, resampled if the method asks for it."""
        name = network.method.resampling
        if name is None:
            return data
        if self._raw_inputs or data.labels.ndim == 2:
            raise ValueError(
                f"method {self.method!r} makes new rows between those of a table, for one target: "
                "choose another one for a backbone of your own or several targets"
            )
        x, y = resampled(name, data.features, data.labels, data.weight, seed)
        return _Data(x, y, np.ones(len(y)), None)

    def _train_config(self, rows: int, seed: int) -> TrainConfig:
        """How to train on that many rows: fewer epochs and larger batches for larger tables."""
        size, epochs = self.batch_size, self.epochs
        if size == "auto":
            size = int(np.clip(2 ** np.round(np.log2(max(rows, 1) / 24)), 32, 2048))
        if epochs == "auto":
            epochs = int(np.clip(3_000_000 / max(rows, 1), 12, 300))
        cpu = self.device == "auto" and not torch.cuda.is_available()
        return TrainConfig(
            epochs=epochs,
            batch_size=size,
            lr=self.lr,
            weight_decay=self.weight_decay,
            patience=self.patience,
            monitor=self.monitor,
            seed=seed % 2**31,
            accelerator="cpu" if cpu else self.device,
        )

    def _calibrate(self, raw: Distribution, held: _Data, select: Rows, confirm: Rows) -> None:
        """Fit scaling, emphasis and intervals of each target on held-out rows."""
        self.calibrators_: list[Calibrator] = []
        for t, bins in enumerate(self._all_bins()):
            several = held.labels.ndim == 2
            self.calibrators_.append(
                fit_calibrator(
                    raw[:, t] if several else raw,
                    held.labels[:, t] if several else held.labels,
                    bins,
                    select,
                    confirm,
                    base=None if held.offset is None else held.offset.reshape(len(held.labels), -1)[:, t],
                    calibrate=self.calibrate,
                    conformal=self.conformal,
                    emphasis=self.emphasis,
                    many=self.many,
                    few=self.few,
                )
            )

    # -- predict -------------------------------------------------------------------------------

    def _network_prediction(self, network: Trainable, x: Any, offset: Floats | None) -> Distribution:
        """One network's predictions before calibration, in batches of bounded memory.

        A model predicts in the same place wherever it was trained, so that its numbers are the same.
        """
        around = None if offset is None else torch.from_numpy(offset)
        if self._raw_inputs:
            return predict(network.to(self._predicting_device()), x, BATCH, offset=around)
        # In float64 a row's prediction does not depend on the rows beside it; float32 products round
        # differently for each batch size.
        exact = copy.deepcopy(network.to("cpu")).double()
        return predict(exact, x.double(), BATCH, offset=around)

    def _predicting_device(self) -> torch.device:
        """Where a backbone of the user's own predicts: where it trains, or the CPU without that device."""
        there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        wanted = {"auto": ("cuda",), "gpu": ("cuda", "mps")}.get(self.device, (self.device,))
        return torch.device(next((name for name in wanted if there.get(name)), "cpu"))

    def _predictions(
        self,
        X: Any,
        emphasis: float | None,
        label_prior: Any,
        base_prediction: ArrayLike | None,
    ) -> list[tuple[Distribution, Calibrator]]:
        """Calibrated predictions of each target under the label prior asked for, with its calibrator."""
        check_is_fitted(self, "networks_")
        X = self._validated(X, reset=False)
        features, matrix = self._features(X)
        offset = self._offset(matrix, row_count(X), base_prediction)
        x = self._inputs(features, offset)
        raw = pooled([self._network_prediction(network, x, offset) for network in self.networks_])
        found = []
        for t, calibrator in enumerate(self.calibrators_):
            prior = label_prior[t] if self.n_targets_ > 1 and label_prior is not None else label_prior
            chosen = calibrator.at(emphasis, prior)
            found.append((chosen.calibrated(raw if self.n_targets_ == 1 else raw[:, t]), chosen))
        return found

    def _joined(self, columns: Sequence[Tensor]) -> Floats:
        arrays = [np.asarray(column.numpy(), np.float64) for column in columns]
        return arrays[0] if self.n_targets_ == 1 else np.stack(arrays, axis=1)

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> Floats | tuple[Floats, Floats]:
        """Return the expected label of each row, and with `return_std` its total standard deviation.

        Both are in the units of y; (N,) for one target, (N, T) for several.

        `emphasis` turns the dial between common and rare labels (VIR:dial): 0 expects labels as in
        training, 1 expects every label equally often. Unless given it is `emphasis_`, which `fit` chose.
        `label_prior` describes the labels expected in use instead: a sample of them, a pair
        ``(edges, counts)``, or a function that gives the density of a label; for several targets a list with
        one for each. `base_prediction` is needed if `fit` had one. All predictions take these three.
        """
        found = self._predictions(X, emphasis, label_prior, base_prediction)
        mean = self._joined([d.mean for d, _ in found])
        return (mean, self._joined([d.std for d, _ in found])) if return_std else mean

    def predict_distribution(
        self,
        X: Any,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> Distribution | list[Distribution]:
        """Return the calibrated predictive distribution; a list with one per target for several."""
        found = [d for d, _ in self._predictions(X, emphasis, label_prior, base_prediction)]
        return found[0] if self.n_targets_ == 1 else found

    def predict_interval(
        self,
        X: Any,
        coverage: float = 0.9,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> Floats:
        """Return lower and upper ends of intervals that contain the label with the given probability.

        (N, 2) for one target, (N, T, 2) for several. Coverage holds on average over rows like the
        training rows (``conformal="region"``: over the rows predicted in each region), whatever the
        emphasis. No method can guarantee coverage given the true label. `explain_intervals` says which
        intervals are in use.
        """
        found = self._predictions(X, emphasis, label_prior, base_prediction)
        ends = [calibrator.interval(d, coverage) for d, calibrator in found]
        return np.stack([self._joined([e[side] for e in ends]) for side in (0, 1)], axis=-1)

    def predict_quantiles(
        self,
        X: Any,
        q: float | Sequence[float],
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> Floats:
        """Return quantiles of the calibrated distribution at the levels q, as a new last dimension."""
        levels = np.atleast_1d(np.asarray(q, np.float64))
        if not (levels.size and ((levels > 0) & (levels < 1)).all()):
            raise ValueError(f"quantile levels must lie between 0 and 1, got {levels.tolist()}")
        found = self._predictions(X, emphasis, label_prior, base_prediction)
        columns = [self._joined([d.quantile(float(level)) for d, _ in found]) for level in levels]
        return np.stack(columns, axis=-1)

    def predict_frame(
        self,
        X: Any,
        coverage: float = 0.9,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Return a table: prediction, std, lower, upper, aleatoric_std, epistemic_std and region.

        The index is that of X. With several targets the columns of each end in ``_`` and its name, or its
        number if y had no names.
        """
        import pandas as pd

        columns: dict[str, Any] = {}
        found = self._predictions(X, emphasis, label_prior, base_prediction)
        for t, (d, calibrator) in enumerate(found):
            suffix = "" if self.n_targets_ == 1 else f"_{self._target_name(t)}"
            table = calibrator.columns(d, coverage, self.many, self.few)
            columns |= {name + suffix: value for name, value in table.items()}
        index = X.index if hasattr(X, "index") and hasattr(X, "columns") else None
        return pd.DataFrame(columns, index=index)

    def _target_name(self, t: int) -> str | int:
        return self.target_names_[t] if self.target_names_ else t

    def score_by_region(
        self,
        X: Any,
        y: Any,
        coverage: float = 0.9,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Return a tidy table of errors and coverage for all, many-, medium- and few-shot labels.

        Regions go by the true label's bin in training. `coverage` and `width` are those of
        `predict_interval`. With several targets a column ``target`` holds the name of each, or its number
        if y had no names.
        """
        import pandas as pd

        check_is_fitted(self, "networks_")
        labels = self._labels(X, y)
        tables = []
        found = self._predictions(X, emphasis, label_prior, base_prediction)
        for t, (d, calibrator) in enumerate(found):
            own = labels if labels.ndim == 1 else labels[:, t]
            table = calibrator.scores(d, own, coverage, self.many, self.few)
            if self.n_targets_ > 1:
                table.insert(0, "target", self._target_name(t))
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    @property
    def emphasis_(self) -> float | list[float]:
        """The emphasis that predictions use unless told otherwise; a list for several targets."""
        each = [calibrator.emphasis for calibrator in self.calibrators_]
        return each[0] if self.n_targets_ == 1 else each

    def explain_intervals(
        self,
        coverage: float = 0.9,
        target: int | None = None,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
    ) -> str:
        """Return a text: which intervals are in use, how many rows they rest on, what they guarantee.

        It covers every target, or only the one with the given number.
        """
        check_is_fitted(self, "networks_")
        source = ""
        if not self.held_out_:
            source = (
                "The table is too small to hold out rows. The figures below are of training rows: they are "
                "optimistic and guarantee nothing for new rows.\n"
            )
        elif not self.unseen_:
            source = (
                "The held-out rows also decided when to stop training, so any guarantee below is "
                "approximate.\n"
            )
        chosen = self.calibrators_ if target is None else [self.calibrators_[target]]
        texts = [calibrator.at(emphasis, label_prior).explain(coverage) for calibrator in chosen]
        return source + "\n".join(texts)

    # -- files ---------------------------------------------------------------------------------

    def __getstate__(self) -> Any:
        """For pickle and joblib: weights as on a CPU, so that a machine without a GPU can read them."""
        state = super().__getstate__()
        networks = state.get("networks_")
        if networks is None or all(network.device.type == "cpu" for network in networks):
            return state
        return {**state, "networks_": [copy.deepcopy(network).to("cpu") for network in networks]}

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the fitted model to one file, without pickle, and return its path; see `load`.

        A file that exists is an error unless `overwrite`. Of a backbone of your own only the weights
        are written.
        """
        from tailwise.estimator.saving import save

        check_is_fitted(self, "networks_")
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

        check_is_fitted(self, "networks_")
        return export_onnx(self, path, quantiles=quantiles, coverage=coverage)
