"""A small table to try things on, sentence pairs, and splits whose validation and test parts see the tail."""

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
from tailwise.data.splits import Split, balanced_split, label_holdout, pooled_split, random_split
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
