"""Data: sets of samples, and the batches that a training loop goes through, under PyTorch's names.

In       samples: tensors, or objects with __getitem__ and __len__, or generators
Out      `Dataset`, `TensorDataset`, `Subset`, `ConcatDataset`, `random_split`, samplers, `DataLoader`
Changes  the random counter of the CPU, where samples are shuffled
Next     ../../examples/digits.py

Batches are made in the program's own thread: `num_workers` and `pin_memory` may be given, and have no effect. PyTorch's
files of this package, `dataset`, `dataloader` and `sampler`, have these names, too (../torch/modules.py).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor


class Dataset:
    """Samples by number: a subclass has __getitem__, and __len__ where it is to be shuffled or split.

    >>> class Squares(Dataset):
    ...     def __getitem__(self, index):
    ...         return float(index * index)
    ...     def __len__(self):
    ...         return 5
    >>> [batch.tolist() for batch in DataLoader(Squares(), batch_size=2)]
    [[0.0, 1.0], [4.0, 9.0], [16.0]]
    """

    def __getitem__(self, index: Any) -> Any:
        raise UsageError(
            f"[{type(self).__name__}] has no __getitem__: define it as __getitem__(self, index)."
        )

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Samples one after the other: a subclass has __iter__.

    >>> class Counted(IterableDataset):
    ...     def __iter__(self):
    ...         return iter([1.0, 2.0, 3.0])
    >>> [batch.tolist() for batch in DataLoader(Counted(), batch_size=2)]
    [[1.0, 2.0], [3.0]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise UsageError(f"[{type(self).__name__}] has no __iter__: define it.")


class TensorDataset(Dataset):
    """Rows of tensors of one length: sample i is row i of each.

    >>> rows = TensorDataset(Tensor([[1.0, 2.0], [3.0, 4.0]]), hcq.tensor([0, 1]))
    >>> x, y = rows[1]
    >>> len(rows), x.tolist(), y.item()
    (2, [3.0, 4.0], 1)
    """

    def __init__(self, *tensors: Tensor):
        if not tensors or any(not isinstance(each, Tensor) or not each.ndim for each in tensors):
            raise UsageError("[TensorDataset] give tensors with at least one axis.")
        if len({each.shape[0] for each in tensors}) > 1:
            raise UsageError(
                f"[TensorDataset] tensors of {[each.shape[0] for each in tensors]} rows: all need as many."
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(each[index] for each in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class Subset(Dataset):
    """Some of the samples of a set, by their numbers.

    >>> part = Subset([10, 20, 30], [2, 0])
    >>> len(part), part[0]
    (2, 30)
    """

    def __init__(self, dataset: Any, indices: Sequence[int]):
        self.dataset, self.indices = dataset, list(indices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (list, tuple)):
            return self.dataset[[self.indices[each] for each in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """Several sets, one after the other.

    >>> both = ConcatDataset([[10, 20], [30]])
    >>> len(both), both[2]
    (3, 30)
    """

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise UsageError("[ConcatDataset] the list is empty. Give data sets.")
        self.cumulative_sizes = list(accumulate(len(each) for each in self.datasets))

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        index %= len(self)
        place = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[place][index - (self.cumulative_sizes[place - 1] if place else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None) -> list[Subset]:
    """Parts of a set, drawn at random: of these lengths, or of these shares, which sum to 1.

    >>> from hcq.torch.utils.data import TensorDataset, random_split
    >>> [len(part) for part in random_split(TensorDataset(Tensor.arange(10)), [0.7, 0.3])]
    [7, 3]
    """
    count = len(dataset)
    if all(0 <= each <= 1 for each in lengths) and abs(sum(lengths) - 1) < 1e-6:
        sizes = [int(count * share) for share in lengths]
        for place in range(count - sum(sizes)):
            sizes[place % len(sizes)] += 1
    else:
        sizes = [int(each) for each in lengths]
    if sum(sizes) != count or any(size < 0 for size in sizes):
        raise UsageError(
            f"[random_split] lengths {list(lengths)} of {count} samples: they must sum to that, or to 1."
        )
    order = _permutation(count)
    ends = list(accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends)]


def _permutation(count: int) -> list[int]:
    """Numbers in random order; Tensor.manual_seed says which."""
    return Tensor.randperm(count, device="CPU").tolist() if count else []


class Sampler:
    """In which order samples are taken: a subclass has __iter__.

    >>> class Backwards(Sampler):
    ...     def __iter__(self):
    ...         return iter([2, 1, 0])
    >>> [batch.tolist() for batch in DataLoader([1.0, 2.0, 3.0], batch_size=2, sampler=Backwards())]
    [[3.0, 2.0], [1.0]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise UsageError(f"[{type(self).__name__}] has no __iter__: define it.")


class SequentialSampler(Sampler):
    """One after the other.

    >>> list(SequentialSampler([7, 8, 9]))
    [0, 1, 2]
    """

    def __init__(self, data_source: Any):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """In random order, each once; or num_samples of them, drawn anew each time with `replacement`.

    >>> sorted(RandomSampler(range(4))), len(list(RandomSampler(range(4), replacement=True, num_samples=9)))
    ([0, 1, 2, 3], 9)
    """

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ):
        self.data_source, self.replacement = data_source, replacement
        self.num_samples = len(data_source) if num_samples is None else num_samples

    def __iter__(self) -> Iterator[int]:
        count = len(self.data_source)
        if self.replacement:
            return iter(Tensor.randint(0, count, (self.num_samples,), device="CPU").tolist())
        rounds = -(-self.num_samples // max(1, count))
        return islice((each for _ in range(rounds) for each in _permutation(count)), self.num_samples)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Some of the samples, by their numbers, in random order.

    >>> sorted(SubsetRandomSampler([3, 5, 8]))
    [3, 5, 8]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None):
        self.indices = indices

    def __iter__(self) -> Iterator[int]:
        return iter([self.indices[place] for place in _permutation(len(self.indices))])

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """num_samples of the samples, each as often as its weight says; without `replacement` each at most once.

    >>> list(WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None
    ):
        self.weights = weights if isinstance(weights, Tensor) else Tensor(list(weights), device="CPU")
        self.num_samples, self.replacement = num_samples, replacement

    def __iter__(self) -> Iterator[int]:
        drawn: list[int] = self.weights.float().multinomial(self.num_samples, self.replacement).tolist()
        return iter(drawn)

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """The samples of another sampler in lists of batch_size; drop_last leaves a shorter last one out.

    >>> list(BatchSampler(SequentialSampler(range(5)), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        if not is_whole(batch_size) or batch_size < 1:
            raise UsageError(f"[BatchSampler] batch_size {shown(batch_size)}: give an int, 1 or more.")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        numbers = iter(self.sampler)
        while batch := list(islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


def get_worker_info() -> None:
    """None: the program's own thread makes batches.

    >>> hcq.torch.utils.data.get_worker_info() is None
    True
    """


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples as one: tensors, arrays and numbers become a tensor, in tuples, lists and dicts, too.

    >>> x, y = default_collate([(1.0, 2), (3.0, 4)])
    >>> x.tolist(), y.tolist()
    ([1.0, 3.0], [2, 4])
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return Tensor.stack(list(batch))
    if hasattr(first, "__array__"):
        import numpy as np

        return Tensor(np.stack([np.asarray(each) for each in batch]))
    if isinstance(first, (bool, int, float)):
        return Tensor._made_of(list(batch))
    if isinstance(first, str):
        return list(batch)
    if isinstance(first, dict):
        return {key: default_collate([each[key] for each in batch]) for key in first}
    if isinstance(first, (tuple, list)):
        parts = [default_collate(part) for part in zip(*batch)]
        if hasattr(first, "_fields"):
            return type(first)(*parts)
        return parts if isinstance(first, list) else tuple(parts)
    raise UsageError(
        f"[default_collate] {shown(first)}: give tensors, arrays, numbers, strings, or a collate_fn."
    )


class DataLoader:
    """Batches of a data set, in order or shuffled anew each time it is gone through.

    sampler         in which order, instead of `shuffle`; batch_sampler says batches
    collate_fn      how samples become a batch; `default_collate` unless given
    drop_last       leaves a shorter last batch out: a recorded step (jit) needs one shape
    batch_size      None gives samples as they are

    >>> from hcq.torch.utils.data import DataLoader, TensorDataset
    >>> loader = DataLoader(TensorDataset(Tensor([1.0, 2.0, 3.0]), hcq.tensor([0, 1, 0])), batch_size=2)
    >>> [(x.tolist(), y.tolist()) for x, y in loader]
    [([1.0, 2.0], [0, 1]), ([3.0], [0])]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        **ignored: Any,
    ):
        known = {"timeout", "worker_init_fn", "multiprocessing_context", "generator", "prefetch_factor",
                 "persistent_workers", "pin_memory_device", "in_order"}  # fmt: skip
        if set(ignored) - known:
            raise UsageError(f"[DataLoader] it takes no {', '.join(sorted(set(ignored) - known))}.")
        if shuffle and sampler is not None:
            raise UsageError("[DataLoader] shuffle and sampler both say the order. Give one of them.")
        is_stream = isinstance(dataset, IterableDataset)
        if is_stream and (shuffle or sampler is not None or batch_sampler is not None):
            raise UsageError(
                "[DataLoader] an IterableDataset has its own order: give no shuffle and no sampler."
            )
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.collate_fn = collate_fn or (
            default_collate if batch_size is not None else (lambda sample: sample)
        )
        self._takes_rows = collate_fn is None
        self.sampler: Any = None
        self.batch_sampler: Any = batch_sampler
        if not is_stream and batch_sampler is None:
            self.sampler = sampler or (RandomSampler(dataset) if shuffle else SequentialSampler(dataset))
            if batch_size is not None:
                self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            samples = iter(self.dataset)
            if self.batch_size is None:
                yield from map(self.collate_fn, samples)
                return
            while batch := list(islice(samples, self.batch_size)):
                if len(batch) == self.batch_size or not self.drop_last:
                    yield self.collate_fn(batch)
        elif self.batch_sampler is None:
            for number in self.sampler:
                yield self.collate_fn(self.dataset[number])
        else:
            for numbers in self.batch_sampler:
                yield self._batch(list(numbers))

    def _batch(self, numbers: list[int]) -> Any:
        inner = self.dataset.dataset if isinstance(self.dataset, Subset) else self.dataset
        if self._takes_rows and isinstance(inner, TensorDataset):  # rows of tensors need no stacking
            return self.dataset[numbers]
        return self.collate_fn([self.dataset[number] for number in numbers])

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            raise UsageError("[DataLoader] an IterableDataset has no length.")
        return len(self.batch_sampler if self.batch_sampler is not None else self.sampler)
