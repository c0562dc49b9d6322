"""Data sets and batches: which samples, in which order, in which shape."""

from __future__ import annotations

import numpy as np
import pytest

from hcq import Tensor
from hcq.errors import UsageError
from hcq.torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)


class Squares(Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, index):
        return {"x": np.float32([index, index]), "y": index * index}


def test_samples_become_batches_of_arrays_and_numbers():
    batches = list(DataLoader(Squares(), batch_size=3))
    assert len(batches) == 3 == len(DataLoader(Squares(), batch_size=3))
    assert batches[1]["x"].tolist() == [[3, 3], [4, 4], [5, 5]] and batches[2]["y"].tolist() == [36]
    assert len(list(DataLoader(Squares(), batch_size=3, drop_last=True))) == 2


def test_shuffling_takes_every_sample_once_and_a_seed_says_the_order():
    data = TensorDataset(Tensor.arange(20))
    orders = []
    for _ in range(2):
        Tensor.manual_seed(3)
        loader = DataLoader(data, batch_size=6, shuffle=True, num_workers=2)
        orders += [[n for (batch,) in loader for n in batch.tolist()] for _ in range(2)]
    assert sorted(orders[0]) == list(range(20)) and orders[0] != orders[1]
    assert orders[:2] == orders[2:]
    Tensor.manual_seed(0)


def test_sets_are_split_joined_and_streamed():
    data = TensorDataset(Tensor.arange(10))
    parts = random_split(data, [0.5, 0.5])
    taken = sorted(n for part in parts for (batch,) in DataLoader(part, batch_size=2) for n in batch.tolist())
    assert taken == list(range(10)) and [len(part) for part in parts] == [5, 5]
    both = ConcatDataset([Subset(Squares(), [2]), Squares()])
    assert [both[place]["y"] for place in (0, 1, -1)] == [4, 0, 36]

    class Stream(IterableDataset):
        def __iter__(self):
            return iter([1.0, 2.0, 3.0])

    assert [batch.tolist() for batch in DataLoader(Stream(), batch_size=2)] == [[1.0, 2.0], [3.0]]


def test_mistakes_are_answered_with_sentences():
    with pytest.raises(UsageError, match=r"\[TensorDataset\] tensors of \[2, 3\] rows"):
        TensorDataset(Tensor.zeros(2), Tensor.zeros(3))
    with pytest.raises(UsageError, match=r"\[random_split\] lengths \[3, 3\] of 7"):
        random_split(Squares(), [3, 3])
    with pytest.raises(UsageError, match=r"\[DataLoader\] it takes no batchsize"):
        DataLoader(Squares(), batchsize=3)
