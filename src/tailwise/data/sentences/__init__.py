"""Sentence pairs: reading them, and turning them into word ids or vectors.

- `pairs`: pairs of sentences with a score, STS-B-DIR among them
- `words`: tokenizer, vocabulary, batches by length
- `vectors`: word vectors from files
"""
