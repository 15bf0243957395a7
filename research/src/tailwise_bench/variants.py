"""Ablations of VIR: groups of untuned variants that differ from the default in one option."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailwise.methods import get_method
from tailwise_bench.contenders import Contender, from_registry

_PAPER_BOUNDS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("reconstruction=none", "no reconstruction", {"reconstruction": None}),
    ("elbo=sum", "sums", {"kl.mean": False, "reconstruction.mean": False}),
    (
        "elbo=sum and reconstruction=none",
        "sums, no reconstruction",
        {"kl.mean": False, "reconstruction": None},
    ),
)
"""Other readings of the paper's bound: name, title and options of each variant of `vir-paper`."""


def is_ablation(name: str) -> bool:
    """Return whether a contender's name is that of a variant, such as ``vir[smoothing=none]``."""
    return name.endswith("]")


def _variants(word: str, options: Mapping[str, Mapping[str, Any]], method: str = "vir") -> list[Contender]:
    title = get_method(method).title
    return [
        from_registry(
            method, label=f"{method}[{word}={value}]", title=f"{title}, {word} {value}", tuned=False, **fixed
        )
        for value, fixed in options.items()
    ]


def _parts(*names: str) -> list[Contender]:
    return [from_registry(name, label=f"{name}[fixed]", tuned=False) for name in names]


def picture_variants() -> list[Contender]:
    """Return variants of VIR for pictures: other exponents of its weights, and VIR:recon.

    A decoder of pictures averages over pixels, so that it has the weight 1 and not that of the KL.
    """
    powers = {f"{power:g}": {"weights.power": power} for power in (0.0, 0.25, 0.75, 1.0)}
    decoder = {"of the picture": {"reconstruction.weight": 1.0}}
    return [*_variants("exponent", powers), *_variants("reconstruction", decoder)]


def ablations() -> dict[str, list[Contender]]:
    """Return groups by name; each starts with ``vir[fixed]``, VIR at its defaults, as the reference."""
    kl = get_method("vir").parts.as_options()["kl.weight"]
    both = ("weights.", "smoothing.")
    kernels: dict[str, dict[str, Any]] = {
        "laplacian": {part + "kernel": "laplacian" for part in both},
        "triangular": {part + "kernel": "triangular" for part in both},
        "none": {part + "kernel": None for part in both},
        "bandwidth 1": {part + "bandwidth": 1.0 for part in both},
        "bandwidth 2": {part + "bandwidth": 2.0 for part in both},
        "bandwidth 4": {
            part + key: value for part in both for key, value in (("bandwidth", 4.0), ("radius", 6))
        },
    }
    lambdas = {f"{v:g}": {"evidence.weight": v} for v in (10.0, 1.0, 0.1, 0.01, 0.001)}
    counts = {str(count): {"bins": count} for count in (100, 33, 20)}
    groups = {
        "lambda": [
            *_variants("lambda", lambdas),
            *_parts("vir-paper"),
            *_variants("lambda", lambdas, "vir-paper"),
        ],
        "bins": [
            *_variants("bins", counts),
            *_parts("vir-paper", "ranksim"),
            *_variants("bins", counts, "vir-paper"),
            *_variants("bins", counts, "ranksim"),
        ],
        "kernel": _variants("kernel", kernels),
        "smoothing": _variants(
            "smoothing",
            {
                "none": {"smoothing": None},
                "none and plain latents": {"smoothing": None, "latent": "point", "kl": None},
                "at inference too": {"smoothing.at_inference": True},
            },
        ),
        "encoder": _parts("vir-encoder", "lds-vir-encoder", "vanilla", "lds"),
        "predictor": _parts("vir-predictor", "lds-vir-predictor", "der", "lds-fds-der"),
        "latent": [
            *_variants("latent mean", {v: {"latent.mean": v} for v in ("identity", "features")}),
            *_variants("latent start", {f"{v:g}": {"latent.var_start": v} for v in (-3.0, -7.0)}),
        ],
        # VIR:recon and the KL are one bound: in VIR's default they have one weight.
        "reconstruction": [
            *_variants("reconstruction", {"of the input": {"reconstruction.weight": kl}}),
            *_parts("vir-paper"),
            *(
                from_registry(
                    "vir-paper",
                    label=f"vir-paper[{words}]",
                    title=f"VIR (paper), {title}",
                    tuned=False,
                    **fixed,
                )
                for words, title, fixed in _PAPER_BOUNDS
            ),
        ],
        "inference": _variants(
            "inference", {mode: {"inference": mode} for mode in ("plain", "self", "marginal")}
        ),
    }
    return {f"ablation-{name}": [*_parts("vir"), *group] for name, group in groups.items()}
