"""`TailRegressor`: imbalanced regression behind scikit-learn's fit and predict."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from tailwise.calibration.calibration import Calibration, Predicted
from tailwise.calibration.interval_scores import BINS, ColumnGroups, coverage_by_group
from tailwise.calibration.scaling import standard_deviation
from tailwise.distributions.members import Distribution
from tailwise.labels.bins import LabelBins
from tailwise.model.base import CrossFitted
from tailwise.model.fit import checked_labels, fit, recalibrated
from tailwise.model.inputs import column_of
from tailwise.model.model import Model
from tailwise.model.settings import RegressorMixin, Settings
from tailwise.model.stream import SAMPLE, SHUFFLE, fit_stream
from tailwise.networks.together import Predictor
from tailwise.tables.encode import TablePreprocessor
from tailwise.training.loop import FitResult

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.training.ray_workers import RayWorkers

Floats = NDArray[np.float64]


class Asked(TypedDict, total=False):
    """Keyword arguments that all predictions take, as `TailRegressor.predict` says."""

    emphasis: float | None
    label_prior: Any
    base_prediction: ArrayLike | None


class TailRegressor(RegressorMixin, Settings):
    """Regression that stays accurate, and honest about its uncertainty, where labels are rare.

    Takes tables as they are (DataFrames with numbers, categories, dates, text and missing values,
    arrays, sparse matrices), several targets at once, pictures, or tensors of any kind with a backbone of
    your own.

    A base regressor (boosted trees) is cross-fitted first, and a network predicts the distribution around
    its prediction (VIR:offset). There is a network for each of five folds of the rows. Each fold is held
    out once: it stops the training of its network, calibrates the predicted uncertainty (VIR:calibrate),
    chooses the emphasis on rare labels (VIR:dial) and fits the conformal intervals. So every row trains
    and every row calibrates.

    Parameters
    ----------
    method : name of a method, see `tailwise.available_methods`.
    method_options : parts and options of `tailwise.networks.parts.Method` to change, such as
        ``{"evidence.weight": 0.01}``.
    base : the model that the network starts from: ``"auto"``, ``"catboost"``, ``"lightgbm"``,
        ``"hist-gradient-boosting"``, a scikit-learn regressor (it is cloned), a list of these, or None. It
        sees the table as a matrix of numbers, with NaN where values are missing. The regressors of a list
        are averaged with weights from out-of-fold errors. Networks also see the quantiles of a regressor
        with a method ``predict_quantiles(X, levels)``.
    pool : whether networks without the base are trained as well, on the same folds, and pooled with those
        around it. Held-out rows choose the weights; a family with a weight near 0 is left out. It takes two
        to four times as long, and gains most where labels are a smooth function of the columns. For tables
        in memory.
    folds : number of networks, each with its own held-out fold; 1 holds out `validation_fraction` of the
        rows once. ``"auto"`` is 5 for tables of 40 to 20,000 rows and 1 for others.
    emphasis : how much predictions attend to rare labels, from 0 (labels occur as in training) to 1
        (every label is equally likely). ``"auto"`` takes the value that serves rare held-out labels best
        while the error over all of them, with 2.5 standard errors of its change, is at most 1% above that of
        emphasis 0, of the base and of a constant. It is 0 unless rare labels gain beyond chance.
    backbone : ``"auto"`` or the name of a network for tables (`tailwise.networks.backbones`), a module, or a
        function that makes one. A module of your own gets X as tensors, without preprocessing.
        ``"resnet18"`` and ``"resnet50"`` take pictures: X is an array of bytes (N, height, width, 3), or the
        paths of files. They have no base, and one network by default.
    feature_dim : number of features a backbone of your own yields, if it has no `feature_dim`.
    bins : number of label bins, their edges, or None to choose them from the labels.
    bounds : smallest and largest possible label: a pair such as ``(0, None)`` (None or infinite: no bound on
        that side), ``"observed"`` for the range of the training labels, or None. Predicted distributions are
        cut off there and keep their mean; no interval leaves the bounds. For several targets a pair for all,
        or a list with one entry for each.
    keep_values : whether quantiles and ends of intervals are values that labels can have: whole numbers (or
        decimals of few places) if all labels are, and exactly a value that a tenth of the labels share where
        no label lies between. Intervals contain the same labels as without it.
    target_transform : fit to transformed labels: ``"log"`` for labels that are never negative (an offset is
        added if some are near 0), ``"yeo-johnson"``, an increasing scikit-learn transformer, which is read at
        about 1,000 points, or None. ``"auto"`` takes the logarithm of labels of a skewness of 1 or more if it
        lowers the CRPS of the base on held-out rows by 10%. All results are in the units of y. The prediction
        is the median then, because few far labels decide the mean of an exponential.
    epochs, batch_size : how long to train and on how many rows at a time; ``"auto"`` goes by the data.
    lr, weight_decay, patience : learning rate, decay of the weights (AdamW), and epochs without improvement
        before training stops. The learning rate ``"auto"`` is 0.001 for tables, 0.003 for streams, and 0.001
        falling to 0 for pictures; the patience ``"auto"`` is 10. The network ``"realmlp"`` has a rate that
        falls from 0.003 to 0 and a patience of 30.
    monitor : validation metric to stop by, see `tailwise.metrics`. ``"auto"`` is ``"nll"``, for the network
        ``"realmlp"`` it is ``"crps"``.
    validation_fraction : share of every label bin that is held out if there is one network.
    calibrate : whether the predicted uncertainty is scaled on held-out rows; ``"balanced"`` gives every
        label bin the same weight in that.
    conformal : ``"global"`` for intervals fitted to held-out rows, or None for the distribution's own.
    conformal_by : column of X, by name or for arrays by number, whose groups of rows have intervals of
        their own: the 50 most frequent values, or five bins of a number with more than 20 values. Groups with
        few rows stay close to the overall intervals; other values have these. The column stays an input.
    many, few : a label bin with more training rows than `many` is many-shot, with fewer than `few`
        few-shot.
    image_size : height and width at which files of pictures are decoded; arrays stay as they are.
    augment : how training pictures are changed at random: ``"crop-flip"``, ``"strong"`` or None.
    device : ``"auto"``, ``"cpu"``, ``"cuda"`` and so on: where to train. A `backbone` of your own predicts
        there too, as networks for pictures do, if there is such a device; networks for tables are small and
        predict on the CPU.
    random_state : seed; the same one gives the same model on one machine, with any number of threads.
    verbose : 0 is silent, 1 shows lines of progress.

    Examples
    --------
    >>> import numpy as np
    >>> from tailwise import TailRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 3))
    >>> y = np.exp(X[:, 0]) + 0.1 * rng.normal(size=400)
    >>> model = TailRegressor(base=None, folds=1, epochs=30, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    >>> model.predict_interval(X[:2], coverage=0.9).shape
    (2, 2)
    """

    model_: Model
    """What `fit` made; it owns everything that a prediction needs."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        return tags

    # ---------------------------------------------------------------------------------------- fit

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        eval_set: tuple[Any, Any] | None = None,
        checkpoint: str | Path | None = None,
        *,
        base_prediction: ArrayLike | None = None,
        groups: ArrayLike | str | None = None,
        time: ArrayLike | str | None = None,
        init_model: TailRegressor | str | Path | None = None,
    ) -> Self:
        """Train, calibrate and return self.

        `sample_weight` weighs rows. `eval_set` is an ``(X, y)`` to stop and calibrate by instead of a part
        of X; one network is trained then. `base_prediction` has one value per label from a model of your
        own, for rows that it was not fitted on; it takes the place of `base`, and every prediction needs it
        too. With `checkpoint`, training is saved there after every epoch and resumed from there. The
        networks after the first add ``.1``, ``.2`` and so on to its name.

        Rows of one group in `groups` are never split between training and held-out rows. With `time`, the
        latest `validation_fraction` of the rows are held out, and one network is trained on the earlier ones.
        Both are one value per row, or the name of a column of X. `init_model` is a fitted model of the same
        method and columns, or its file: training goes on from its networks, with its preprocessing, label
        bins and base. It is meant for new rows: for rows that its base was fitted on, the errors of the base
        are too small.
        """
        start = None if init_model is None else self._start(init_model)
        options = (sample_weight, eval_set, checkpoint, base_prediction)
        self.model_ = fit(self, X, y, *options, groups=groups, time=time, start=start)
        return self

    def fit_batches(
        self,
        rows: Any,
        target: str | Sequence[str],
        *,
        weight: str | None = None,
        drop: Sequence[str] = (),
        sample: int = SAMPLE,
        shuffle: int = SHUFFLE,
        checkpoint: str | Path | None = None,
        workers: RayWorkers | None = None,
    ) -> Self:
        """Train on a table that does not fit in memory, calibrate and return self.

        `rows` is a folder of Parquet files, a file, a list of files, a list of DataFrames, a function that
        returns an iterable of DataFrames each time it is called, a `ray.data.Dataset`, or a
        `tailwise.data.RowStream`.
        `target` names the column of labels, or several. `weight` names a column of row weights. All columns
        but these and those of `drop` are inputs.

        Two passes come before training. The first keeps a random sample of `sample` training rows and the
        held-out rows (`validation_fraction` of all, at most 100,000). The second counts the labels in their
        bins, exactly. Encodings and the base are fitted on the sample. Then one network trains on all rows
        that are not held out, mixed in a buffer of `shuffle` rows; with 0, rows keep their order. With
        `checkpoint`, training is saved there after every epoch and resumed from there.

        With `workers`, the network trains in processes of a Ray cluster, each on its part of the rows. A
        `ray.data.Dataset` always trains in the cluster that it belongs to, by default on all its GPUs, or
        without a GPU on all its processors but one.
        """
        self.model_ = fit_stream(
            self, rows, target, weight, drop, sample, shuffle, checkpoint=checkpoint, workers=workers
        )
        return self

    def recalibrate(self, X: Any, y: Any, *, base_prediction: ArrayLike | None = None) -> Self:
        """Fit scaling and intervals anew on rows that training did not see, and return self.

        Networks, base, bounds and emphasis stay as they are, so predicted means do not change at emphasis 0
        and without bounds. Half of the rows fit the scaling and the other half the intervals; with fewer than
        80 rows all of them do both. `save` writes the new calibration.
        """
        check_is_fitted(self)
        self.model_ = recalibrated(self.model_, self, X, y, base_prediction)
        return self

    def _start(self, init_model: TailRegressor | str | Path) -> Model:
        """Return the model to go on from, or say why it does not fit."""
        if not self.takes_tables:
            raise ValueError("init_model is for tables: train a backbone of your own further by itself")
        start = init_model if isinstance(init_model, TailRegressor) else type(self).load(init_model)
        check_is_fitted(start)
        for name in ("method", "backbone"):
            mine, its = getattr(self, name), getattr(start, name)
            if mine != its:
                raise ValueError(f"init_model differs in its {name}: {its!r:.200}, not {mine!r:.200}")
        return start.model_

    # ------------------------------------------------------------------------------------ predict

    def predictions(self, X: Any, **asked: Unpack[Asked]) -> list[Predicted]:
        """Return calibrated predictions of each target, with their intervals at any coverage."""
        return self._asked(asked).predicted(X, asked.get("base_prediction"))

    def _asked(self, asked: Asked) -> Model:
        """Return the fitted model under the emphasis or label prior that is asked for."""
        check_is_fitted(self)
        if unknown := asked.keys() - Asked.__annotations__.keys():
            raise TypeError(f"predictions take {', '.join(Asked.__annotations__)}, not {', '.join(unknown)}")
        return self.model_.at(asked.get("emphasis"), asked.get("label_prior"))

    def _columns(
        self, X: Any, figures: Callable[[Predicted], Iterable[Tensor]], asked: Asked
    ) -> list[Floats]:
        """Return figures of predictions, some rows at a time. (N,) each, or (N, T) for several targets"""
        model = self._asked(asked)
        parts = model.in_parts(X, asked.get("base_prediction"))
        return model.columns([figures(predicted) for predicted in targets] for targets in parts)

    def predict(
        self, X: Any, return_std: bool = False, **asked: Unpack[Asked]
    ) -> Floats | tuple[Floats, Floats]:
        """Return the predicted label of each row, and with `return_std` its standard deviation.

        Both are in the units of y; (N,) for one target, (N, T) for several. The predicted label is the mean
        of the predicted distribution, and its median under an emphasis or a label prior. With a very heavy
        tail the standard deviation is limited (`tailwise.calibration.scaling.standard_deviation`).

        All predictions take these three keyword arguments. `emphasis` turns the dial between common and rare
        labels (VIR:dial): 0 expects labels as in training, 1 expects every label equally often. Unless given
        it is `emphasis_`, which `fit` chose. `label_prior` describes the labels expected in use instead: a
        sample of them, a pair ``(edges, counts)``, or a function that gives the density of a label; for
        several targets a list with one for each. `base_prediction` is needed if `fit` had one.
        """

        def figures(predicted: Predicted) -> list[Tensor]:
            own = predicted.distribution
            return [own.point, standard_deviation(own)] if return_std else [own.point]

        point, *std = self._columns(X, figures, asked)
        return (point, std[0]) if return_std else point

    def predict_distribution(self, X: Any, **asked: Unpack[Asked]) -> Distribution | list[Distribution]:
        """Return the calibrated predictive distribution; a list with one per target for several."""
        targets = [predicted.distribution for predicted in self.predictions(X, **asked)]
        return targets if self.model_.several else targets[0]

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, rare: float | None = None, **asked: Unpack[Asked]
    ) -> Floats:
        """Return lower and upper ends of intervals that contain the label with the given probability.

        (N, 2) for one target, (N, T, 2) for several. Coverage holds on average over rows like the training
        rows, whatever the emphasis, and is lower for rare labels. With ``rare=0.9``, 90% of the rarest labels
        are covered too, by wider intervals. `explain_intervals` states both promises and the price. If there
        are too few held-out rows for a coverage, a warning says so and the intervals span all training
        labels.
        """
        return np.stack(self._columns(X, lambda p: p.interval(coverage, rare), asked), axis=-1)

    def predict_quantiles(self, X: Any, q: float | Sequence[float], **asked: Unpack[Asked]) -> Floats:
        """Return quantiles of the calibrated distribution at the levels q, as a new last dimension."""
        levels = np.atleast_1d(np.asarray(q, np.float64))
        if not (levels.size and ((levels > 0) & (levels < 1)).all()):
            raise ValueError(f"quantile levels must lie between 0 and 1, got {levels.tolist()}")
        return np.stack(self._columns(X, lambda p: p.quantiles(levels), asked), axis=-1)

    def predict_frame(
        self, X: Any, coverage: float = 0.9, *, rare: float | None = None, **asked: Unpack[Asked]
    ) -> pd.DataFrame:
        """Return a table: prediction, std, lower, upper, aleatoric_std, epistemic_std and region.

        `coverage` and `rare` are those of `predict_interval`. ``epistemic_std`` is the standard deviation
        between the networks and between the models of their base, and ``aleatoric_std`` the rest of ``std``.
        The index is that of X.
        With several targets the columns of each end in ``_`` and its name, or its number if y had no names.
        """
        import pandas as pd

        model, columns = self._asked(asked), dict[str, Any]()
        rows = model.in_parts(X, asked.get("base_prediction"))
        parts = [[predicted.columns(coverage, rare) for predicted in targets] for targets in rows]
        for t, tables in enumerate(zip(*parts, strict=True)):
            suffix = f"_{model.target_name(t)}" if model.several else ""
            for name in tables[0]:
                columns[f"{name}{suffix}"] = np.concatenate([table[name] for table in tables])
        return pd.DataFrame(columns, index=X.index if hasattr(X, "index") and hasattr(X, "columns") else None)

    # -------------------------------------------------------------------------------------- judge

    def score_by_region(self, X: Any, y: Any, coverage: float = 0.9, **asked: Unpack[Asked]) -> pd.DataFrame:
        """Return a tidy table of errors and coverage for all, many-, medium- and few-shot labels.

        Regions go by the true label's bin in training. `coverage`, `width` and `interval_score` (Winkler's)
        are those of `predict_interval`; with `constant_` before the name they are those of one interval for
        all rows, between two quantiles of the training labels. With several targets a column
        ``target`` holds the name of each, or its number if y had no names.
        """
        check_is_fitted(self)
        labels = checked_labels(X, y, self.n_targets_)
        targets = zip(self.predictions(X, **asked), labels.T, strict=True)
        return self._by_target([predicted.scores(column, coverage) for predicted, column in targets])

    def coverage_by(
        self, X: Any, y: Any, column: Any, coverage: float = 0.9, *, bins: int = BINS, **asked: Any
    ) -> pd.DataFrame:
        """Return how often intervals contain the label, and how wide they are, by the values of a column.

        `column` is the name of a column of X, its number, or one value per row. Numbers with more than 20
        values are cut into `bins` groups of equal size. The columns are value, rows, coverage, the ends of
        its 95% Wilson interval and the mean width; the last row is for all rows. Keyword arguments are those
        of `predict_interval`. With several targets there is a column ``target``.
        """
        check_is_fitted(self)
        labels = checked_labels(X, y, self.n_targets_)
        values = column_of(X, column, "column")
        if isinstance(column, (int, np.integer)):
            values = X.iloc[:, int(column)] if hasattr(X, "iloc") else np.asarray(X)[:, int(column)]
        groups = ColumnGroups.of(values, bins=bins)
        codes = groups.codes(values)
        if len(codes) != len(labels):
            raise ValueError(f"column has {len(codes)} values for {len(labels)} rows: pass one for each row")
        ends = self.predict_interval(X, coverage, **asked).reshape(len(labels), -1, 2)
        targets = zip(ends.transpose(1, 2, 0), labels.T, strict=True)
        return self._by_target([coverage_by_group(groups, codes, low, high, y) for (low, high), y in targets])

    def _by_target(self, tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
        """Join a table for each target; with several there is a column ``target``."""
        import pandas as pd

        if self.model_.several:
            for t, table in enumerate(tables):
                table.insert(0, "target", self.model_.target_name(t))
        return pd.concat(tables, ignore_index=True)

    def explain_intervals(
        self,
        coverage: float = 0.9,
        target: int | None = None,
        *,
        rare: float | None = None,
        emphasis: float | None = None,
        label_prior: Any = None,
    ) -> str:
        """Return a text: what intervals promise for all rows, what `rare` adds, and its price.

        Unless given, `rare` is `coverage`. The text covers every target, or only the one with this number.
        """
        check_is_fitted(self)
        model = self.model_.at(emphasis, label_prior)
        chosen = model.targets if target is None else [model.targets[target]]
        texts = [fitted.explain(coverage, coverage if rare is None else rare) for fitted in chosen]
        return model.about_held_out() + "\n".join(texts)

    # -------------------------------------------------------------------------------------- files

    def save(
        self, path: str | Path, *, overwrite: bool = False, key: bytes | str | Path | None = None
    ) -> Path:
        """Write the fitted model to one file, without pickle, and return its path; see `load`.

        A file that exists is an error unless `overwrite`. Of a backbone of your own only the weights
        are written. With `key`, a secret or the name of a file that holds it, the file is signed.
        """
        from tailwise.files.models import save

        check_is_fitted(self)
        return save(self, self.model_, path, overwrite=overwrite, key=key)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        backbone: nn.Module | Callable[[], nn.Module] | None = None,
        key: bytes | str | Path | None = None,
    ) -> Self:
        """Read a model written by `save`; predictions are the same to the last bit on one machine.

        A `backbone` of your own must be given again. Nothing in the file is run, and one that is
        damaged, changed or of another kind is an error that says so. With `key`, a file that was not
        signed with it is an error too.
        """
        from tailwise.files.models import load

        return load(path, into=cls, backbone=backbone, key=key)

    def export_onnx(
        self,
        path: str | Path,
        *,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        coverage: float | None = 0.9,
        rare: float | None = None,
        emphasis: float | None = None,
        label_prior: Any = None,
        raw_columns: bool = False,
    ) -> Path:
        """Write the model as ONNX and return the path. Outputs: prediction, std, quantiles, lower, upper.

        The file contains the base, the networks, the calibration, the intervals and the dial at one
        `emphasis` or `label_prior`, by default ``emphasis_``. The input ``x`` is ``preprocessor_.matrix(X)``:
        float64, NaN where missing. No `quantiles`, or a `coverage` of None, leaves those outputs out. A file
        that exists is replaced.

        With `raw_columns` the inputs are the columns of the table, encoded in the file: numbers and
        categories. Text, dates and durations are an error then. So is a base other than CatBoost, LightGBM
        or HistGradientBoostingRegressor, and intervals by a column (`conformal_by`). See
        `tailwise.onnx.export.export_onnx`.
        """
        from tailwise.onnx.export import export_onnx

        check_is_fitted(self)
        model, outputs = self.model_.at(emphasis, label_prior), (quantiles, coverage, rare, raw_columns)
        return export_onnx(model, path, self.method, *outputs)

    def __getstate__(self) -> Any:
        """For pickle and joblib: weights as on a CPU, so that a machine without a GPU can read them."""
        state = super().__getstate__()
        if "model_" not in state or all(n.device.type == "cpu" for n in self.model_.networks):
            return state
        networks = tuple(copy.deepcopy(network).to("cpu") for network in self.model_.networks)
        return {**state, "model_": replace(self.model_, networks=networks)}

    # ---------------------------------------------------------------- parts of the fitted model

    @property
    def emphasis_(self) -> float | list[float]:
        """The emphasis that predictions use unless told otherwise; a list for several targets."""
        emphases = [target.emphasis for target in self.model_.targets]
        return emphases if self.model_.several else emphases[0]

    @property
    def bins_(self) -> LabelBins | list[LabelBins]:
        """The label bins; a list for several targets."""
        return self.model_.bins if self.model_.several else self.model_.bins[0]

    @property
    def calibrators_(self) -> list[Calibration]:
        """The calibration of each target."""
        return list(self.model_.targets)

    @property
    def networks_(self) -> list[Predictor]:
        """The trained networks."""
        return list(self.model_.networks)

    @property
    def histories_(self) -> list[FitResult]:
        """The training of each network."""
        return list(self.model_.record.histories)

    @property
    def base_(self) -> list[CrossFitted] | None:
        """The cross-fitted base of each target, if there is one."""
        return list(self.model_.base.targets) or None

    @property
    def preprocessor_(self) -> TablePreprocessor | None:
        """The encoding of a table, if X is one."""
        return getattr(self.model_.inputs, "preprocessor", None)

    @property
    def target_names_(self) -> list[str] | None:
        """The names of the targets, if y had any."""
        return None if self.model_.names is None else list(self.model_.names)

    @property
    def n_targets_(self) -> int:
        """The number of targets."""
        return len(self.model_.targets)

    @property
    def n_features_in_(self) -> int:
        """The number of columns of X; a backbone of your own has none."""
        return self.model_.inputs.columns.n_features_in_

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The names of the columns of X, if it had any."""
        return self.model_.inputs.columns.feature_names_in_
