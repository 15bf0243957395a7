"""A custom network in TailRegressor: the label of a small picture is its brightness."""

import numpy as np
import torch
from torch import nn

from tailwise import TailRegressor


class Picture(nn.Module):
    """Turns pictures into features of shape (rows, feature_dim). Any module that does so works."""

    feature_dim = 16

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


rng = np.random.default_rng(0)
brightness = rng.exponential(size=800)  # bright pictures are rare
images = (brightness[:, None, None, None] + 0.5 * rng.normal(size=(800, 1, 12, 12))).astype(np.float32)

model = TailRegressor(backbone=Picture, epochs=25, random_state=0).fit(images[:600], brightness[:600])
print(model.score_by_region(images[600:], brightness[600:]).round(3).to_string(index=False))
