"""Each part of ours on the input of a golden file, and how far it is from what the published code gave.

``python -m tests.parity.comparisons`` prints the table that docs/deviations.md states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tailwise.calibration.scaling import NIGScaling, fit_scaling
from tailwise.distributions.members import NIG, Normal
from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import kernel_window, label_weights
from tailwise.methods.ranksim import ranksim
from tailwise.metrics.regions import by_region
from tailwise.metrics.scores import ause
from tailwise.networks.heads import EvidentialHead
from tailwise.networks.losses import Evidence
from tailwise.networks.parts import Part, made
from tailwise.networks.smoothing import LatentSmoother
from tailwise.networks.vir import PRESETS
from tailwise.resampling.smogn import Relevance
from tests.networks.small_models import FEW, batch

GOLDEN = Path(__file__).parent / "golden"
Golden = Mapping[str, NDArray[Any]]


@cache
def golden(name: str) -> Golden:
    """Return the arrays of a golden file."""
    with np.load(GOLDEN / f"{name}.npz") as file:
        return dict(file)


def apart(ours: ArrayLike | Tensor, published: NDArray[Any]) -> float:
    """Largest difference, as a share of the largest published number."""
    found = ours.detach().numpy() if isinstance(ours, Tensor) else np.asarray(ours)
    assert found.shape == published.shape, (found.shape, published.shape)
    assert np.isfinite(found).all()  # `max` of several differences would pass over NaN
    return float(np.abs(found - published).max() / np.abs(published).max())


_DIR: Mapping[str, Any] = {"form": "reference", "boundary": "reflect", "unbiased": True}


def _smoothers(
    options: Mapping[str, Any], epochs: int, *z: NDArray[Any]
) -> tuple[LatentSmoother, list[Tensor]]:
    """Smooth each epoch's rows by the statistics of the epochs before, as training does."""
    label = torch.as_tensor(golden("vir" if len(z) > 1 else "fds")["label"])
    bins = LabelBins.from_labels(label, edges=np.arange(13) - 0.5)
    smoother, rows = LatentSmoother(z[0].shape[-1], bins, **options), []
    for epoch in range(epochs):
        values = [torch.as_tensor(part[epoch]) for part in z]
        smoothed = smoother(values[0], values[1] if len(z) > 1 else None, label)
        rows.append(torch.cat([part for part in smoothed if part is not None], 1))
        smoother.accumulate(values[0], values[1] if len(z) > 1 else None, label)
        if epoch < epochs - 1:
            smoother.commit()
    return smoother, rows


def fds_statistics() -> float:
    want = golden("fds")
    smoother, _ = _smoothers(_DIR, 3, want["z"])
    return max(
        apart(kernel_window(form="reference"), want["window"]),
        apart(smoother.stats.mu_mean, want["mean"]),
        apart(smoother.stats.cov_mean, want["var"]),
        apart(smoother.smoothed.mu_mean, want["smoothed_mean"]),
        apart(smoother.smoothed.cov_mean, want["smoothed_var"]),
    )


def fds_rows() -> float:
    want = golden("fds")
    return apart(_smoothers(_DIR, 3, want["z"])[1][2], want["rows"])


def fds_epochs() -> float:
    want = golden("fds")
    _, rows = _smoothers(_DIR, 4, want["z"])
    return apart(torch.stack(rows), want["trained"])


def fds_default() -> float:
    want = golden("fds")
    return apart(_smoothers({"unbiased": True}, 3, want["z"])[1][2], want["rows"])


def vir_statistics() -> float:
    want = golden("vir")
    smoothing = PRESETS["reference"].smoothing
    assert smoothing is not None
    smoother, _ = _smoothers(smoothing.options, 3, want["z_mean"], want["z_var"])
    stats, smoothed = smoother.stats, smoother.smoothed
    return max(
        apart(torch.cat([stats.mu_mean, stats.mu_var], 1), want["mu"]),
        apart(stats.cov_mean, want["cov"][:, :3]),
        apart(torch.cat([smoothed.mu_mean, smoothed.mu_var], 1), want["smoothed_mu"]),
        apart(smoothed.cov_mean, want["smoothed_cov"][:, :3]),
    )


def vir_rows() -> float:
    want = golden("vir")
    smoothing = PRESETS["reference"].smoothing
    assert smoothing is not None
    return apart(_smoothers(smoothing.options, 3, want["z_mean"], want["z_var"])[1][2], want["rows"])


