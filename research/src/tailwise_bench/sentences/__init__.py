"""Sentence pairs: read them and turn them into word ids or vectors.

- `pairs`: pairs of sentences with a score, such as STS-B-DIR
- `words`: tokenizer and vocabulary
- `batches`: batches of similar length
- `vectors`: word vectors from files
"""
