"""The Cache of transformers that runs on a batch: what generate() and forward passes see of it.
Made by the engine; it checks what every forward pass is given and never asks the manager for anything itself."""

from __future__ import annotations

import inspect
from types import TracebackType
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from tenure.checks import integer
from tenure.engines.batch import Batch
from tenure.errors import CapacityError, ConfigError, IdentityError, TokenError

__all__ = ["TenureCache", "announce"]

_OF_TOKENS = {"input_ids", "attention_mask", "position_ids", "cache_position"}
"""The tensors a forward pass may be given: any other could change what KV holds without a token that says so."""


class TenureCache(Cache):
    """KV of running rows, made by `Engine.cache`. Close it (or use `with`): then what was computed can be hit."""

    def __init__(self, batch: Batch, body: Any) -> None:
        super().__init__(layers=[_Layer(batch, index) for index in range(batch.arena.layout.layers)])
        self._batch = batch
        self._body = body
        self._takes_positions = "position_ids" in inspect.signature(body.forward).parameters

    @property
    def refused(self) -> list[CapacityError | None]:
        """For each row why it runs without reuse, None when it does not."""
        return [row.refused for row in self._batch.rows]

    @property
    def hit_tokens(self) -> list[int]:
        """For each row how many tokens of its prompt were cached. Rows run in step: the fewest columns decide what is skipped."""
        return [row.hit for row in self._batch.rows]

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Row i becomes what row beam_idx[i] was."""
        self._batch.take(beam_idx.tolist())

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps these rows, in this order."""
        self._batch.take(torch.arange(len(self._batch.rows))[indices.cpu()].tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row `repeats` times."""
        integer("repeats", repeats, 1, 1 << 20)
        self._batch.take([row for row in range(len(self._batch.rows)) for _ in range(repeats)])

    def crop(self, tokens_to_remove: int) -> None:
        """Takes the last columns back: `tokens_to_remove` is 0 or the negated count, as in transformers."""
        if tokens_to_remove > 0:
            raise TokenError(f"crop({tokens_to_remove}): 0 or the negated number of columns is needed, or truncate(length)")
        if tokens_to_remove:
            self._batch.truncate(self._batch.done + tokens_to_remove)

    def truncate(self, length: int) -> None:
        """Keeps the first `length` columns. Raises TokenError when there are fewer."""
        self._batch.truncate(length)

    def reset(self) -> None:
        """Not for this cache: it is made for its prompts. Raises ConfigError."""
        raise ConfigError("a cache is made for its prompts: close it and ask the engine for another")

    def fork(self) -> TenureCache:
        """Another cache that goes on from here by itself. The rest of the prompt, if any, is this cache's to feed."""
        return TenureCache(self._batch.fork(), self._body)

    def close(self, *, failed: bool = False) -> None:
        """Commits what was computed and releases every sequence; the second time it does nothing."""
        self._batch.close(failed=failed)

    def __enter__(self) -> TenureCache:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(failed=kind is not None)

    def announce(self, body: Any, given: dict[str, Any]) -> dict[str, Any]:
        """Hears what the forward pass that is about to run is given; returns what it should be given. A first pass that is
        given whole prompts (assisted decoding does so) is left the columns that are not cached.

        Raises TokenError, ConfigError or IdentityError for what would make KV that its tokens do not name.
        """
        if body is not self._body:
            raise IdentityError("this cache was made for another model")
        strange = [name for name, value in given.items() if isinstance(value, torch.Tensor) and name not in _OF_TOKENS]
        ids = given.get("input_ids")
        if strange or not isinstance(ids, torch.Tensor) or ids.ndim != 2:
            raise ConfigError(
                f"KV is cached by its tokens: input_ids [rows, columns] are needed, not {', '.join(strange) or ids}"
            )
        batch = self._batch
        count, rest = divmod(ids.shape[0], len(batch.rows))
        if count > 1 and not rest and not batch.fed:  # beams, or several answers to one prompt
            self.batch_repeat_interleave(count)
        elif ids.shape[0] != len(batch.rows):
            raise TokenError(f"{ids.shape[0]} rows are fed: the cache has {len(batch.rows)}")
        mask, positions = given.get("attention_mask"), given.get("position_ids")
        if batch.done and not batch.fed and self._whole(ids, mask, positions):
            ids = ids[:, batch.done :]
            positions = None if positions is None else positions[:, batch.done :]
        positions = self._check_places(ids, mask, positions)
        batch.begin(ids.tolist())
        return given | {"input_ids": ids} | ({} if positions is None else {"position_ids": positions})

    def _whole(self, ids: torch.Tensor, mask: Any, positions: Any) -> bool:
        """Do these columns begin with the first, not with the first that is not cached?"""
        if positions is not None and positions.ndim == 2:
            return bool((positions[:, -1].max() == ids.shape[1] - 1 - min(row.pad for row in self._batch.rows)).item())
        return mask is not None and mask.shape[-1] == ids.shape[1]

    def _check_places(self, ids: torch.Tensor, mask: Any, positions: Any) -> torch.Tensor | None:
        """Columns must be masked where the prompts are padded, nowhere else, and tokens counted from there. Returns the
        positions to compute with; None: the model counts columns, which is right without padding."""
        batch = self._batch
        pads = torch.tensor([[row.pad] for row in batch.rows], device=ids.device)
        padded = any(row.pad for row in batch.rows)
        stop = batch.done + ids.shape[1]
        if mask is None:
            if padded:
                raise TokenError("the prompts are padded: the attention mask is needed in every forward pass")
        elif getattr(mask, "ndim", 0) != 2 or mask.shape != (len(batch.rows), stop):
            shape = tuple(getattr(mask, "shape", ()))
            raise TokenError(f"the attention mask is {shape}: {(len(batch.rows), stop)} is needed, with the cached columns")
        elif not torch.equal(mask != 0, torch.arange(stop, device=mask.device) >= pads.to(mask.device)):
            raise TokenError("the attention mask is not that of the prompts: zeros where they are padded, ones elsewhere")
        wanted = torch.arange(batch.done, stop, device=ids.device) - pads
        if positions is None:
            return wanted.clamp(min=0) if padded and self._takes_positions else None
        if positions.ndim != 2 or not bool(((positions.to(ids.device) == wanted) | (wanted < 0)).all()):
            raise TokenError("position_ids do not count each row's tokens from 0: KV at other positions cannot be shared")
        found: torch.Tensor = positions
        return found


class _Layer(CacheLayerMixin):
    """One layer's view of the batch."""

    is_croppable = True
    is_initialized = True

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def keys(self) -> torch.Tensor:
        """[rows, heads, columns, head_size]"""
        return self._batch.memory.layer(self._index)[0][:, :, : self._batch.done]

    @property
    def values(self) -> torch.Tensor:
        """[rows, heads, columns, head_size]"""
        return self._batch.memory.layer(self._index)[1][:, :, : self._batch.done]

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing is left to do: the batch has its memory."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Takes new KV, returns all."""
        return self._batch.update(self._index, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """How many columns attention sees, and from which on."""
        return self._batch.done + query_length, 0

    def get_seq_length(self) -> int:
        """Columns that are computed."""
        return self._batch.done

    def get_max_length(self) -> int:
        """No maximum."""
        return -1


def announce(body: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Before every forward pass: a cache of ours hears which tokens' KV is coming."""
    cache = kwargs.get("cache")
    if cache is None:
        cache = kwargs.get("past_key_values")
    if not isinstance(cache, TenureCache):
        return None
    named = dict(zip(inspect.signature(body.forward).parameters, args, strict=False)) if args else {}
    return (), cache.announce(body, named | kwargs)
