"""A small table to try things on, sentence pairs, and splits whose validation and test parts see the tail."""

from tailwise.data.sentences import (
    PairVectors,
    Parts,
    SentencePairs,
    load_sentence_vectors,
    load_stsb_dir,
    overlap,
    read_pairs,
)
from tailwise.data.splits import Split, balanced_split, label_holdout, random_split
from tailwise.data.tables import load_abalone
from tailwise.data.word_vectors import vector_words, word_vectors
from tailwise.data.words import Vocabulary, lengths, tokenize

__all__ = [
    "PairVectors",
    "Parts",
    "SentencePairs",
    "Split",
    "Vocabulary",
    "balanced_split",
    "label_holdout",
    "lengths",
    "load_abalone",
    "load_sentence_vectors",
    "load_stsb_dir",
    "overlap",
    "random_split",
    "read_pairs",
    "tokenize",
    "vector_words",
    "word_vectors",
]
