"""Tiers against what they stand on: host put and get against bare numpy copies, disk against bare pwritev and preadv.
The same sizes, flags and buffers, in turns; each figure is the median of the ratios of neighbouring measurements."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.ours import no_collection
from benchmarks.report import Row, save
from tenure.tiers import CODECS, BlockLayout, DiskTier, HostTier, Record, Tier
from tenure.tiers.files import direct_flag, empty_buffer

SIZES = {"0.5 MiB": 16, "1 MiB": 32, "2 MiB": 64, "4 MiB": 128}
"""Layers of a bf16 layout with 8 heads of 64 in blocks of 16 tokens."""
ROUNDS = 15
BATCH = 8
SPACE = bytes(32)
MIB = 1 << 20

Step = Callable[[int], object]


def layout_of(layers: int) -> BlockLayout:
    return BlockLayout.of("bf16", 16, layers=layers, heads=8, head_size=64)


def record(layout: BlockLayout, number: int) -> Record:
    return Record(SPACE, number.to_bytes(32, "little"), bytes(32), 0, bytes(4 * layout.block_size), layout)


def buffers(layout: BlockLayout, count: int) -> list[memoryview]:
    """Page-aligned blocks of values as model KV has them, roughly."""
    made = []
    for number in range(count):
        values = np.random.default_rng(number).standard_normal(layout.values, np.float32)
        view = empty_buffer(layout.nbytes)
        view[:] = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        made.append(view)
    return made


def seconds(step: Step, turn: int) -> float:
    start = time.perf_counter()
    step(turn)
    return time.perf_counter() - start


def compared(bare: Step, ours: Step, turns: int) -> tuple[float, dict[str, list[float]]]:
    """Speed of ours against bare, every turn of one measured beside the same turn of the other; and the seconds of each round."""
    for turn in range(turns):  # every page and every slot is touched before anything counts
        bare(turn)
        ours(turn)
    times: dict[str, list[float]] = {"bare": [], "ours": []}
    with no_collection():
        for round_ in range(ROUNDS):
            for turn in range(turns):
                pair = [("bare", bare), ("ours", ours)]
                for name, step in pair if (round_ + turn) % 2 else reversed(pair):
                    times[name].append(seconds(step, turn))
    ratio = statistics.median(b / o for b, o in zip(times["bare"], times["ours"], strict=True))
    rounds = {name: [sum(t[at : at + turns]) for at in range(0, len(t), turns)] for name, t in times.items()}
    return ratio, rounds


def moves(tier: Tier, given: list[memoryview], taken: list[memoryview]) -> tuple[Step, Step]:
    """A batch of neighbouring frames written, and read; a failure is no measurement."""
    count = len(given)

    def names(turn: int) -> tuple[range, list[Record]]:
        frames = range(turn * count, (turn + 1) * count)
        return frames, [record(tier.layout, frame) for frame in frames]

    prepared = [names(turn) for turn in range(tier.frames // count)]

    def put(turn: int) -> None:
        frames, records = prepared[turn]
        if tier.write(frames, given, records) != [None] * count:
            raise RuntimeError("a block was not written")

    def get(turn: int) -> None:
        frames, records = prepared[turn]
        if tier.read(frames, records, taken) != [None] * count:
            raise RuntimeError("a block was not read")

    return put, get


def host_rows() -> list[Row]:
    rows = []
    for size, layers in SIZES.items():
        layout = layout_of(layers)
        turns = max(2, 64 * MIB // (BATCH * layout.nbytes))
        given, taken = buffers(layout, BATCH), buffers(layout, BATCH)
        arena = np.frombuffer(empty_buffer(turns * BATCH * layout.nbytes), np.uint8).reshape(turns, BATCH, -1)
        inside = [np.frombuffer(view, np.uint8) for view in given]
        outside = [np.frombuffer(view, np.uint8) for view in taken]

        def bare_put(turn: int, arena: np.ndarray = arena, blocks: list[np.ndarray] = inside) -> None:
            for number, block in enumerate(blocks):
                arena[turn, number] = block

        def bare_get(turn: int, arena: np.ndarray = arena, blocks: list[np.ndarray] = outside) -> None:
            for number, block in enumerate(blocks):
                block[:] = arena[turn, number]

        with HostTier(layout, turns * BATCH) as tier:
            put, get = moves(tier, given, taken)
            for what, bare, ours in (("put", bare_put, put), ("get", bare_get, get)):
                ratio, samples = compared(bare, ours, turns)
                rows.append(Row(f"host {what}, blocks of {size}: ours ÷ bare numpy copy, speed", ratio, (">=", 0.8), samples))
    return rows


def disk_rows(folder: Path) -> list[Row]:
    rows = []
    for size, layers in SIZES.items():
        layout = layout_of(layers)
        for batch in (1, BATCH):
            rows += _disk(folder, layout, batch, f"blocks of {size}, {batch} at once", (">=", 0.8))
    layout = layout_of(SIZES["2 MiB"])
    rows += _disk(folder, layout, BATCH, "the same through the page cache, 2 MiB", None, direct=False)
    rows += _disk(folder, layout, BATCH, "the same with a key, 2 MiB", None, key=bytes(32))
    return rows


def _disk(
    folder: Path,
    layout: BlockLayout,
    batch: int,
    what: str,
    wanted: tuple[str, float] | None,
    direct: bool | None = None,
    key: bytes | None = None,
) -> list[Row]:
    turns = max(2, 64 * MIB // (batch * layout.nbytes))
    nbytes = turns * batch * layout.nbytes
    given, taken = buffers(layout, batch), buffers(layout, batch)
    with DiskTier(folder / "store", layout, nbytes + nbytes // 50 + 8 * MIB, direct=direct, key=key) as tier:
        tier.put_namespace(SPACE, b"")
        put, get = moves(tier, given, taken)
        path = folder / "bare"
        path.write_bytes(b"\0" * 4096)
        fd = os.open(path, os.O_RDWR | (direct_flag(path) if tier.direct else 0))
        os.posix_fallocate(fd, 0, nbytes)
        rows = []
        for name, call, views, ours in (("write", os.pwritev, given, put), ("read", os.preadv, taken, get)):

            def bare(turn: int, call: Callable[..., int] = call, views: list[memoryview] = views) -> None:
                if call(fd, views, turn * batch * layout.nbytes) != batch * layout.nbytes:
                    raise RuntimeError("a bare call fell short")

            ratio, samples = compared(bare, ours, turns)
            flags = "O_DIRECT" if tier.direct else "page cache"
            bare_name = f"bare {call.__name__}"
            rows.append(Row(f"disk {name}, {what}: ours ÷ {bare_name}, speed", ratio, wanted, samples, flags))
        os.close(fd)
    for left in (*(folder / "store").iterdir(), path):
        left.unlink()
    return rows


def codec_rows() -> list[Row]:
    """What coding costs: host put and get of 2 MiB blocks with each codec against raw ones."""
    layout = layout_of(SIZES["2 MiB"])
    given, taken = buffers(layout, 1), buffers(layout, 1)
    rows = []
    for name, make in CODECS.items():
        if name == "raw":
            continue
        with HostTier(layout, 4) as plain, HostTier(layout, 4, codec=make()) as coded:
            for what, bare, ours in zip(("put", "get"), moves(plain, given, taken), moves(coded, given, taken), strict=True):
                ratio, samples = compared(bare, ours, 4)
                rows.append(Row(f"host {what} with {name} ÷ raw, speed, blocks of 2 MiB", ratio, None, samples))
    return rows


def run() -> None:
    rows = host_rows()
    with tempfile.TemporaryDirectory(prefix="tenure-bench-", dir=os.environ.get("TENURE_DISK")) as folder:
        rows += disk_rows(Path(folder))
    save("tiers", "Tiers: host memory and disk", rows + codec_rows())
