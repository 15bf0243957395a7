"""Self-contained HTML from templates: one file, no network, light and dark, for screen and paper."""

from __future__ import annotations

import math
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tailwise._version import __version__
from tailwise.report.formatting import number


def render(template: str, **values: Any) -> str:
    """Return a template filled with values; a missing value is an error."""
    environment = Environment(
        loader=PackageLoader("tailwise.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value: "–" if math.isnan(value) else number(value)
    environment.filters["percent"] = lambda value: "–" if math.isnan(value) else f"{100 * value:.1f}%"
    return environment.get_template(template).render(version=__version__, **values)
