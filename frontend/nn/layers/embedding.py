"""Embeddings: rows of a table of parameters, and sums and means of bags of them.

In       integers
Out      `Embedding`, `EmbeddingBag`
Next     linear.py
"""

from __future__ import annotations

from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn import init
from hcq.frontend.nn.layers.sizes import positive
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.parameter import Parameter, parameter_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes


def _table(
    call: str, count: int, width: int, padding_idx: int | None, given: Any, dtype: Any, device: Any
) -> tuple[Parameter, int | None]:
    """The table, whose padding row is zeros, and that row's number."""
    positive(call, num_embeddings=count, embedding_dim=width)
    if padding_idx is not None:
        if not isinstance(padding_idx, int) or not -count <= padding_idx < count:
            raise UsageError(
                f"[{call}] padding_idx {shown(padding_idx)}: the table has rows 0 to {count - 1}."
            )
        padding_idx %= count
    if given is not None:
        if not isinstance(given, Tensor) or given.shape != (count, width):
            raise UsageError(f"[{call}] _weight {shown(given)}: give a tensor of shape {(count, width)}.")
        return Parameter(given), padding_idx

    def make() -> Tensor:
        table = Tensor.randn((count, width), dtype=dtype, device=device)
        if padding_idx is None:
            return table
        rows = Tensor.arange(count, device=table.device).reshape(count, 1)
        return (rows != padding_idx).where(table, 0.0).contiguous().realize()

    return parameter_of(make), padding_idx


class _Table(Module):
    """What the two have in common."""

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    max_norm: float | None
    norm_type: float
    weight: Parameter

    def reset_parameters(self) -> None:
        """Draw the table anew.

        >>> table = nn.Embedding(3, 2, padding_idx=1)
        >>> table.reset_parameters()
        >>> table.weight[1].tolist()
        [0.0, 0.0]
        """
        init.normal_(self.weight)
        if self.padding_idx is not None:
            rows = Tensor.arange(self.num_embeddings, device=self.weight.device).reshape(-1, 1)
            self.weight.assign((rows != self.padding_idx).where(self.weight.detach(), 0.0)).realize()

    def _refuse_options(self, call: str, max_norm: Any, scale_grad_by_freq: Any, sparse: Any) -> None:
        if scale_grad_by_freq or sparse:
            raise UsageError(
                f"[{call}] scale_grad_by_freq and sparse are not offered: gradients are dense and not scaled. "
                "Leave them out."
            )
        if max_norm is not None and not max_norm > 0:
            raise UsageError(f"[{call}] max_norm {shown(max_norm)}: give a number above 0, or None.")

    def _rows(self, index: Tensor) -> Tensor:
        """The rows; those longer than max_norm are shortened in the table first, as PyTorch does."""
        if self.max_norm is not None:
            table = self.weight.detach()
            used = Tensor.zeros(self.num_embeddings, dtype=dtypes.int32, device=table.device)
            flat = index.flatten().cast(dtypes.int64)
            used = used.scatter_add(0, flat, flat.ones_like().cast(dtypes.int32)) > 0
            length = table.norm(self.norm_type, 1)
            too_long = used & (length > self.max_norm)
            scale = too_long.where(self.max_norm / (length + 1e-7), 1.0)
            self.weight.assign(table * scale.unsqueeze(1)).realize()
        rows = index.embedding(self.weight)
        if self.padding_idx is None:
            return rows
        # the padding row is read, and never trained
        return (index != self.padding_idx).unsqueeze(-1).where(rows, rows.detach())

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        parts += [f"padding_idx={self.padding_idx}"] if self.padding_idx is not None else []
        parts += [f"max_norm={self.max_norm}"] if self.max_norm is not None else []
        parts += [f"norm_type={self.norm_type}"] if self.norm_type != 2.0 else []
        return ", ".join(parts)


