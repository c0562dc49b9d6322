"""Text: counts of words, where words are numbers. Strings have no dtype here, and their operators are refused.

In       (words), or (batch, words), of integers
Out      how often each known sequence of words is there
Changes  table.py's table
Next     ml.py (what is done with such counts)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.table import operator


@operator("TfIdfVectorizer", since=9, host="x")
def tf_idf_vectorizer(
    x: Any,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Any,
    ngram_indexes: Any,
    pool_int64s: Any = None,
    pool_strings: Any = None,
    weights: Any = None,
) -> Any:
    """On the host: words from one to `max_skip_count` + 1 apart, compared with the sequences of the pool."""
    if pool_strings or pool_int64s is None:
        raise UsageError("words that are strings are not computed here")
    grams: dict[tuple[int, ...], int] = {}  # a sequence of the pool -> its number
    ends = [*ngram_counts[1:], len(pool_int64s)]
    for length, (begin, end) in enumerate(zip(ngram_counts, ends), 1):
        for at in range(begin, end, length):
            grams[tuple(pool_int64s[at : at + length])] = len(grams)
    rows = x if x.ndim == 2 else x.reshape(1, -1)
    counts = np.zeros((len(rows), max(ngram_indexes) + 1), np.float32)
    for row, words in zip(counts, rows.tolist()):
        for length in range(min_gram_length, max_gram_length + 1):
            for skip in range(1, max_skip_count + 2 if length > 1 else 2):
                for start in range(len(words) - (length - 1) * skip):
                    place = grams.get(tuple(words[start : start + (length - 1) * skip + 1 : skip]))
                    if place is not None:
                        row[ngram_indexes[place]] += 1
    if mode not in ("TF", "IDF", "TFIDF"):
        raise UsageError(f"mode {mode!r}; known are TF, IDF and TFIDF")
    scale = np.ones(counts.shape[1], np.float32)
    if weights and mode != "TF":
        for place, weight in zip(ngram_indexes, weights):
            scale[place] = weight
    found = counts if mode == "TF" else (counts > 0) * scale if mode == "IDF" else counts * scale
    return found.astype(np.float32).reshape(*x.shape[:-1], -1)
