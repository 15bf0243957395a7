"""What the manifest of a saved model may say: one schema of fields, types and limits.

A field is one line here. `check_manifest` compares a whole manifest with the schema before anything is built
from it, and `save` runs it too, so that what cannot be loaded is not written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tailwise.core.lookup import nearest
from tailwise.networks.backbones import BACKBONES, IMAGE_BACKBONES
from tailwise.networks.parts import Method
from tailwise.uncertainty.column_groups import MAX_GROUPS
from tailwise.uncertainty.widening import REGIONS

Check = Callable[[Any, str], None]
"""Takes a value and the name of its place; a wrong value is an error that names the place."""

MAX_NETWORKS = 1000
MAX_WIDTH = 1 << 16
"""Largest size of a layer."""
MAX_BINS = 10_000
"""Label bins; the kernel over them is a matrix of its square."""
MAX_VALUES = 10_000_000
"""Numbers in one list."""

MAX_CELLS = len(REGIONS) * (MAX_GROUPS + 2)
"""Regions times groups of a column, those of missing and of other values included."""

# -- kinds of values -------------------------------------------------------------------------------


def number(low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> Check:
    """A finite number from `low` to `high`; with `above`, `low` itself is refused."""

    def check(value: Any, where: str) -> None:
        sound = type(value) in (int, float) and math.isfinite(value) and low <= value <= high
        if not sound or (above and value == low):
            _refuse(where, value, f"a number{_reach(low, high, above)}")

    return check


def whole(low: int, high: int) -> Check:
    """An integer from `low` to `high`."""

    def check(value: Any, where: str) -> None:
        if type(value) is not int or not low <= value <= high:
            _refuse(where, value, f"a whole number{_reach(low, high, False)}")

    return check


def any_number(value: Any, where: str) -> None:
    """A number, NaN and infinity included."""
    if type(value) not in (int, float):
        _refuse(where, value, "a number")


def flag(value: Any, where: str) -> None:
    """True or false."""
    if type(value) is not bool:
        _refuse(where, value, "true or false")


def text(value: Any, where: str) -> None:
    """Any text."""
    if type(value) is not str:
        _refuse(where, value, "a text")


def mapping(value: Any, where: str) -> None:
    """Names with any values, which are checked elsewhere."""
    if not isinstance(value, Mapping):
        _refuse(where, value, "a mapping")


def choice(names: Iterable[str]) -> Check:
    """One of a few names."""
    known = list(names)

    def check(value: Any, where: str) -> None:
        if value not in known:
            _refuse(where, value, f"one of {', '.join(known)}")

    return check


def or_none(inner: Check) -> Check:
    """Null, or what `inner` says."""
    return lambda value, where: None if value is None else inner(value, where)


def items(inner: Check, at_least: int = 0, at_most: int = MAX_VALUES) -> Check:
    """A list of values that are all as `inner` says."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, (list, tuple)) or not at_least <= len(value) <= at_most:
            _refuse(where, value, f"a list of {at_least} to {at_most} values")
        for place, item in enumerate(value):
            inner(item, f"{where}[{place}]")

    return check


def named(inner: Check) -> Check:
    """A mapping of any names to values that are all as `inner` says."""

    def check(value: Any, where: str) -> None:
        mapping(value, where)
        for name, item in value.items():
            inner(item, f"{where}.{name!s:.40}")

    return check


def fields(needed: Mapping[str, Check], later: Mapping[str, Check] | None = None) -> Check:
    """A mapping with the fields `needed`; fields of `later` are missing in files of older versions."""
    known = {**needed, **(later or {})}

    def check(value: Any, where: str) -> None:
        mapping(value, where)
        for name in value:
            if name not in known:
                raise ValueError(f"{where} has an unknown field {name!r:.80}{nearest(str(name)[:80], known)}")
        for name in needed:
            if name not in value:
                raise ValueError(f"{where} lacks {name!r}")
        for name, item in value.items():
            known[name](item, f"{where}.{name}" if where != _TOP else f"its {name}")

    return check


def _refuse(where: str, value: Any, wanted: str) -> None:
    raise ValueError(f"{where} is {value!r:.60}, not {wanted}")


