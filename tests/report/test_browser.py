"""The page in a real browser: desktop and phone, light and dark."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.methods import get_method
from tailwise.metrics import REGIONS
from tailwise.report.page import Facts, model_page
from tailwise.report.ranking import comparison_page
from tailwise.report.scoring import score_model
from tailwise.report.verdict import judge

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: install Debian's package chromium"
)
PROBE = """<script>
addEventListener("load", () => {
  const box = (e) => e.getBoundingClientRect();
  const luminance = (rgb) => rgb.match(/[\\d.]+/g).slice(0, 3).map(Number)
    .map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const paper = luminance(getComputedStyle(document.body).backgroundColor);
  const contrast = (e) => { const ink = luminance(getComputedStyle(e).color);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05); };
  document.body.dataset.found = JSON.stringify({
    inner: innerWidth, scroll: document.documentElement.scrollWidth,
    charts: [...document.querySelectorAll("svg.chart")].map(box)
      .map((b) => [b.width, b.height, b.right]),
    smallest: Math.min(...[...document.querySelectorAll("svg.chart text")].map((e) => box(e).height)),
    contrast: Math.min(...[...document.querySelectorAll("p, figcaption, h1, h2, td, th, pre")].map(contrast)),
    dark: paper < 0.2,
  });
});
</script></body>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 3))
    y = np.round(2 * np.exp(x[:, 0]) + 0.3 * rng.normal(size=900))
    X = pd.DataFrame(x, columns=["a", "b", "c"])
    scored = []
    for method in ("vir", "vanilla"):
        model = TailRegressor(method=method, epochs=3, random_state=0).fit(X[:600], y[:600])
        scored.append(score_model(model, X[600:], y[600:]))
    facts = Facts(
        target="rings", source="shells.csv", method="vir", train_rows=480, features=3, seed=0,
        command=f"tailwise fit shells.csv --target rings --report {'long_' * 20}.html",
        parts=get_method("vir").parts, intervals=model.explain_intervals(),
    )  # fmt: skip
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(
        model_page(scored[0], judge(scored[0], scored[1]), facts, scored[1]).replace("</body>", PROBE),
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tailwise.benchmark.pages.statistics import Results

    scores = {region: {"mae": 1.234567, "nll": 2.345678, "coverage": 0.9} for region in REGIONS}
    records = [
        {"data": "shells", "method": f"m{m}", "title": f"A long name, {m}", "seed": seed, "digest": "x",
         "recipe": {"epochs": 3}, "metrics": {"raw": scores, "calibrated": scores}}
        for m in range(9) for seed in range(2)
    ]  # fmt: skip
    page = comparison_page(Results(records), title="nine methods", command="tailwise compare " + "x" * 200)
    path = tmp_path_factory.mktemp("ranking") / "page.html"
    path.write_text(page.replace("</body>", PROBE), encoding="utf-8")
    return path


def opened(page: Path, width: int, dark: bool, profile: Path) -> tuple[dict[str, Any], str]:
    """What the probe found, and what the browser complained of."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={profile}", f"--window-size={width},900", "--enable-logging=stderr",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    complaints = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return json.loads(unescape(found.group(1))), complaints


def check(page: Path, profile: Path, width: int, dark: bool, charts: int) -> None:
    """No complaint, no sideways scrolling, every chart in sight, nothing too small or too faint to read."""
    found, complaints = opened(page, width, dark, profile)
    assert complaints == ""
    assert found["dark"] is dark
    assert found["scroll"] <= found["inner"]
    assert len(found["charts"]) == charts
    for wide, high, right in found["charts"]:
        assert wide > 0.75 * min(found["inner"], 640) and high > 100 and right <= found["inner"]
    assert found["smallest"] > 8
    assert found["contrast"] >= 4.5


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_fits_shows_every_chart_and_can_be_read(
    page: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    check(page, tmp_path, width, dark, charts=10)


def test_a_ranking_of_methods_fits_on_a_phone(ranking: Path, tmp_path: Path) -> None:
    check(ranking, tmp_path, 390, True, charts=3)
