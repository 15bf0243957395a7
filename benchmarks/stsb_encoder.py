"""Candidates for VIR's encoder behind the BiLSTM, a plugin for the suite `stsb-paper`; dev chooses.

    tailwise bench suite stsb-paper --plugin benchmarks/stsb_encoder.py --seeds 2 --out FOLDER \\
        --methods v-id3,v-id7,v-lin7,v-feat7

Rule, set before the runs: the candidate with the lowest squared error on dev, the mean of seeds 0 and 1,
becomes the suite's VIR; `vir` as the suite has it is a candidate too. Test errors play no part.

- First round, `v-...`: the start of the latent's mean and of its variance. `v-lin7` was chosen.
- Second round, the others: the variance's start was at the edge of what was tried, so one further away joins;
  the published code clips the ratio of covariances to [0.5, 2] on these data, VIR by default to [0.1, 10];
  and only bins with fewer than 30 training rows, the few-shot bins, are smoothed. With one of the two, the
  features themselves may serve as the latent's mean, which failed in the first round.
"""

from __future__ import annotations

from typing import Any

from tailwise.methods import get_method, register

_NARROW: dict[str, Any] = {"smoothing.clip": (0.5, 2.0)}
_SPARSE: dict[str, Any] = {**_NARROW, "smoothing.below": 30}
CANDIDATES: dict[str, dict[str, Any]] = {
    "v-id3": {"latent_mean": "identity"},
    "v-id7": {"latent_mean": "identity", "latent_var_start": -7.0},
    "v-lin7": {"latent_var_start": -7.0},
    "v-feat7": {"latent_mean": "features", "latent_var_start": -7.0},
    "linear-7-narrow": {"latent_var_start": -7.0, **_NARROW},
    "linear-11": {"latent_var_start": -11.0},
    "linear-11-narrow": {"latent_var_start": -11.0, **_NARROW},
    "identity-11-narrow": {"latent_mean": "identity", "latent_var_start": -11.0, **_NARROW},
    "identity-7-sparse": {"latent_mean": "identity", "latent_var_start": -7.0, **_SPARSE},
    "features-7-narrow": {"latent_mean": "features", "latent_var_start": -7.0, **_NARROW},
    "features-11-narrow": {"latent_mean": "features", "latent_var_start": -11.0, **_NARROW},
    "features-7-sparse": {"latent_mean": "features", "latent_var_start": -7.0, **_SPARSE},
}

_VIR = get_method("vir")
for _name, _options in CANDIDATES.items():
    register(
        _name,
        title=f"VIR, {_name}",
        parts=_VIR.parts.with_options(**_options),
        uncertainty=_VIR.uncertainty,
        about=f"VIR with {', '.join(f'{key} {value}' for key, value in _options.items())}.",
        search=_VIR.search,
    )
