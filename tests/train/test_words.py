# SPDX-License-Identifier: Apache-2.0
"""The linear model: what the core fits is as low as numpy gets."""

import numpy as np
import pytest
from memoir._core import Error, fit_words


def examples(seed, count=120, rows=256):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 9, count)
    begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint64)
    found = random.integers(0, 40, int(lengths.sum())).astype(np.uint32)  # some twice in an example
    targets = np.zeros((count, 9), np.float32)
    targets[np.arange(count), random.integers(0, 8, count)] = 1
    targets[:, 8] = random.integers(0, 2, count)
    weights = random.random((count, 2)).astype(np.float32)
    dense = np.zeros((count, rows))
    for number, (begin, end) in enumerate(zip(begins[:-1], begins[1:], strict=True)):
        np.add.at(dense[number], found[int(begin) : int(end)], 1 / np.sqrt(max(int(end - begin), 1)))
    return found, begins, targets, weights, dense


def loss_and_slope(dense, targets, weights, matrix, bias, l2):
    outputs = dense @ matrix + bias
    classes = outputs[:, :8] - outputs[:, :8].max(axis=1, keepdims=True)
    shares = np.exp(classes) / np.exp(classes).sum(axis=1, keepdims=True)
    long = 1 / (1 + np.exp(-outputs[:, 8]))
    loss = -(weights[:, 0] * np.log((shares * targets[:, :8]).sum(axis=1))).sum()
    loss -= (weights[:, 1] * np.log(np.where(targets[:, 8] > 0, long, 1 - long))).sum()
    error = np.column_stack([shares - targets[:, :8], long - targets[:, 8]])
    error *= np.repeat(weights, [8, 1], axis=1)
    return loss + l2 * (matrix**2).sum(), dense.T @ error + 2 * l2 * matrix, error.sum(axis=0)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("l2", [0.01, 1.0])
def test_the_loss_is_least_where_the_fit_ends(seed, l2):
    found, begins, targets, weights, dense = examples(seed)
    matrix, bias = fit_words(found, begins, targets, weights, 256, l2, 500)
    matrix, bias = matrix.astype(float), bias.astype(float)
    loss, _, _ = loss_and_slope(dense, targets, weights, matrix, bias, l2)
    start, _, _ = loss_and_slope(dense, targets, weights, matrix * 0, bias * 0, l2)
    assert loss < 0.95 * start
    # Two hundred steps down from there gain next to nothing.
    least, rate = loss, 0.1
    for _ in range(200):
        _, slope, bias_slope = loss_and_slope(dense, targets, weights, matrix, bias, l2)
        other = loss_and_slope(dense, targets, weights, matrix - rate * slope, bias - rate * bias_slope, l2)[
            0
        ]
        if other < least:
            matrix, bias, least = matrix - rate * slope, bias - rate * bias_slope, other
        else:
            rate /= 2
    assert loss < 1.01 * least


def test_the_same_examples_give_the_same_weights():
    found, begins, targets, weights, _ = examples(4)
    one, two = (fit_words(found, begins, targets, weights, 256, 0.01, 80) for _ in range(2))
    assert one[0].tobytes() == two[0].tobytes() and one[1].tobytes() == two[1].tobytes()


def test_examples_that_do_not_fit_together_are_refused():
    found, begins, targets, weights, _ = examples(5)
    for wrong in (
        (found, begins[:-1], targets, weights, 256),
        (found + 256, begins, targets, weights, 256),
        (found, begins[::-1].copy(), targets, weights, 256),
        (found, begins, targets[:, :8].copy(), weights, 256),
        (found, begins, targets, weights, 300),
        (found, begins[:0], targets, weights, 256),
    ):
        with pytest.raises(Error):
            fit_words(*wrong, 0.01, 5)
