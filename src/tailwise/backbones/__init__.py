"""Networks that turn inputs into features. Any other `nn.Module` that does so works as well."""

from tailwise.backbones.sentences import BiLSTMPair, PairDecoder, VectorPair, pair_features
from tailwise.backbones.tables import (
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
    "MLP",
    "Backbone",
    "BiLSTMPair",
    "Embedded",
    "PairDecoder",
    "PeriodicEmbedding",
    "PiecewiseLinearEncoding",
    "ResidualMLP",
    "TabM",
    "TableDecoder",
    "VectorPair",
    "make_backbone",
    "pair_features",
    "quantile_edges",
]
