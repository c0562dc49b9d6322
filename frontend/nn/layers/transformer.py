"""Transformers: encoders and decoders of attention and small networks.

In       sequences (length, batch, d_model), or the batch first with batch_first
Out      `TransformerEncoderLayer`, `TransformerEncoder`, `TransformerDecoderLayer`, `TransformerDecoder`, `Transformer`
Next     attention.py
Source   Vaswani et al. 2017
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.nn import init
from hcq.frontend.nn.containers import ModuleList
from hcq.frontend.nn.layers.attention import MultiheadAttention, allowed
from hcq.frontend.nn.layers.dropout import Dropout
from hcq.frontend.nn.layers.linear import Linear
from hcq.frontend.nn.layers.norm import LayerNorm
from hcq.frontend.nn.layers.sizes import positive
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType

Activation = Any  # "relu", "gelu", or a function of a tensor


def _function(call: str, activation: Activation) -> Callable[[Tensor], Tensor]:
    known: dict[str, Callable[[Tensor], Tensor]] = {"relu": lambda x: x.relu(), "gelu": lambda x: x.gelu()}
    if isinstance(activation, str) and activation in known:
        return known[activation]
    if not callable(activation):
        raise UsageError(
            f"[{call}] activation {activation!r}: use 'relu', 'gelu', or a function of a tensor."
        )
    return activation  # type: ignore[no-any-return]


class _Layer(Module):
    """What an encoder's layer and a decoder's layer have in common."""

    norm1: LayerNorm
    norm2: LayerNorm
    norm3: LayerNorm
    dropout1: Dropout
    dropout2: Dropout
    dropout3: Dropout

    attends_to_memory = False

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        where: Any = {"device": device, "dtype": dtype}
        heads: Any = {"dropout": dropout, "bias": bias, "batch_first": batch_first, **where}
        self.self_attn = MultiheadAttention(d_model, nhead, **heads)
        if self.attends_to_memory:
            self.multihead_attn = MultiheadAttention(d_model, nhead, **heads)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **where)
        self.norm_first = norm_first
        places = (1, 2, 3) if self.attends_to_memory else (1, 2)  # one for each part of the layer
        for place in places:
            setattr(self, f"norm{place}", LayerNorm(d_model, layer_norm_eps, bias=bias, **where))
        for place in places:
            setattr(self, f"dropout{place}", Dropout(dropout))
        self._set_activation(activation)

    def _attended(self, attention: Module, x: Tensor, to: Tensor, *masks: Any) -> Tensor:
        """What x attends to. masks: of padding, of places, whether these are causal."""
        padding, mask, causal = masks
        return attention(
            x, to, to, key_padding_mask=padding, need_weights=False, attn_mask=mask, is_causal=causal
        )[0]

    def _fed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self._activation(self.linear1(x))))

    def _set_activation(self, activation: Activation) -> None:
        function = _function(type(self).__name__, activation)
        if isinstance(activation, Module):
            self.activation = activation
        self._activation = function


class TransformerEncoderLayer(_Layer):
    """x + attention(x), then x + network(x), each normalised after (or before, with norm_first).

    >>> layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    >>> layer(Tensor.ones(2, 5, 8)).shape
    (2, 5, 8)
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Of the same shape; masks as MultiheadAttention has them."""

        def attended(x: Tensor) -> Tensor:
            return self.dropout1(
                self._attended(self.self_attn, x, x, src_key_padding_mask, src_mask, is_causal)
            )

        if self.norm_first:
            x = src + attended(self.norm1(src))
            return x + self.dropout2(self._fed_forward(self.norm2(x)))
        x = self.norm1(src + attended(src))
        return self.norm2(x + self.dropout2(self._fed_forward(x)))


class TransformerDecoderLayer(_Layer):
    """x + attention(x), x + attention(x to memory), x + network(x), each normalised after (or before).

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(Tensor.zeros(3, 4, 8), Tensor.zeros(3, 5, 8)).shape
    (3, 4, 8)
    """

    attends_to_memory = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Of the shape of tgt; memory is what an encoder gave."""

        def to_itself(x: Tensor) -> Tensor:
            masks = tgt_key_padding_mask, tgt_mask, tgt_is_causal
            return self.dropout1(self._attended(self.self_attn, x, x, *masks))

        def to_memory(x: Tensor) -> Tensor:
            masks = memory_key_padding_mask, memory_mask, memory_is_causal
            return self.dropout2(self._attended(self.multihead_attn, x, memory, *masks))

        x = tgt
        if self.norm_first:
            x = x + to_itself(self.norm1(x))
            x = x + to_memory(self.norm2(x))
            return x + self.dropout3(self._fed_forward(self.norm3(x)))
        x = self.norm1(x + to_itself(x))
        x = self.norm2(x + to_memory(x))
        return self.norm3(x + self.dropout3(self._fed_forward(x)))


class _Stack(Module):
    """Copies of a layer on top of each other, and a norm at the end if one is given."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None):
        call = type(self).__name__
        positive(call, num_layers=num_layers)
        if not isinstance(layer, Module):
            raise UsageError(f"[{call}] {layer!r}: give a layer.")
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm


class TransformerEncoder(_Stack):
    """Several encoder layers: copies of one, which start alike.

    >>> encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)
    >>> len(encoder.layers), encoder(Tensor.zeros(5, 3, 8)).shape
    (2, (5, 3, 8))
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ):
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Of the same shape; is_causal describes the mask and changes nothing."""
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(_Stack):
    """Several decoder layers: copies of one, which start alike.

    >>> decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2)
    >>> decoder(Tensor.zeros(4, 3, 8), Tensor.zeros(5, 3, 8)).shape
    (4, 3, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Of the shape of tgt; what is said to be causal describes the masks and changes nothing."""
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
            )  # fmt: skip
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder, or those that are given. It starts with Glorot's uniform numbers.

    >>> model = nn.Transformer(8, 2, 1, 1, dim_feedforward=16)
    >>> model(Tensor.zeros(5, 3, 8), Tensor.zeros(4, 3, 8)).shape
    (4, 3, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        shape: Any = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        where: Any = {"device": device, "dtype": dtype}
        options: Any = {"batch_first": batch_first, "norm_first": norm_first, "bias": bias, **where}
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*shape, **options),
            num_encoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias, **where),
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*shape, **options),
            num_decoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias, **where),
        )
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """What the decoder makes of tgt, with what the encoder made of src."""
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
        )

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: str | None = None, dtype: DType | None = None
    ) -> Tensor:
        """(sz, sz): minus infinity for what comes later, else zero.

        >>> nn.Transformer.generate_square_subsequent_mask(3).tolist()
        [[0.0, -inf, -inf], [0.0, 0.0, -inf], [0.0, 0.0, 0.0]]
        """
        positive("generate_square_subsequent_mask", sz=sz)
        later = Tensor.ones(sz, sz, device=device).triu(1) > 0
        mask = allowed(later, "generate_square_subsequent_mask", Tensor.zeros(1, dtype=dtype, device=device))
        assert mask is not None
        return mask
