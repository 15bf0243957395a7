"""The command for new labelled rows: `recalibrate`."""

from __future__ import annotations

from functools import partial

from tailwise.cli.options import (
    Model,
    ModelOut,
    PictureOptions,
    Shared,
    Sign,
    Table,
    TrueLabels,
    Trust,
)
from tailwise.cli.output import check_outputs, print_json, write_outputs
from tailwise.cli.read import Pictures, Reader, Roles, check_key, load_model, split_labelled


def recalibrate(
    model: Model,
    data: Table,
    out: ModelOut,
    target: TrueLabels = None,
    sign: Sign = None,
    *,
    trust: Trust,
    pictures: PictureOptions,
    shared: Shared,
) -> None:
    """Fit the uncertainty of a model anew on new rows, without training.

    Networks, base and emphasis stay; the intervals then hold for rows like these. The rows should not have
    been used in training.
    """
    from tailwise.model.inputs import match_inputs, match_targets

    check_key(sign, [model, data])  # before anything is fitted
    secrets = [sign] if sign else []
    check_outputs({"--out": out}, force=shared.force, inputs=[model, data, *secrets])
    fitted = load_model(model, trust.verify)
    table = Reader(shared, Pictures.of_model(fitted, pictures)).table(data)
    columns = match_targets(fitted.model_, table, target or [], data)
    if len(columns) != fitted.n_targets_:
        raise ValueError(f"the model has {fitted.n_targets_} targets: give a column of labels for each")
    roles = Roles(sorted(columns, key=lambda column: columns[column]))
    rows = split_labelled(table, roles, data, shared.quiet)
    fitted.recalibrate(match_inputs(fitted.model_, rows.X, data), rows.labels)
    write_outputs({out: partial(fitted.save, key=sign)}, quiet=shared.quiet or shared.as_json)
    if shared.as_json:
        print_json({"model": out, "rows": len(rows)})
