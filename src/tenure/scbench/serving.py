"""A session served as requests, each with its whole prompt, by the transformers engine: reusing exact prefixes, also such as left
the device in between, or nothing. The grid's rows of retrieval come from here; methods that change KV have no part in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import StoppingCriteriaList

from tenure.checks import integer
from tenure.engines.transformers import Engine, layout_of, node_for
from tenure.identity import Identity
from tenure.scbench import saying
from tenure.scbench.model import Subject
from tenure.scbench.modes import Answer, Encode, Rewind, Step
from tenure.scbench.runner import Asked, Outcome, Scores
from tenure.scbench.session import Session, Turn
from tenure.scbench.timing import now
from tenure.tiers.device import DeviceArena, dtype_name

__all__ = ["SERVED", "Server"]

_PREFIX, _SWAPPED, _RECOMPUTE = SERVED = ("prefix", "swapped", "recompute")
"""What may be asked of a server, by the name in results: to reuse exact prefixes; to reuse them after all KV has left the device
between any two requests, and is loaded back from host memory; to compute each prompt whole."""


class Server:
    """A model on a node whose device has room for the KV of `tokens` tokens, with twice that in host memory below it.

    Close it. Raises ConfigError.
    """

    def __init__(self, subject: Subject, block_size: int, tokens: int) -> None:
        self._subject = subject
        one = DeviceArena.block_bytes_of(layout_of(subject.model), block_size, dtype_name(subject.model.dtype))
        room = -(-integer("tokens", tokens, 1, 1 << 31) // block_size) * one
        self._node = node_for(subject.model, device_bytes=room, host_bytes=2 * room, block_size=block_size)
        self._runs = 0
        self._away = 0.0  # seconds of a run in which KV was made to leave
        self._engine = Engine(subject.model, self._node, who=Identity(model=subject.name, weights=subject.digest))

    def close(self) -> None:
        """Ends the node."""
        self._node.close()

    def run(self, session: Session, task: Scores, steps: Sequence[Step], way: str) -> Asked:
        """One session by its steps, each answer from a prompt of all that was said, served in one `way` of `SERVED`. Nothing is
        hit that an earlier call left. The seconds are without what takes the KV's place on the device, which would be others'
        requests; with the copying of it, both ways."""
        prompt: list[int] = []
        marked = 0
        tokens, done = 0, Asked()
        self._runs += 1
        self._away = 0.0
        self._node.flush()  # of an earlier run
        began = now(self._subject.model)
        for step in steps:
            if isinstance(step, Encode):
                if step.settle:
                    prompt = [*self._subject.start]
                for text in step.texts:
                    prompt += self._subject.encode(text)
                tokens = len(prompt) if step.settle else tokens
                marked = len(prompt) if step.settle or step.mark else marked
            elif isinstance(step, Rewind):
                del prompt[marked:]
            else:
                self._answer(session, task, step, prompt, tokens, way, done)
        done.seconds = now(self._subject.model) - began - self._away
        return done

    def _answer(
        self, session: Session, task: Scores, step: Answer, prompt: list[int], tokens: int, way: str, done: Asked
    ) -> None:
        turn, subject = session.turns[step.turn], self._subject
        ids, hit = self._generate(prompt, turn, session, way != _RECOMPUTE)
        said = saying.prediction(subject, session, ids)
        full = tokens * subject.token_bytes
        done.outcomes.append(Outcome(step.turn, turn.kind, said, task.score(said, turn), tokens, full, full, float(full)))
        done.asked += len(prompt)
        done.prefilled += len(prompt) - hit
        if step.keep:
            prompt += saying.kept(subject, session, ids)
        if way == _SWAPPED:
            self._node.flush()  # what is there has to be written below
            began = now(self._subject.model)
            self._push_out()
            self._away += now(self._subject.model) - began

    def _generate(self, prompt: list[int], turn: Turn, session: Session, reuse: bool) -> tuple[list[int], int]:
        """What the model goes on with, and how many tokens of the prompt were hit."""
        subject = self._subject
        ids = torch.tensor([prompt], device=subject.model.device)

        def ends(so_far: Any, scores: Any, **more: Any) -> Any:
            return torch.tensor([saying.ended(subject, session, so_far[0, len(prompt) :].tolist())], device=so_far.device)

        settings: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "max_new_tokens": turn.limit, "do_sample": False}
        settings |= {"stopping_criteria": StoppingCriteriaList([ends]), "eos_token_id": None, "pad_token_id": 0}
        with self._cache(ids, turn.limit, reuse) as cache:
            hit = 0 if cache is None else cache.get_seq_length()
            out = subject.model.generate(ids, **settings, **({} if cache is None else {"cache": cache}))
        return out[0, len(prompt) :].tolist(), hit

    @contextmanager
    def _cache(self, ids: torch.Tensor, room: int, reuse: bool) -> Iterator[Any]:
        if not reuse:
            yield None
            return
        with self._engine.cache(ids, tenant=f"run {self._runs}", room=room, strict=False) as cache:
            yield cache

    def _push_out(self) -> None:
        """A request of others that takes the whole device."""
        node = self._node
        others = self._engine.who.with_(tenant="others")
        node.sequence(np.zeros(node.frames * node.block_size, np.int64), others).abort()
