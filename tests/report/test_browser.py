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
from tailwise.report.results import Results, comparison_page

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
    columns: new Set([...document.querySelectorAll(".charts > section")]
      .map((e) => Math.round(box(e).left))).size,
    answers: Math.max(...[...document.querySelectorAll(".answer, .verdict")].map((e) => box(e).bottom)),
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
    path.write_text(probed(page).replace("<details>", "<details open>"), encoding="utf-8")
    return path


def probed(page: str) -> str:
    """Add the probe, and let it run."""
    policy = '<meta http-equiv="Content-Security-Policy"'
    assert policy in page
    return page.replace(policy, "<meta").replace("</body>", PROBE)


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scores = {
        region: {"mae": 1.234567, "rmse": 1.3, "nll": 2.345678, "coverage": 0.9, "width": 4.5}
        for region in REGIONS
    }
    records = [
        {"data": "shells", "method": f"m{m}", "title": f"A long name, {m}", "seed": seed, "digest": "x",
         "recipe": {"epochs": 3}, "metrics": {"raw": scores, "calibrated": scores}}
        for m in range(9) for seed in range(2)
    ]  # fmt: skip
    page = comparison_page(Results(records), title="nine methods", command="tailwise compare " + "x" * 200)
    path = tmp_path_factory.mktemp("ranking") / "page.html"
    path.write_text(probed(page), encoding="utf-8")
    return path


def dumped(page: Path, width: int, dark: bool, profile: Path) -> tuple[str, str]:
    """Return the page after its scripts have run, and the complaints of the browser."""
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
    assert "<html" in done.stdout, done.stderr[-2000:]
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def check(page: Path, profile: Path, width: int, dark: bool, charts: int) -> dict[str, Any]:
    """No complaint, no sideways scrolling, every chart in sight, nothing too small or too faint to read."""
    dom, complaints = dumped(page, width, dark, profile)
    probe = re.search(r'data-found="([^"]*)"', dom)
    assert complaints == "" and probe
    found: dict[str, Any] = json.loads(unescape(probe.group(1)))
    assert found["dark"] is dark
    assert found["scroll"] <= found["inner"]
    assert len(found["charts"]) == charts
    for wide, high, right in found["charts"]:
        assert wide > 0.75 * min(found["inner"], 580) and high > 100 and right <= found["inner"]
    assert found["smallest"] > 8
    assert found["contrast"] >= 4.5
    return found


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(1280, False, id="desktop-light"),
        pytest.param(390, True, id="phone-dark"),
        pytest.param(1280, True, id="desktop-dark", marks=pytest.mark.slow),
        pytest.param(390, False, id="phone-light", marks=pytest.mark.slow),
    ],
)
def test_the_page_fits_shows_every_chart_and_can_be_read(
    page_file: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    found = check(page_file, tmp_path, width, dark, charts=8)  # the dial among them
    assert found["columns"] == (2 if width > 1000 else 1)
    assert width < 1000 or found["answers"] < 600  # on the first screen, before any scrolling


def test_the_slider_moves_the_figures_under_the_policy_of_the_page(page: str, tmp_path: Path) -> None:
    """The page as it is, with a script of its own beside it that the policy must refuse."""
    place = tmp_path / "page.html"
    place.write_text(
        page.replace("</body>", "<script>document.title = 'run'</script></body>"), encoding="utf-8"
    )
    dom, complaints = dumped(place, 1280, False, tmp_path / "profile")
    assert re.search(r'id="emphasis"[^>]*>', dom) and "disabled" not in re.findall(r"<input[^>]*>", dom)[0]
    assert "<title>run" not in dom and "Content Security Policy" in complaints
    turned = page.replace("slider.disabled = false;", "slider.disabled = false; slider.value = 99; turn();")
    place.write_text(turned.replace('<meta http-equiv="Content-Security-Policy"', "<meta"), encoding="utf-8")
    dom, complaints = dumped(place, 1280, False, tmp_path / "profile")
    figures = json.loads(unescape(re.findall(r"data-figures='([^']+)'", page)[0]))["regions"]
    for name in ("mae", "coverage", "width"):
        assert f'data-region="few" data-figure="{name}">{figures["few"][name][-1]}</td>' in dom
    assert complaints == "" and re.search(r'id="emphasis-shown"[^>]*>1<', dom)


def test_a_ranking_of_methods_fits_on_a_phone(ranking: Path, tmp_path: Path) -> None:
    check(ranking, tmp_path, 390, True, charts=2)