def _reach(low: float, high: float, above: bool) -> str:
    if math.isinf(low) and math.isinf(high):
        return ""
    if math.isinf(high):
        return f" {'above' if above else 'of at least'} {low:g}"
    return f" from {low:g} to {high:g}"


# -- the schema ------------------------------------------------------------------------------------

_TOP = "the manifest"
_count = whole(0, 1 << 53)
_share = number(0, 1)
_numbers = items(number())
_edges = items(number(), 2, MAX_BINS + 1)
_factor = number(0, above=True)


def _column(value: Any, where: str) -> None:
    """The name or the number of a column."""
    (text if isinstance(value, str) else whole(0, MAX_VALUES))(value, where)


BACKBONE_OPTIONS: dict[str, Check] = {
    "hidden": items(whole(1, MAX_WIDTH), 0, 100),
    "width": whole(1, MAX_WIDTH),
    "blocks": whole(0, 100),
    "expansion": number(0, 1000),
    "members": whole(1, MAX_NETWORKS),
    "columns": or_none(items(whole(0, MAX_VALUES))),
    "frequencies": whole(1, MAX_WIDTH),
    "dim": whole(1, MAX_WIDTH),
    "frequency_std": number(0),
    "bins": whole(1, MAX_WIDTH),
    "edges": items(items(number(), 2, MAX_WIDTH)),
    "dropout": _share,
}
"""Options of all networks for tables."""
IMAGE_OPTIONS: dict[str, Check] = {"mean": items(number(), 3, 3), "std": items(_factor, 3, 3)}
"""Options of all networks for pictures."""

_SCORES = fields(
    {"n": whole(1, 1 << 53), "values": items(number(), 1)},
    {
        "ranks": items(whole(1, 1 << 53), 1),
        "at_most": items(_share, 1),
        "at_least": items(_share, 1),
        "effective": _factor,
    },
)
_COLUMN = fields(
    {
        "column": _column,
        "names": items(text, 0, MAX_GROUPS + 1),
        "edges": or_none(items(number(), 0, MAX_GROUPS)),
        "missing": flag,
    }
)
_GROUP = fields(
    {
        "name": choice(("all", "rare", "few", "balanced", "given")),
        "scores": items(number(), 1),
        "regions": items(whole(0, MAX_CELLS - 1), 1),
        "weights": items(number(0), 1),
        "effective": _factor,
        "slack": _factor,
    }
)
CONFORMAL = fields(
    {
        "mode": choice(("global", "region")),
        "weighting": choice(("none", "balanced", "rare", "given")),
        "min_rows": whole(1, 1 << 53),
        "many": _count,
        "few": _count,
        "edges": _edges,
        "counts": items(_count, 1, MAX_BINS),
        "tables": fields({"all": _SCORES}, dict.fromkeys(REGIONS, _SCORES)),
    },
    {
        "held_out": flag,
        "split": _share,
        "votes": flag,
        "rule": text,
        "groups": items(_GROUP, 0, 10),
        "mean_sides": items(items(number(0), 2, 2), len(REGIONS), MAX_CELLS),
        "column": or_none(_COLUMN),
    },
)
"""Conformal intervals of one target."""
SCALINGS: dict[str, Check] = {
    "NIGScaling": fields({"kind": text, "w_nu": _factor, "w_alpha": _factor, "w_beta": _factor}),
    "VarianceScaling": fields({"kind": text, "w": _factor}),
}
"""Factors on the predicted uncertainty of one target, by kind."""


def _scaling(value: Any, where: str) -> None:
    mapping(value, where)
    kind = value.get("kind")
    choice(SCALINGS)(kind, f"{where}.kind")
    SCALINGS[kind](value, where)


TARGET = fields(
    {
        "bins": fields({"edges": _edges, "counts": items(_count, 1, MAX_BINS), "rule": text}),
        "scaling": or_none(_scaling),
        "conformal": or_none(CONFORMAL),
    },
    {
        "density": or_none(fields({"edges": _edges, "density": items(_factor, 1, MAX_BINS)})),
        "emphasis": _share,
        "support": or_none(
            fields({"grid": items(number(), 0, 1001), "atoms": items(items(any_number, 3, 3), 0, 10)})
        ),
        "bounds": or_none(fields({"low": any_number, "high": any_number})),
        "held": or_none(choice(("Normal", "NIG", "Mixture"))),
    },
)
"""What the manifest holds about one target."""

