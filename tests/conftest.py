"""Settings shared by all tests."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import hypothesis
import matplotlib
import pytest
import torch

from tailwise.networks import ranks
from tailwise.training import steps

# Tests compare numbers to the last digits, which a GPU rounds in its own way; see `make gputest`.
if not os.environ.get("TAILWISE_TEST_GPU"):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

# Times vary too much between machines for a deadline, and a run must not depend on luck;
# HYPOTHESIS_PROFILE=explore looks for new cases.
hypothesis.settings.register_profile("fixed", deadline=None, max_examples=50, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=200)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

matplotlib.use("agg")

torch.set_num_threads(1)  # small networks gain nothing from more, and lose much on a busy machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no GPU, or not asked for: make gputest"))


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


@pytest.fixture(scope="session")
def torchvision() -> ModuleType:
    """Return torchvision."""
    from tests.picture_samples import registered_torchvision

    return registered_torchvision()


@pytest.fixture
def group_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connect this process to itself, and let code that shares with other ranks believe in another one.

    What is added up over all ranks is then this rank's own.
    """
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    meet = f"file://{tmp_path}/meet"
    torch.distributed.init_process_group("gloo", init_method=meet, rank=0, world_size=1)
    for module in (ranks, steps):
        monkeypatch.setattr(module, "rank_and_ranks", lambda: (0, 2))
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


@pytest.fixture
def connected(tmp_path: Path) -> Callable[[Callable[[Path], object]], Path]:
    """Run ranks in a new folder, and in another if their connection broke; return the folder.

    Gloo's sockets fail now and then on a busy machine. What is wrong with the code fails every time, and a
    process that dies by a signal other than gloo's abort is not tried again.
    """

    def run(ranks: Callable[[Path], object], attempts: int = 3) -> Path:
        folder = tmp_path / f"{attempts}-left"
        folder.mkdir()
        try:
            ranks(folder)
        except Exception as error:
            # Gloo's own thread aborts its process, which is then all that the parent learns: tried again
            # once. Other signals, such as that of a segmentation fault, are never gloo's.
            text = str(error).lower()
            left = attempts - 1 if "gloo" in text else attempts - 2 if "sigabrt" in text else 0
            if left < 1:
                raise
            return run(ranks, left)
        return folder

    return run
