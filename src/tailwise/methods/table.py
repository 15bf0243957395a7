"""The methods without code of their own: rows that differ in one or two parts."""

from __future__ import annotations

from tailwise.methods import rank_n_contrast, uvote  # noqa: F401  (their parts)
from tailwise.methods.registry import get_method, register
from tailwise.networks.parts import Method, Part
from tailwise.networks.vir import DEFAULT, LEAST_COUNT, PAPER, REFERENCE

_DER = Method(
    head=Part("evidential", sharpness=0.1),
    losses=(Part("nll"), Part("evidence", weight=0.015, form="reference")),
)
_DIR = "Yang et al., Delving into Deep Imbalanced Regression, ICML 2021"
_AMINI = "Amini et al., Deep Evidential Regression, NeurIPS 2020"
_VIR = "Wang and Wang, Variational Imbalanced Regression, NeurIPS 2023"

register(
    "vanilla",
    title="Vanilla",
    parts=Method(),
    about="The backbone with a linear head and squared error, (y - f(x))^2, without weights.",
)
register(
    "inv",
    title="INV",
    parts=Method(weights=Part("density", kernel=None, power=1.0)),
    about=f"Squared error weighted by the inverse count of the label's bin, clipped ({_DIR}).",
)
register(
    "sqinv",
    title="SQINV",
    parts=Method(weights=Part("density", kernel=None)),
    about=f"Squared error weighted by count^(-1/2) of the label's bin ({_DIR}).",
)
register(
    "lds",
    title="LDS",
    parts=Method(weights=Part("density", power=0.84, bandwidth=1.6, radius=5, clip=LEAST_COUNT)),
    about=f"Label distribution smoothing: weights from a density smoothed over bins, VIR:weight ({_DIR}).",
)
register(
    "fds",
    title="FDS",
    parts=Method(smoothing=Part("statistics", unbiased=True)),
    about=(
        "Feature distribution smoothing: features are whitened by their bin's mean and variance "
        f"and recoloured by smoothed ones, VIR:F with zero variance ({_DIR})."
    ),
)
register(
    "lds-fds",
    title="LDS + FDS",
    parts=Method(
        weights=Part("density", power=0.71, bandwidth=1.2, radius=5, clip=LEAST_COUNT),
        smoothing=Part("statistics", bandwidth=1.0, radius=5, momentum=0.5, unbiased=True),
    ),
    about=f"LDS and FDS at once ({_DIR}).",
)
register(
    "gaussian",
    title="Gaussian NLL",
    parts=Method(head=Part("gaussian"), losses=(Part("nll"),)),
    uncertainty="aleatoric",
    about=(
        "A mean and a variance per row, trained by Gaussian likelihood "
        "(Nix and Weigend, Estimating the mean and variance of the target distribution, 1994)."
    ),
)
register(
    "der",
    title="DER",
    parts=_DER,
    uncertainty="aleatoric and epistemic",
    about=(
        "Deep evidential regression: a normal-inverse-gamma belief per row, trained by Student-t "
        f"likelihood (VIR:nll) plus lambda (2 nu + alpha)|y - gamma| ({_AMINI})."
    ),
)
register(
    "lds-fds-der",
    title="LDS + FDS + DER",
    parts=_DER.with_options(
        **{
            "weights": Part("density", power=0.71, clip=LEAST_COUNT),
            "smoothing": Part(
                "statistics", bandwidth=0.52, radius=5, momentum=0.5, clip=(0.5, 2.0), unbiased=True
            ),
            "evidence.weight": 0.0017,
        }
    ),
    uncertainty="aleatoric and epistemic",
    about=f"DER with LDS weights on its loss and FDS on its features ({_DIR}; {_AMINI}).",
)
register(
    "vae",
    title="VAE",
    parts=Method(
        latent=Part("gaussian"),
        losses=(Part("squared"), Part("kl", weight=1e-3), Part("reconstruction", weight=0.1, features=True)),
    ),
    about=(
        "Squared error on a Gaussian latent with KL to N(0, I) and a reconstruction: of the input where a "
        "decoder is given, of the backbone's features otherwise (Kingma and Welling, "
        "Auto-Encoding Variational Bayes, ICLR 2014)."
    ),
)
register(
    "ensemble",
    title="Deep Ensemble",
    parts=Method(head=Part("gaussian"), losses=(Part("nll"),), members=5),
    uncertainty="aleatoric and epistemic",
    about=(
        "Five networks with Gaussian likelihood, mixed (Lakshminarayanan et al., Simple and Scalable "
        "Predictive Uncertainty Estimation using Deep Ensembles, NeurIPS 2017)."
    ),
)
register(
    "infer-noise",
    title="Infer-Noise",
    parts=Method(perturbation=Part("noise", samples=16, scale=0.1)),
    uncertainty="aleatoric and epistemic",
    about=(
        "Vanilla, predicted 16 times with Gaussian noise on its features; the spread of the predictions is "
        "epistemic (Mi et al., Training-Free Uncertainty Estimation for Dense Regression, AAAI 2022)."
    ),
)
register(
    "infer-dropout",
    title="Infer-Dropout",
    parts=Method(perturbation=Part("dropout", samples=16, scale=0.41)),
    uncertainty="aleatoric and epistemic",
    about=(
        "Vanilla, predicted 16 times with dropout on its features (Mi et al., Training-Free Uncertainty "
        "Estimation for Dense Regression, AAAI 2022; Gal and Ghahramani, ICML 2016)."
    ),
)
register(
    "rrt",
    title="RRT",
    parts=Method(weights=Part("density", power=1.0), schedule=Part("retrain", start=0.5)),
    about=(
        "Regressor re-training: the network is trained without weights, then its encoder is frozen and a new "
        f"head is trained with inverse weights ({_DIR}, after Kang et al., ICLR 2020)."
    ),
)
for _name, _title in (("smoter", "SmoteR"), ("smogn", "SMOGN")):
    _paper = {
        "smoter": "Torgo et al., SMOTE for Regression, EPIA 2013",
        "smogn": "Branco et al., SMOGN: a Pre-processing Approach for Imbalanced Regression, 2017",
    }[_name]
    register(
        _name,
        title=_title,
        parts=Method(resampling=_name),
        about=(
            "Vanilla on training rows resampled by relevance: rare rows are synthesised, common rows dropped "
            f"({_paper})."
        ),
    )