def vir_weights() -> float:
    want = golden("vir")
    bins = LabelBins.from_labels(want["label"])
    weights = PRESETS["reference"].make("weights", bins).per_bin
    return apart(weights[bins.index(want["label"])], want["w"])


def vir_objective() -> float:
    """Head, posterior, likelihood and regulariser, with their gradients, on the smoothed latents."""
    want, parts = golden("vir"), PRESETS["reference"]
    head = parts.make("head", 3, FEW)
    order = [1, 0, 2]  # ours gives n, psi, phi; the preview code psi, n, phi
    with torch.no_grad():
        head.linear.weight.copy_(torch.as_tensor(want["weight"][order]))
        head.linear.bias.copy_(torch.as_tensor(want["bias"][order]))
    z = torch.as_tensor(want["rows"][:, :3]).requires_grad_()
    y, w = torch.as_tensor(want["label"]).float(), torch.as_tensor(want["w"]).float()
    train, test = head(z, w), head(z)
    assert isinstance(train, NIG) and isinstance(test, NIG)
    evidence = made("losses", parts.losses[1], 3, FEW)
    loss = (train.nll(y) + evidence.weight * evidence(batch(train, y))).mean()
    loss.backward()
    assert z.grad is not None and head.linear.weight.grad is not None
    return max(
        apart(torch.stack(train.parameters, 1), want["train"]),
        apart(torch.stack(test.parameters, 1), want["test"]),
        apart(loss, want["loss"]),
        apart(z.grad, want["gradient"]),
        apart(head.linear.weight.grad, want["head_gradient"][order]),
    )


def _ranksim(case: str) -> float:
    want = golden("ranksim")
    far = []
    for weight in (1, 100):
        z = torch.as_tensor(want[f"{case}_z"]).requires_grad_()
        loss = ranksim(z, torch.as_tensor(want[f"{case}_y"]))
        (weight * loss).backward()
        assert z.grad is not None
        far += [apart(loss, want[f"{case}_loss"]), apart(z.grad, want[f"{case}_gradient_{weight}"])]
    return max(far)


def balanced_mse() -> float:
    """GAI, BMC and BNI, with the gradients of the prediction and of the noise."""
    want, far = golden("balanced_mse"), []
    share = {"gai": want["gmm_weights"], "bni": want["shares"]}
    center = {"gai": want["gmm_means"], "bni": want["centers"]}
    spread = {"gai": want["gmm_variances"], "bni": np.zeros(len(want["centers"]))}
    noise = float(want["noise"])
    for name in ("gai", "bmc", "bni"):
        kind = "batch-mse" if name == "bmc" else "balanced-mse"
        module = made("losses", Part(kind, noise=noise), 1, FEW).double()
        if name != "bmc":
            module.log_share = torch.as_tensor(np.log(share[name]))
            module.center, module.spread = torch.as_tensor(center[name]), torch.as_tensor(spread[name])
        m = torch.as_tensor(want["prediction"]).requires_grad_()
        loss = module(batch(Normal(m, 1.0), torch.as_tensor(want["y"]))).mean()
        loss.backward()
        assert m.grad is not None
        far += [
            apart(loss, want[f"{name}_loss"]),
            apart(m.grad, want[f"{name}_gradient"]),
            apart(module.log_noise.grad / noise, want[f"{name}_noise_gradient"]),
        ]
    return max(far)


def focal_r() -> float:
    want, far = golden("focal_r"), []
    for i, (b, g) in enumerate(want["options"]):
        focal = made("losses", Part("focal-r", b=float(b), g=float(g)), 1, FEW)
        m = torch.as_tensor(want["prediction"]).requires_grad_()
        loss = focal(batch(Normal(m, 1.0), torch.as_tensor(want["y"]))).mean()
        loss.backward()
        assert m.grad is not None
        far += [apart(loss, want[f"loss_{i}"]), apart(m.grad, want[f"gradient_{i}"])]
    return max(far)


def _dense(case: str) -> float:
    want = golden("dense")
    bins = LabelBins.from_labels(want[case])
    index = bins.index(want[case])
    ours = [label_weights(bins, form="dense", power=alpha)[index] for alpha in want["alpha"]]
    return apart(np.stack(ours), want[f"{case}_w"])