_HISTORY = fields(
    {
        "history": items(named(any_number)),
        "monitor": text,
        "best_epoch": _count,
        "best_score": any_number,
        "stopped_early": flag,
    }
)


def _backbone(value: Any, where: str) -> None:
    mapping(value, where)
    if value.get("own") is not None:
        fields({"own": text, "feature_dim": whole(1, MAX_WIDTH)})(value, where)
        return
    known = fields({}, IMAGE_OPTIONS if value.get("name") in IMAGE_BACKBONES else BACKBONE_OPTIONS)
    name = choice([*BACKBONES, *IMAGE_BACKBONES])
    fields({"name": name, "options": known, "feature_dim": whole(1, MAX_WIDTH)})(value, where)


def _parts(value: Any, where: str) -> None:
    """Options of `Method`, which checks them."""
    mapping(value, where)
    Method().with_options(**value)


MANIFEST_FIELDS = fields(
    {
        "format": text,
        "version": whole(1, 1000),
        "tailwise": text,
        "members": named(text),
        "params": mapping,  # the estimator checks them
        "parts": _parts,
        "backbone": _backbone,
        "n_features_in": or_none(whole(1, MAX_VALUES)),
        "feature_names_in": or_none(items(text)),
        "columns": or_none(items(text)),
        "several_targets": flag,
        "targets": items(TARGET, 1, MAX_NETWORKS),
        "held_out": flag,
    },
    {
        "networks": whole(1, MAX_NETWORKS),
        "base_given": flag,
        "picture_size": or_none(items(whole(1, MAX_WIDTH), 2, 2)),
        "column_kinds": or_none(named(text)),
        "target_names": or_none(items(text)),
        "unseen": flag,
        "recalibrated": _count,
        "histories": items(_HISTORY, 1, MAX_NETWORKS),
        "history": _HISTORY,  # version 1, of one network
    },
)
"""Every field of a manifest."""


# -- fields that must agree ------------------------------------------------------------------------


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Raise an error for the first field that is missing, unknown, of a wrong type or beyond its limit."""
    MANIFEST_FIELDS(manifest, _TOP)
    targets = manifest["targets"]
    if len(targets) > 1 and not manifest["several_targets"]:
        raise ValueError(f"{len(targets)} targets do not fit a model of one")
    names = manifest.get("target_names")  # older files have none
    if names is not None and len(names) != len(targets):
        raise ValueError(f"{len(names)} names for {len(targets)} targets")
    if len(manifest.get("histories", [1])) != manifest.get("networks", 1):
        raise ValueError("its histories and networks differ in number")
    features = manifest["feature_names_in"]
    if features is not None and len(features) != manifest["n_features_in"]:
        raise ValueError(f"{len(features)} names for {manifest['n_features_in']} features")
    for place, target in enumerate(targets):
        _check_intervals(target["conformal"], manifest["params"].get("conformal"), f"its targets[{place}]")


def _check_intervals(state: Mapping[str, Any] | None, wanted: Any, where: str) -> None:
    """Raise an error if conformal intervals, or the scores of a region, are missing."""
    if state is None:
        if wanted is not None:
            raise ValueError(f"{where} has no conformal intervals, but the model was fitted with {wanted!r}")
        return
    own = [table["n"] for region, table in state["tables"].items() if region != "all"]
    if sum(own) != (state["tables"]["all"]["n"] if state["mode"] == "region" else 0):
        raise ValueError(f"{where}: the scores of the regions are not those of all rows")
    for region, table in state["tables"].items():
        shares = [table.get("at_most", ()), [-s for s in table.get("at_least", ())]]
        if any(not _rising(share) for share in shares):
            raise ValueError(f"{where}: the shares of the scores of {region!r} are not in order")


def _rising(values: Sequence[float]) -> bool:
    return all(a <= b for a, b in pairwise(values))