register(
    "vir-encoder",
    title="VIR, encoder only",
    parts=Method(
        latent=PAPER.latent,
        smoothing=Part("statistics", bandwidth=2.1, radius=5, momentum=0.99, clip=(0.5, 2.0)),
        losses=(Part("squared"), Part("kl", weight=1.4e-4)),
    ),
    about=f"Gaussian latents with probabilistic smoothing (VIR:A, VIR:S, VIR:F) and squared error ({_VIR}).",
)
register(
    "vir-predictor",
    title="VIR, predictor only",
    parts=Method(
        weights=Part("density", on="both", power=0.49, clip=LEAST_COUNT),
        head=DEFAULT.head,
        losses=(Part("nll"), Part("evidence", weight=0.04)),
        inference=Part("self"),
    ),
    uncertainty="aleatoric and epistemic",
    about=f"Weighted pseudo-counts (VIR:posterior) on plain features ({_VIR}).",
)
register(
    "vir-dial",
    title="VIR with a dial",
    parts=Method(head=DEFAULT.head, losses=(Part("nll"), Part("evidence", weight=0.1))),
    uncertainty="aleatoric and epistemic",
    about=(
        "The predictor of VIR fitted to labels as they occur. Rare labels are emphasised at prediction "
        f"time, by changing the label prior (VIR:dial), not by weights in training ({_VIR})."
    ),
)
register(
    "lds-vir-encoder",
    title="LDS + VIR encoder",
    parts=Method(
        weights=Part("density"),
        smoothing=Part("statistics"),
        latent=PAPER.latent,
        losses=(Part("squared"), Part("kl", weight=1e-3)),
    ),
    about=f"The encoder of VIR with LDS weights on squared error ({_VIR}).",
)
register(
    "lds-vir-predictor",
    title="LDS + VIR predictor",
    parts=get_method("vir-predictor").parts.with_options(**{"weights.power": 0.5, "evidence.weight": 0.1}),
    uncertainty="aleatoric and epistemic",
    about=f"The predictor of VIR with LDS weights on its likelihood as well ({_VIR}).",
)
for _name, _title, _parts, _text in (
    ("vir", "VIR", DEFAULT, "with the defaults that measure best here"),
    ("vir-paper", "VIR (paper)", PAPER, "as in the paper's text"),
    ("vir-reference", "VIR (reference)", REFERENCE, "as in the authors' preview code"),
):
    register(
        _name,
        title=_title,
        parts=_parts,
        uncertainty="aleatoric and epistemic",
        about=(
            "Variational imbalanced regression: Gaussian latents smoothed over neighbouring label "
            "bins (VIR:A, VIR:S, VIR:F) and a normal-inverse-gamma head whose pseudo-counts are "
            f"weighted by label rarity (VIR:posterior), {_text} ({_VIR})."
        ),
        variance="total" if _name == "vir" else "epistemic",
    )

# -- since VIR ---------------------------------------------------------------------------------------

register(
    "bsam",
    title="BSAM",
    parts=Method(
        losses=(Part("absolute"),), weights=Part("density", kernel=None), sharpness=Part("sam", rho=0.2)
    ),
    group="since-vir",
    about=(
        "BSAM takes the gradient at weights that are moved by rho along the gradient of the same loss, here "
        "absolute error with SQINV weights, BSAM:step (Liu et al., Balanced Sharpness-Aware Minimization for "
        "Imbalanced Regression, ICCV 2025)."
    ),
)
for _name, _title, _options, _text in (
    (
        "vir-rnc",
        "VIR + Rank-N-Contrast",
        {"rnc.weight": 0.1},
        "with RNC:loss on its smoothed latents (Zha et al., Rank-N-Contrast, NeurIPS 2023)",
    ),
    (
        "vir-bsam",
        "VIR + BSAM",
        {"sharpness": Part("sam", rho=0.2)},
        "trained by BSAM:step (Liu et al., Balanced Sharpness-Aware Minimization, ICCV 2025)",
    ),
    (
        "vir-uvote",
        "UVOTE with VIR's heads",
        {
            "weights": {"on": "count", "power": 1.0},
            "head": Part("voting", expert="pseudo-count"),
            "losses": ["experts", "kl"],
            "experts.evidence": DEFAULT.as_options()["evidence.weight"],
        },
        "whose heads are experts for common and for rare labels, UVOTE:loss and UVOTE:vote (Jiang et al., "
        "Uncertainty Voting Ensemble, GCPR 2024)",
    ),
):
    register(
        _name,
        title=_title,
        parts=DEFAULT.with_options(**_options),
        uncertainty="aleatoric and epistemic",
        group="since-vir",
        about=f"VIR ({_VIR}) {_text}.",
    )
