"""Augmentation: what it may change, what it leaves, and the same numbers for the same seed."""

from __future__ import annotations

import torch

from tailwise.images import Augmentation

LABELS = torch.arange(64.0)


def _marked(rows: int = 64, size: int = 12) -> torch.Tensor:
    """Pictures that are 1, 2, 3, ... along the columns, and 10 more in each row."""
    line = torch.arange(1, size + 1, dtype=torch.uint8)
    picture = line + 10 * torch.arange(size, dtype=torch.uint8).unsqueeze(1)
    return picture.expand(rows, size, size).unsqueeze(3).expand(rows, size, size, 3).contiguous()


def test_crops_are_shifts_of_the_padded_picture_or_its_mirror_image() -> None:
    x = _marked()
    torch.manual_seed(0)
    changed, labels = Augmentation(padding=2 / 12)(x, LABELS)
    assert labels is LABELS and changed.dtype == torch.uint8 and changed.shape == x.shape
    padded = torch.nn.functional.pad(x[0], (0, 0, 2, 2, 2, 2))
    possible = [padded[i : i + 12, j : j + 12] for i in range(5) for j in range(5)]
    possible += [picture.flip(1) for picture in possible]
    seen = [next(k for k, one in enumerate(possible) if torch.equal(one, picture)) for picture in changed]
    assert len(set(seen)) > 20 and min(seen) < 25 <= max(seen)
    torch.manual_seed(0)
    assert torch.equal(Augmentation(padding=2 / 12)(x, LABELS)[0], changed)


def test_a_rotation_by_half_a_turn_reverses_both_axes() -> None:
    x = _marked(64)
    turned = Augmentation(padding=0, mirror=False, rotation=180)
    torch.manual_seed(0)
    angle = (2 * torch.rand(64) - 1) * 180
    torch.manual_seed(0)
    changed = turned(x, LABELS)[0].float()
    near, far = angle.abs().argmin(), angle.abs().argmax()
    assert float((changed[near] - x[near].float())[3:9, 3:9].abs().mean()) < 5
    assert float((changed[far] - x[far].flip(0, 1).float())[3:9, 3:9].abs().mean()) < 5


def test_colours_change_within_their_limits_and_rectangles_are_erased() -> None:
    grey = torch.full((200, 10, 10, 3), 100, dtype=torch.uint8)
    torch.manual_seed(0)
    lit = Augmentation(padding=0, color=0.3)(grey, LABELS)[0].float()
    assert 69 <= float(lit.min()) < 80 and 120 < float(lit.max()) <= 131
    erased = Augmentation(padding=0, erase=0.5)(grey, LABELS)[0]
    share = (erased == 128).all(3).float().mean((1, 2))
    assert 70 < int((share > 0).sum()) < 130 and float(share.max()) < 0.25
