"""The page in a real browser: desktop and phone, light and dark."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tailwise.metrics import REGIONS
from tailwise.report.ranking import comparison_page

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed (Debian's package is called chromium)"
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
def page_file(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    unfolded = page.replace("<details>", "<details open>").replace("</body>", PROBE)
    path.write_text(unfolded, encoding="utf-8")
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
    """Return what the probe found, and the complaints of the browser."""
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


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(1200, False, id="desktop-light"),
        pytest.param(390, True, id="phone-dark"),
        pytest.param(1200, True, id="desktop-dark", marks=pytest.mark.slow),
        pytest.param(390, False, id="phone-light", marks=pytest.mark.slow),
    ],
)
def test_the_page_fits_shows_every_chart_and_can_be_read(
    page_file: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    check(page_file, tmp_path, width, dark, charts=11)  # the dial among them


def test_a_ranking_of_methods_fits_on_a_phone(ranking: Path, tmp_path: Path) -> None:
    check(ranking, tmp_path, 390, True, charts=3)
