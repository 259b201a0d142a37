"""The oracle: a Llama in plain numpy, float64, one head and one query at a time; and each method's scores by loops over tokens.
It shares no code with what it judges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Visible = Callable[[int, int, int, "Layer"], npt.NDArray[np.bool_]]
"""(layer, kv head, row, what the layer has so far) to bool [row + 1]: which tokens that row's queries of that head see."""


class Layer:
    """Queries [heads, tokens, size], keys and values [kv_heads, tokens, size] of one layer; filled before attention runs."""

    def __init__(self, queries: Array, keys: Array, values: Array) -> None:
        self.queries, self.keys, self.values = queries, keys, values

    def group(self, head: int) -> range:
        """The query heads that read a KV head."""
        each = len(self.queries) // len(self.keys)
        return range(head * each, (head + 1) * each)


def everything(layer: int, head: int, row: int, at: Layer) -> npt.NDArray[np.bool_]:
    return np.ones(row + 1, bool)


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max())
    return np.asarray(powers / powers.sum(), np.float64)


def attend(query: Array, keys: Array, values: Array, seen: npt.NDArray[np.bool_], scale: float) -> Array:
    """One query over the tokens that it sees."""
    scores = np.array([sum(q * k for q, k in zip(query, key, strict=True)) * scale for key in keys[seen]])
    out = np.zeros(values.shape[1])
    for weight, value in zip(softmax(scores), values[seen], strict=True):
        out += weight * value
    return out


class Llama:
    """A LlamaForCausalLM's weights, run by hand."""

    def __init__(self, model: Any) -> None:
        self.weights = {name: part.double().numpy() for name, part in model.state_dict().items()}
        config = model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.size = config.hidden_size // self.heads
        self.count, self.epsilon = config.num_hidden_layers, config.rms_norm_eps
        self.base = config.rope_parameters["rope_theta"]
        self.scale = 1 / math.sqrt(self.size)
        self.layers: list[Layer] = []

    def run(self, ids: list[int], visible: Visible = everything) -> Array:
        """Logits of the last token [vocabulary]; `layers` then holds each layer's queries, keys and values."""
        hidden = self._embedded(ids)
        self.layers = []
        for number in range(self.count):
            layer = self._layer(number, hidden, list(range(len(ids))))
            self.layers.append(layer)
            mixed = np.zeros_like(layer.queries)
            for head in range(self.kv_heads):
                for row in range(len(ids)):
                    seen = visible(number, head, row, layer)
                    for mine in layer.group(head):
                        keys, values = layer.keys[head][: row + 1], layer.values[head][: row + 1]
                        mixed[mine, row] = attend(layer.queries[mine, row], keys, values, seen, self.scale)
            hidden = self._after(number, hidden, mixed)
        return self._logits(hidden)

    def over(self, ids: list[int], places: list[int], kv: list[tuple[Array, Array]]) -> Array:
        """Logits of the last of `ids`, run at these places over keys and values [kv_heads, tokens, size] of each layer, up to
        their own place each, where theirs are written first."""
        hidden = self._embedded(ids)
        for number, (keys, values) in enumerate(kv):
            layer = self._layer(number, hidden, places)
            for row, place in enumerate(places):
                keys[:, place], values[:, place] = layer.keys[:, row], layer.values[:, row]
            mixed = np.zeros_like(layer.queries)
            for head in range(self.kv_heads):
                for row, place in enumerate(places):
                    for mine in layer.group(head):
                        before = keys[head][: place + 1], values[head][: place + 1]
                        mixed[mine, row] = attend(layer.queries[mine, row], *before, np.ones(place + 1, bool), self.scale)
            hidden = self._after(number, hidden, mixed)
        return self._logits(hidden)

    def turned(self, vectors: Array, back: bool = False, places: list[int] | None = None) -> Array:
        """RoPE, pair by pair: [heads, tokens, size] at these positions; `back` undoes it."""
        out, half = np.empty_like(vectors), self.size // 2
        for token, place in enumerate(range(vectors.shape[1]) if places is None else places):
            for pair in range(half):
                angle = place * self.base ** (-2 * pair / self.size) * (-1 if back else 1)
                one, two = vectors[:, token, pair], vectors[:, token, pair + half]
                out[:, token, pair] = one * math.cos(angle) - two * math.sin(angle)
                out[:, token, pair + half] = two * math.cos(angle) + one * math.sin(angle)
        return out

    def weights_of(self, number: int, head: int, row: int) -> list[Array]:
        """Attention of each query head of the group at this row, over tokens 0 to row, all seen."""
        layer = self.layers[number]
        return [softmax(layer.keys[head][: row + 1] @ layer.queries[mine, row] * self.scale) for mine in layer.group(head)]

    def _embedded(self, ids: list[int]) -> Array:
        return np.asarray(self.weights["model.embed_tokens.weight"][ids], np.float64)

    def _layer(self, number: int, hidden: Array, places: list[int]) -> Layer:
        name = f"model.layers.{number}."
        normed = self._normed(hidden, name + "input_layernorm")
        queries, keys, values = (self._split(normed @ self._of(f"{name}self_attn.{which}_proj").T) for which in "qkv")
        return Layer(self.turned(queries, places=places), self.turned(keys, places=places), values)

    def _after(self, number: int, hidden: Array, mixed: Array) -> Array:
        name = f"model.layers.{number}."
        hidden = hidden + mixed.transpose(1, 0, 2).reshape(len(hidden), -1) @ self._of(f"{name}self_attn.o_proj").T
        normed = self._normed(hidden, name + "post_attention_layernorm")
        gate = normed @ self._of(f"{name}mlp.gate_proj").T
        up = normed @ self._of(f"{name}mlp.up_proj").T
        return np.asarray(hidden + (gate / (1 + np.exp(-gate)) * up) @ self._of(f"{name}mlp.down_proj").T, np.float64)

    def _logits(self, hidden: Array) -> Array:
        return np.asarray(self._normed(hidden[-1:], "model.norm")[0] @ self._of("lm_head").T, np.float64)

    def _of(self, name: str) -> Array:
        return np.asarray(self.weights[name + ".weight"], np.float64)

    def _split(self, flat: Array) -> Array:
        return flat.reshape(len(flat), -1, self.size).transpose(1, 0, 2)

    def _normed(self, hidden: Array, name: str) -> Array:
        mean = (hidden**2).mean(-1, keepdims=True)
        return np.asarray(hidden / np.sqrt(mean + self.epsilon) * self._of(name), np.float64)


