"""What users have, as arrays and tensors: tables, sentence pairs, pictures, depth maps and splits.

Other rooms also use these modules:

- `inputs`: inputs of any kind, as tensors or by rows
- `equal_rows`: repeated rows merged into weights
- `splits`: rows of the training, validation and test parts
- `writing`: files written whole or not at all
- `tables`, `sentences`, `images`, `depth`: the kinds of data
- `streams`: tables larger than memory
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
from tailwise.data.splits import (
    Split,
    balanced_split,
    dir_split,
    label_holdout,
    pooled_split,
    random_split,
)
from tailwise.data.tables.bundled import load_abalone

__all__ = [
    "Coverage",
    "PairVectors",
    "Parts",
    "SentencePairs",
    "Split",
    "Vocabulary",
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
