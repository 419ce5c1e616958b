"""MiniLM: the six layers of the default encoder, without sentence-transformers.

sentence-transformers and transformers take seconds to import and to look up a model; reading its
file takes a fraction of one. `tests/text/test_minilm.py` compares the vectors with those of
sentence-transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MiniLM"]

_HEADS, _LAYERS = 12, 6
_EPS = 1e-12  # epsilon of the layer norms


class _Parameters(nn.Module):
    """Weight and bias from a file, without random initialisation."""

    weight: Tensor
    bias: Tensor

    def __init__(self, file: Any, *names: str) -> None:
        super().__init__()
        for part in ("weight", "bias"):
            rows = [file.get_tensor(f"{name}.{part}") for name in names]
            joined = rows[0] if len(rows) == 1 else torch.cat(rows)
            self.register_parameter(part, nn.Parameter(joined, requires_grad=False))


class _Linear(_Parameters):
    """y = W x + b; several names are stacked as rows."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


class _Norm(_Parameters):
    """Layer norm."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, _EPS)


class _Layer(nn.Module):
    """One transformer layer, normalised after each half (Devlin et al. 2019, section 3)."""

    def __init__(self, file: Any, name: str) -> None:
        super().__init__()
        own = f"{name}.attention.self"
        self.read = _Linear(file, *(f"{own}.{part}" for part in ("query", "key", "value")))
        self.mix = _Linear(file, f"{name}.attention.output.dense")
        self.mixed_norm = _Norm(file, f"{name}.attention.output.LayerNorm")
        self.widen = _Linear(file, f"{name}.intermediate.dense")
        self.narrow = _Linear(file, f"{name}.output.dense")
        self.output_norm = _Norm(file, f"{name}.output.LayerNorm")

    def forward(
        self,
        hidden: Tensor,  # [b, L, d]
        mask: Tensor,  # [b, 1, 1, L] bool: pieces that may be attended to
    ) -> Tensor:
        b, length, width = hidden.shape
        parts = self.read(hidden).view(b, length, 3, _HEADS, width // _HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        mixed = self.mix(mixed.transpose(1, 2).reshape(b, length, width))
        hidden = self.mixed_norm(hidden + mixed)
        return self.output_norm(hidden + self.narrow(functional.gelu(self.widen(hidden))))


class MiniLM(nn.Module):
    """all-MiniLM-L6-v2 with the interface of a `SentenceTransformer`.

    Attributes:
        tokenizer: `tokenizers.Tokenizer` of its vocabulary, without truncation and padding.
        max_seq_length: Maximum pieces of a window, special tokens included.
    """

    max_seq_length = 256

    def __init__(self, folder: str | Path) -> None:
        """Read the layers.

        Args:
            folder: Folder of the model, with `model.safetensors` and `tokenizer.json`.
        """
        super().__init__()
        from safetensors import safe_open
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        with safe_open(str(Path(folder) / "model.safetensors"), framework="pt") as file:
            words, place, segment = (
                nn.Parameter(file.get_tensor(f"embeddings.{name}_embeddings.weight"), False)
                for name in ("word", "position", "token_type")
            )
            self.words, self.place, self.segment = words, place, segment
            self.norm = _Norm(file, "embeddings.LayerNorm")
            self.layers = nn.ModuleList(
                _Layer(file, f"encoder.layer.{number}") for number in range(_LAYERS)
            )

    def forward(self, features: dict[str, Any]) -> dict[str, Tensor]:
        """Return the vectors of windows of pieces.

        Args:
            features: `input_ids` [b, L] int64 and `attention_mask` [b, L], 0 for padding.

        Returns:
            `token_embeddings` [b, L, d] of the last layer, and `sentence_embedding` [b, d],
            their mean without padding, of unit length; d is 384.
        """
        ids, kept = features["input_ids"], features["attention_mask"]
        words = functional.embedding(ids, self.words)
        hidden = self.norm(words + self.segment[0] + self.place[: ids.shape[1]])
        mask = kept.bool()[:, None, None, :]
        for layer in self.layers:
            hidden = layer(hidden, mask)
        hidden = hidden.float()  # sums in lower precision lose digits
        share = kept[..., None].to(hidden.dtype)
        pooled = (hidden * share).sum(1) / share.sum(1).clamp(min=1e-9)
        return {
            "token_embeddings": hidden,
            "sentence_embedding": functional.normalize(pooled, dim=1),
        }