def top(scores: list[float], room: int) -> set[int]:
    """The places of the `room` highest, of equals the first."""
    return set(sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:room])


def block_sums(scores: list[float], size: int) -> list[float]:
    return [sum(scores[start : start + size]) for start in range(0, len(scores) // size * size, size)]


def snapkv(llama: Llama, number: int, window: int, kernel: int) -> list[list[float]]:
    """[kv_heads][tokens]."""
    layer = llama.layers[number]
    tokens = layer.keys.shape[1]
    before = tokens - window
    scores = []
    for head in range(llama.kv_heads):
        mass = [0.0] * before
        for row in range(before, tokens):
            for weights in llama.weights_of(number, head, row):
                for token in range(before):
                    mass[token] += weights[token] / window / len(layer.group(head))
        half = kernel // 2
        scores.append([sum(mass[max(0, token - half) : token + half + 1]) / kernel for token in range(before)])
    return [one + [math.inf] * window for one in scores]


def tova(llama: Llama, number: int) -> list[list[float]]:
    row = llama.layers[number].keys.shape[1] - 1
    found = [weights for head in range(llama.kv_heads) for weights in llama.weights_of(number, head, row)]
    mean = [sum(weights[token] for weights in found) / len(found) for token in range(row)]
    return [[*mean, math.inf]] * llama.kv_heads


def h2o(llama: Llama, number: int) -> list[list[float]]:
    tokens = llama.layers[number].keys.shape[1]
    scores = []
    for head in range(llama.kv_heads):
        received = [0.0] * tokens
        for row in range(tokens):
            found = llama.weights_of(number, head, row)
            for token in range(row + 1):
                received[token] += sum(weights[token] for weights in found) / len(found)
        scores.append(received)
    return scores


def keydiff(llama: Llama, number: int) -> list[list[float]]:
    scores = []
    for keys in llama.layers[number].keys:
        ways = [key / math.sqrt(float(key @ key)) for key in keys]
        mean = sum(ways[1:], ways[0]) / len(ways)
        length = math.sqrt(float(mean @ mean))
        scores.append([-float(way @ mean) / length for way in ways])
    return scores


def expected(llama: Llama, number: int, ahead: int, sink: int) -> list[list[float]]:
    layer = llama.layers[number]
    tokens = layer.keys.shape[1]
    plain = llama.turned(layer.queries, back=True)[:, sink:]
    scores = []
    for head in range(llama.kv_heads):
        mass = np.zeros(tokens - sink)
        for mine in layer.group(head):
            mean = plain[mine].mean(0)
            covariance = sum(np.outer(one - mean, one - mean) for one in plain[mine]) / len(plain[mine])
            turn = np.zeros((llama.size, llama.size))
            for place in range(tokens, tokens + ahead):  # the matrix of RoPE at that place, column by column
                columns = llama.turned(np.eye(llama.size)[None], places=[place] * llama.size)[0]
                turn += columns.T / ahead
            mean, covariance = turn @ mean, turn @ covariance @ turn.T
            keys = layer.keys[head][sink:]
            mass += softmax(
                np.array([key @ mean * llama.scale + key @ covariance @ key * llama.scale**2 / 2 for key in keys])
            ) / len(layer.group(head))
        scores.append([mass[at] * float(np.linalg.norm(layer.values[head][sink + at])) for at in range(len(mass))])
    return [[math.inf] * sink + [float(score) for score in one] for one in scores]


def quest(llama: Llama, at: Layer, head: int, row: int, size: int, sealed: int) -> list[float]:
    found = []
    for mine in at.group(head):
        bounds = []
        for block in range(sealed):
            keys = at.keys[head][block * size : (block + 1) * size]
            products = [
                max(
                    at.queries[mine, row, channel] * keys[:, channel].min(),
                    at.queries[mine, row, channel] * keys[:, channel].max(),
                )
                for channel in range(llama.size)
            ]
            bounds.append(float(sum(products)))
        found.append(bounds)
    return [max(bounds) for bounds in zip(*found, strict=True)]


def oracle(llama: Llama, at: Layer, head: int, row: int, size: int, sealed: int) -> list[float]:
    total = np.zeros(row + 1)
    for mine in at.group(head):
        total += softmax(at.keys[head][: row + 1] @ at.queries[mine, row] * llama.scale)
    return block_sums([float(mass) for mass in total[: sealed * size]], size)


def inf_llm(
    llama: Llama, at: Layer, head: int, row: int, size: int, sealed: int, context: int, window: int, representatives: int
) -> list[float]:
    group = list(at.group(head))
    chosen: list[list[int]] = []
    for block in range(sealed):
        scores = []
        for token in range(block * size, (block + 1) * size):
            behind = range(token + 1, min(context, token + 1 + window))
            sums = [float(at.queries[mine, other] @ at.keys[head][token]) for mine in group for other in behind]
            scores.append(sum(sums) / len(sums) if sums else 0.0)
        chosen.append([block * size + place for place in top(scores, representatives)])
    found = []
    for mine in group:
        found.append(
            [sum(float(at.queries[mine, row] @ at.keys[head][token]) for token in tokens) / len(tokens) for tokens in chosen]
        )
    return [max(means) for means in zip(*found, strict=True)]


def gathered(llama: Llama, ids: list[int], piece: int) -> list[tuple[Array, Array]]:
    """Of each layer keys and values [kv_heads, tokens, size] of the pieces: run alone, RoPE taken out and put in again."""
    found: list[tuple[list[Array], list[Array]]] = [([], []) for _ in range(llama.count)]
    for start in range(0, len(ids), piece):
        part = ids[start : start + piece]
        llama.run(part)
        for layer, (keys, values) in zip(llama.layers, found, strict=True):
            plain = llama.turned(layer.keys, back=True)
            keys.append(llama.turned(plain, places=list(range(start, start + len(part)))))
            values.append(layer.values)
    return [(np.concatenate(keys, 1), np.concatenate(values, 1)) for keys, values in found]


def deviations(llama: Llama, ids: list[int], found: list[tuple[Array, Array]]) -> list[float]:
    """Of each token, in the second layer."""
    llama.run(ids)
    scores = []
    for token in range(len(ids)):
        squares = 0.0
        for true, other in zip((llama.layers[1].keys, llama.layers[1].values), found[1], strict=True):
            for head in range(llama.kv_heads):
                squares += sum((one - two) ** 2 for one, two in zip(true[head, token], other[head, token], strict=True))
        scores.append(math.sqrt(squares))
    return scores


def blended(llama: Llama, ids: list[int], piece: int, count: int) -> tuple[list[int], Array, list[tuple[Array, Array]]]:
    """Which `count` tokens are recomputed, the last one's logits, and each layer's keys and values."""
    kv = gathered(llama, ids, piece)
    scores = deviations(llama, ids, kv)
    others = top(scores[piece:-1], count - 1)
    places = sorted({piece + place for place in others} | {len(ids) - 1})
    return places, llama.over([ids[place] for place in places], places, kv), kv
