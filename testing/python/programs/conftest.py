"""What the attention programs have in common."""

import pytest

import tilelang.language as T


@T.macro
def add_block(scores, top, total, out, scale):
    """A step of softmax over blocks of keys (Milakov and Gimelshein 2018): turn the products of
    queries and a block's keys into weights, and rescale the sum of weights and the result of the
    blocks before to the new maximum. `scale` is that of powers of 2."""
    rows, columns = scores.shape
    dim = out.shape[1]
    before = T.alloc_fragment((rows,), "float32")
    rescale = T.alloc_fragment((rows,), "float32")
    added = T.alloc_fragment((rows,), "float32")
    T.copy(top, before)
    T.reduce_max(scores, top, dim=1, clear=False)
    for i in T.Parallel(rows):
        rescale[i] = T.exp2((before[i] - top[i]) * scale)
    for i, j in T.Parallel(rows, columns):
        scores[i, j] = T.exp2(scores[i, j] * scale - top[i] * scale)
    T.reduce_sum(scores, added, dim=1)
    for i in T.Parallel(rows):
        total[i] = total[i] * rescale[i] + added[i]
    for i, d in T.Parallel(rows, dim):
        out[i, d] *= rescale[i]


@pytest.fixture(name="add_block")
def _add_block():
    return add_block