def der() -> float:
    want = golden("der")
    head = EvidentialHead(4, FEW, min_alpha=1.0).double()
    with torch.no_grad():
        head.linear.weight.copy_(torch.eye(4))
        head.linear.bias.zero_()
    belief = head(torch.as_tensor(want["raw"]))
    exact = NIG(*torch.as_tensor(want["parameters"]).unbind(1))
    assert isinstance(belief, NIG)
    y = torch.as_tensor(want["y"])
    return max(
        apart(torch.stack(belief.parameters, 1), want["parameters"]),
        apart(exact.nll(y), want["nll"]),
        apart(Evidence(4, FEW, form="reference")(batch(exact, y)), want["penalty"]),
    )


def _weights(name: str, power: float, kernel: str | None) -> float:
    want = golden("weights")
    bins = LabelBins.from_labels(want["y"])
    weights = label_weights(bins, power=power, kernel=kernel, form="reference")
    return apart(weights[bins.index(want["y"])], want[name])


def weights() -> float:
    return max(
        _weights("inv", 1.0, None),
        _weights("sqinv", 0.5, None),
        _weights("sqinv_lds", 0.5, "gaussian"),
    )


def _shots(table: str) -> float:
    want = golden("shots")
    rows = want["inside"] | (table == "table_all")
    bins = LabelBins.from_labels(want["train"])
    prediction = Normal(torch.as_tensor(want["prediction"][rows]), 1.0)
    found = by_region(prediction, want["y"][rows], bins, ["mse", "mae", "gm"])
    ours = found.loc[["many", "medium", "few"], ["mse", "mae", "gm", "n"]]
    return max(apart(ours.to_numpy()[:, i], want[table][:, i]) for i in range(4))


def _belief(name: str) -> NIG:
    return NIG(*torch.as_tensor(golden(name)["parameters"]).unbind(1))


def ause_reference() -> float:
    want = golden("ause")
    return apart(ause(_belief("ause"), want["y"], form="reference"), want["ause"])


def calibration() -> float:
    want = golden("calibration")
    fitted = fit_scaling(_belief("calibration"), want["y"])
    assert isinstance(fitted, NIGScaling)
    calibrated = fitted.apply(_belief("calibration"))
    return apart(calibrated.nll(torch.as_tensor(want["y"])).mean(), want["nll"])


def relevance() -> float:
    want, far = golden("relevance"), []
    for case in ("skewed", "both"):
        function = Relevance.from_labels(want[case])
        rare = want[f"{case}_points"][:, 1] == 1
        ours = np.array([end for end in (function.low, function.high) if np.isfinite(end)])
        far += [apart(ours, want[f"{case}_points"][rare, 0])]
        far += [apart(function(want[case]), want[f"{case}_relevance"])]
    return max(far)


SAME: dict[str, Callable[[], float]] = {
    "FDS: statistics per bin, smoothed": fds_statistics,
    "FDS: recoloured rows": fds_rows,
    "VIR `reference`: statistics of statistics, smoothed": vir_statistics,
    "VIR `reference`: recoloured latents": vir_rows,
    "VIR `reference`: weights": vir_weights,
    "VIR `reference`: head, posterior, loss, gradients": vir_objective,
    "INV, SQINV, SQINV with LDS": weights,
    "RankSim: loss, gradient": partial(_ranksim, "distinct"),
    "RankSim: repeated labels": partial(_ranksim, "repeated"),
    "Balanced MSE: GAI, BMC, BNI, gradients": balanced_mse,
    "Focal-R: loss, gradient": focal_r,
    "DER: head, likelihood, regulariser": der,
    "relevance of SmoteR and SMOGN": relevance,
    "shots: MSE, MAE, GM, rows": partial(_shots, "table_inside"),
    "AUSE, form `reference`": ause_reference,
}
"""Parts that agree with published code."""
APART: dict[str, Callable[[], float]] = {
    "FDS: the four epochs of a training": fds_epochs,
    "FDS: default kernel, recoloured rows": fds_default,
    "INV with LDS": partial(_weights, "inv_lds", 1.0, "gaussian"),
    "RankSim: labels at equal distances": partial(_ranksim, "tied"),
    "DenseLoss: whole-number labels": partial(_dense, "ages"),
    "DenseLoss: real labels": partial(_dense, "reals"),
    "shots: labels beyond the training range": partial(_shots, "table_all"),
    "calibrated NLL": calibration,
}
"""Parts that differ from published code on purpose; docs/deviations.md gives the reasons."""

if __name__ == "__main__":
    for part, compare in {**SAME, **APART}.items():
        print(f"{part:52s} {compare():.2g}")  # noqa: T201
