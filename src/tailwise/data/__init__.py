"""The data room's public door: a bundled table, streams of rows, splits, and sentence pairs.

- `sentences`, `depth`: sentence pairs and depth maps
"""

from tailwise.data.sentences.pairs import (
    PairVectors,
    Parts,
    SentencePairs,
    dir_shots,
    load_sentence_vectors,
    load_stsb_dir,
    overlap,
    read_pairs,
)
from tailwise.data.sentences.vectors import vector_words, word_vectors
from tailwise.data.sentences.words import Coverage, Vocabulary, coverage, length_buckets, lengths, tokenize
from tailwise.streams import FrameRows, ParquetRows, RowStream, as_row_stream
from tailwise.tables.bundled import load_abalone
from tailwise.tables.split import (
    Split,
    balanced_split,
    dir_split,
    label_holdout,
    pooled_split,
    random_split,
)

__all__ = [
    "Coverage",
    "FrameRows",
    "PairVectors",
    "ParquetRows",
    "Parts",
    "RowStream",
    "SentencePairs",
    "Split",
    "Vocabulary",
    "as_row_stream",
    "balanced_split",
    "coverage",
    "dir_shots",
    "dir_split",
    "label_holdout",
    "length_buckets",
    "lengths",
    "load_abalone",
    "load_sentence_vectors",
    "load_stsb_dir",
    "overlap",
    "pooled_split",
    "random_split",
    "read_pairs",
    "tokenize",
    "vector_words",
    "word_vectors",
]
