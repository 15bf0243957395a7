"""Networks that turn inputs into features. Any other `nn.Module` that does this works as well."""

from tailwise.networks.backbones.depth import DepthNet, PixelDecoder
from tailwise.networks.backbones.images import (
    IMAGE_BACKBONES,
    ImageDecoder,
    ImageResNet,
    make_image_backbone,
)
from tailwise.networks.backbones.sentence_pairs import (
    PAIR_ENCODERS,
    BiLSTMPair,
    EncodedPair,
    PairDecoder,
    VectorPair,
    WordMean,
    make_pair_backbone,
    pair_features,
)
from tailwise.networks.backbones.tabular import (
    BACKBONES,
    MLP,
    Backbone,
    Embedded,
    PeriodicEmbedding,
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
    "PAIR_ENCODERS",
    "Backbone",
    "BiLSTMPair",
    "DepthNet",
    "Embedded",
    "EncodedPair",
    "ImageDecoder",
    "ImageResNet",
    "PairDecoder",
    "PeriodicEmbedding",
    "PiecewiseLinearEncoding",
    "PixelDecoder",
    "ResidualMLP",
    "TabM",
    "TableDecoder",
    "VectorPair",
    "WordMean",
    "make_backbone",
    "make_image_backbone",
    "make_pair_backbone",
    "pair_features",
    "quantile_edges",
]
