"""`TailRegressor`: imbalanced regression behind scikit-learn's fit and predict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from tailwise.data.equal_rows import merge_equal_rows
from tailwise.data.inputs import take_rows
from tailwise.data.tables.checks import target_names
from tailwise.estimator.bases import given_predictions
from tailwise.estimator.fitting import FitRows
from tailwise.estimator.holdout import check_row_count, group_codes, held_out_parts, latest_rows
from tailwise.estimator.model_files import ModelFiles
from tailwise.estimator.parameters import CONSTRAINTS
from tailwise.estimator.preparing import BackboneChoice


class TailRegressor(RegressorMixin, ModelFiles):  # type: ignore[misc,unused-ignore]
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
    method_options : fields of `tailwise.networks.parts.Method` to change, such as ``{"regularizer": 0.01}``.
    base : the model that the network starts from: ``"auto"``, ``"catboost"``, ``"lightgbm"``,
        ``"hist-gradient-boosting"``, a scikit-learn regressor (it is cloned), or None. It sees the table as
        a matrix of numbers, with NaN where values are missing.
    folds : number of networks, each with its own held-out fold; 1 holds out `validation_fraction` of the
        rows once. ``"auto"`` is 5 for tables of 40 to 20,000 rows and 1 for others.
    emphasis : how much predictions attend to rare labels, from 0 (labels occur as in training) to 1
        (every label is equally likely). ``"auto"`` takes the value with the smallest error for rare
        held-out labels whose error over all of them is at most 1% above that of the base (without a base:
        of emphasis 0) and of a constant.
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
    epochs, batch_size : how long to train and on how many rows at a time; ``"auto"`` goes by the data.
    lr, weight_decay, patience : learning rate, decay of the weights (AdamW), and epochs without improvement
        before training stops. The learning rate ``"auto"`` is 0.001 for tables, 0.003 for streams, and 0.001
        falling to 0 for pictures.
    monitor : validation metric to stop by, see `tailwise.metrics`.
    validation_fraction : share of every label bin that is held out if there is one network.
    calibrate : whether the predicted uncertainty is scaled on held-out rows; ``"balanced"`` gives every
        label bin the same weight in that.
    conformal : ``"global"``, ``"region"`` (by the predicted label's region) or None for the
        distribution's own intervals.
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
    random_state : seed; the same one gives the same numbers on one machine.
    verbose : 0 is silent, 1 shows progress: a bar on a terminal, lines elsewhere.

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
        bounds: Any = None,
        keep_values: bool = True,
        epochs: int | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        lr: float | Literal["auto"] = "auto",
        weight_decay: float = 1e-4,
        patience: int | None = 10,
        monitor: str = "nll",
        validation_fraction: float = 0.2,
        calibrate: bool | Literal["balanced"] = True,
        conformal: Literal["global", "region"] | None = "region",
        conformal_by: str | int | None = None,
        many: int = 100,
        few: int = 20,
        image_size: int = 224,
        augment: str | None = "crop-flip",
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
        self.bounds = bounds
        self.keep_values = keep_values
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.patience = patience
        self.monitor = monitor
        self.validation_fraction = validation_fraction
        self.calibrate = calibrate
        self.conformal = conformal
        self.conformal_by = conformal_by
        self.many = many
        self.few = few
        self.image_size = image_size
        self.augment = augment
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        return tags

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
        self._validate_params()
        self._check_parameters()
        group_of, time_of = self._column(X, groups, "groups"), self._column(X, time, "time")
        X = self._validated(X, reset=True)
        self._find_interval_groups(X)
        labels = self._labels(X, y, reset=True)
        check_row_count(len(labels))
        self.target_names_ = target_names(y)
        self.n_targets_ = labels.shape[1] if labels.ndim == 2 else 1
        known = self._label_bounds(labels), self._label_supports(labels)
        start = None if init_model is None else self._checked_start(init_model)
        make_base = self._resolved_base(len(labels), base_prediction)
        given = None if base_prediction is None else given_predictions(base_prediction, labels.shape)
        watched = None if eval_set is None else self._checked_eval_set(eval_set, given is not None)
        codes = None if group_of is None else group_codes(group_of, len(labels))
        if time_of is not None:
            if eval_set is not None or given is not None:
                raise ValueError("time cannot be used with eval_set or base_prediction: leave one out")
            early, late = latest_rows(time_of, len(labels), self.validation_fraction)
            watched = take_rows(X, late), labels[late]
            sample_weight = _check_sample_weight(sample_weight, labels)[early]
            X, labels, codes = take_rows(X, early), labels[early], None if codes is None else codes[early]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        told_apart = [part for part in (labels, given, codes) if part is not None]
        rows, weight = merge_equal_rows(X, np.column_stack(told_apart).astype(np.float64), sample_weight)
        X = X if np.array_equal(rows, np.arange(len(labels))) else take_rows(X, rows)
        labels, given = labels[rows], None if given is None else given[rows]
        codes = None if codes is None else codes[rows]

        parts = held_out_parts(
            labels,
            seed,
            folds=1 if self.folds == "auto" and self._takes_pictures else self.folds,
            share=self.validation_fraction,
            groups=codes,
            alone=watched is not None,
        )
        trained = np.unique(np.concatenate([train for train, _ in parts]))
        self.base_given_ = given is not None
        if start is None:
            self.bins_ = self._label_bins(labels[trained], weight[trained])
            self._fit_preprocessing(X, trained)
            features, matrix = self._features(X)
            if make_base is not None:
                self._log("fitting the base to %d rows", len(labels))
            self.base_, offset = self._fitted_base(make_base, matrix, labels, weight, codes, seed)
        else:
            self.bins_, self.preprocessor_, self.base_ = start.bins_, start.preprocessor_, start.base_
            features, matrix = self._features(X)
            offset = None if self.base_given_ else self._offset(matrix, len(labels), None)
        offset = given if given is not None else offset
        data = FitRows(features, labels, weight, offset, self._interval_groups(X))
        held = self._train(
            data,
            parts,
            None if watched is None else self._watched(*watched),
            trained,
            seed,
            checkpoint,
            None if start is None else start.networks_,
        )
        self.recalibrated_ = 0
        self._calibrate(*held, *known)
        return self

    def _checked_start(self, given: TailRegressor | str | Path) -> TailRegressor:
        """Return the model to go on from, or say why it does not fit."""
        if self._raw_inputs:
            raise ValueError("init_model is for tables: train a backbone of your own further by itself")
        start = given if isinstance(given, TailRegressor) else type(self).load(given)
        check_is_fitted(start, "networks_")
        for name, mine, its in (
            ("method", self.method, start.method),
            ("backbone", self.backbone, start.backbone),
            ("number of targets", self.n_targets_, start.n_targets_),
            (
                "columns",
                *(list(getattr(m, "feature_names_in_", [])) or m.n_features_in_ for m in (self, start)),
            ),
        ):
            if mine != its:
                raise ValueError(f"init_model differs in its {name}: {its!r:.200}, not {mine!r:.200}")
        return start
