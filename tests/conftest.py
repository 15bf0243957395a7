"""Settings shared by all tests."""

import os
from pathlib import Path

import hypothesis
import matplotlib
import pytest
import torch

# Times vary too much between machines for a deadline; CI must not depend on luck.
hypothesis.settings.register_profile("dev", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")

matplotlib.use("agg")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers already share the cores


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Return the folder of development data (see CONTRIBUTING), or skip the test."""
    named = os.environ.get("TAILWISE_DATA")
    if not named:
        pytest.skip("TAILWISE_DATA is not set")
    root = Path(named)
    if not root.is_dir():
        pytest.skip(f"TAILWISE_DATA={named} is not a folder")
    return root
