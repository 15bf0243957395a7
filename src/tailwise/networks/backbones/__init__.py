"""Networks that turn inputs into features. Any other `nn.Module` that does this works as well."""

from tailwise.networks.backbones.backbone import Backbone
from tailwise.networks.backbones.images import (
    IMAGE_BACKBONES,
    ImageDecoder,
    ImageResNet,
    make_image_backbone,
)
from tailwise.networks.backbones.realmlp import RealMLP
from tailwise.networks.backbones.tabular import (
    BACKBONES,
    MLP,
    Embedded,
    PiecewiseLinearEncoding,
    ResidualMLP,
    TableDecoder,
    TabM,
    make_backbone,
    quantile_edges,
)

__all__ = [
    "BACKBONES",
    "IMAGE_BACKBONES",
    "MLP",
    "Backbone",
    "Embedded",
    "ImageDecoder",
    "ImageResNet",
    "PiecewiseLinearEncoding",
    "RealMLP",
    "ResidualMLP",
    "TabM",
    "TableDecoder",
    "make_backbone",
    "make_image_backbone",
    "quantile_edges",
]