class Embedding(_Table):
    """A table of vectors: integers (...) -> (..., embedding_dim). It starts with normal numbers.

    padding_idx   a row that starts as zeros and is not trained
    max_norm      rows that are longer, in the norm of norm_type, are shortened in the table when they are read
    Raises        UsageError for scale_grad_by_freq and sparse

    >>> table = nn.Embedding(10, 4, padding_idx=0)
    >>> table(hcq.tensor([[1, 2, 0]])).shape, table(hcq.tensor([0])).tolist()
    ((1, 3, 4), [[0.0, 0.0, 0.0, 0.0]])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        _freeze: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self._refuse_options("Embedding", max_norm, scale_grad_by_freq, sparse)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type = max_norm, norm_type
        self.weight, self.padding_idx = _table(
            "Embedding", num_embeddings, embedding_dim, padding_idx, _weight, dtype, device
        )
        self.weight.requires_grad_(not _freeze)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None
    ) -> Embedding:
        """The layer of a table (count, width) that there is already; freeze says that it is not trained.

        >>> table = nn.Embedding.from_pretrained(Tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> table(hcq.tensor([1])).tolist(), table.weight.requires_grad
        ([[3.0, 4.0]], False)
        """
        if not isinstance(embeddings, Tensor) or embeddings.ndim != 2:
            raise UsageError(f"[from_pretrained] {shown(embeddings)}: give a tensor (count, width).")
        count, width = embeddings.shape
        made = cls(count, width, padding_idx, _weight=embeddings)
        made.weight.requires_grad_(not freeze)
        return made

    def forward(self, index: Tensor) -> Tensor:
        """Integers (...) -> (..., embedding_dim). An index beyond the table reads zeros."""
        return self._rows(index)


class EmbeddingBag(_Table):
    """The sum, the mean or the greatest of the vectors of each bag of indices.

    mode                  "sum", "mean" or "max"
    include_last_offset   offsets end with the number of indices
    padding_idx           an index that counts for nothing

    >>> bags = nn.EmbeddingBag(4, 2, mode="sum", _weight=Tensor.ones(4, 2))
    >>> bags(hcq.tensor([0, 1, 3]), hcq.tensor([0, 2])).tolist()
    [[2.0, 2.0], [1.0, 1.0]]
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self._refuse_options("EmbeddingBag", max_norm, scale_grad_by_freq, sparse)
        if mode not in ("sum", "mean", "max"):
            raise UsageError(f"[EmbeddingBag] mode {shown(mode)}: use 'sum', 'mean' or 'max'.")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type = max_norm, norm_type
        self.mode, self.include_last_offset = mode, include_last_offset
        self.weight, self.padding_idx = _table(
            "EmbeddingBag", num_embeddings, embedding_dim, padding_idx, _weight, dtype, device
        )

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Bags (bags, size), or all indices in a row with the offsets where bags begin -> (bags, embedding_dim).

        per_sample_weights   multiply the vectors, for mode "sum" alone
        """
        if per_sample_weights is not None and self.mode != "sum":
            raise UsageError("[EmbeddingBag] per_sample_weights: they are for mode='sum'.")
        if (input.ndim == 1) != (offsets is not None) or input.ndim not in (1, 2):
            raise UsageError(
                f"[EmbeddingBag] {input.shape}: give bags (bags, size), or a row of indices and offsets."
            )
        counts = input.ones_like().cast(self.weight.dtype)
        if self.padding_idx is not None:
            counts = (input != self.padding_idx).where(counts, 0.0)
        rows = self._rows(input)
        if offsets is None:
            return self._pooled(rows, counts, per_sample_weights)
        starts = offsets[:-1] if self.include_last_offset else offsets
        place = Tensor.arange(input.shape[0], device=input.device)
        after: Tensor = starts[1:].cat(
            Tensor._made_of([input.shape[0]], device=input.device).cast(starts.dtype)
        )
        member = (place >= starts.unsqueeze(1)) & (place < after.unsqueeze(1))
        spread = (starts.shape[0], *rows.shape)
        weights = None if per_sample_weights is None else per_sample_weights.expand(spread[:2])
        return self._pooled(rows.expand(spread), member.where(counts, 0.0), weights)

    def _pooled(self, rows: Tensor, counts: Tensor, weights: Tensor | None) -> Tensor:
        """(bags, size, width) and which of them count -> (bags, width)."""
        counts = counts.unsqueeze(-1)
        if self.mode == "max":
            top = (counts > 0).where(rows, float("-inf")).amax(1)
            return (counts.amax(1) > 0).where(top, 0.0)
        kept = (counts > 0).where(rows, 0.0)
        total = (kept if weights is None else kept * weights.unsqueeze(-1)).sum(1)
        return total if self.mode == "sum" else total / counts.sum(1).maximum(1.0)

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        parts += [f"max_norm={self.max_norm}"] if self.max_norm is not None else []
        parts += [f"norm_type={self.norm_type}"] if self.norm_type != 2.0 else []
        parts += [f"mode={self.mode!r}"]
        parts += [f"padding_idx={self.padding_idx}"] if self.padding_idx is not None else []
        return ", ".join(parts)
