"""A data plane on Mooncake Store against Mooncake's own client, which puts and gets the same payloads from registered memory.
A real master on loopback and a node that lends the memory; in turns, each figure the median of the ratios of neighbours."""

from __future__ import annotations

import ctypes
import itertools
import mmap

from benchmarks.pool import TOGETHER, alternately
from benchmarks.report import Row, save
from benchmarks.tiers import MIB, SIZES, buffers, layout_of
from tenure.tiers import BlockLayout
from tenure.tiers.mooncake import MooncakePlane
from tests.pool import mooncakes

SEGMENT = 1024 * MIB
serial = itertools.count()


class Bare:
    """Mooncake's client in this process, lending nothing; its memory is registered, and a payload is one buffer of it."""

    def __init__(self, master: str, nbytes: int, count: int) -> None:
        from mooncake.store import MooncakeDistributedStore

        self.store = MooncakeDistributedStore()
        if self.store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", master):
            raise RuntimeError("the bare client has no master")
        self.memory = mmap.mmap(-1, nbytes * count)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        if self.store.register_buffer(start, nbytes * count):
            raise RuntimeError("the memory cannot be registered")
        self._places = [start + number * nbytes for number in range(count)]
        self._sizes = [nbytes] * count

    def put(self, names: list[str]) -> None:
        if any(self.store.batch_put_from(names, self._places, self._sizes)):
            raise RuntimeError("a payload was not written")

    def get(self, names: list[str]) -> None:
        if self.store.batch_get_into(names, self._places, self._sizes) != self._sizes:
            raise RuntimeError("a payload was not read")

    def remove(self, names: list[str]) -> None:
        self.store.batch_remove(names, True)


def fresh(count: int) -> list[str]:
    return [f"bench:{next(serial):032d}" for _ in range(count)]


def plane_rows(master: str, size: str, layout: BlockLayout) -> list[Row]:
    """8 MiB a call, as a node moves them, over TCP into and out of another process's memory."""
    count = TOGETHER // layout.nbytes
    bare = Bare(master, layout.nbytes, count)
    plane = MooncakePlane(master, segment_bytes=0, timeout=30)
    given, taken = [[view] for view in buffers(layout, count)], [[view] for view in buffers(layout, count)]
    names = {"bare": fresh(count), "ours": fresh(count)}

    def bare_put(_: int) -> None:
        bare.put(names["bare"])

    def our_put(_: int) -> None:
        if plane.put([name.encode() for name in names["ours"]], given) != [None] * count:
            raise RuntimeError("a payload was not written")

    def bare_get(_: int) -> None:
        bare.get(names["bare"])

    def our_get(_: int) -> None:
        if plane.get([name.encode() for name in names["ours"]], taken) != [None] * count:
            raise RuntimeError("a payload was not read")

    def renew() -> None:
        """Mooncake does nothing for a name that is there."""
        bare.remove(names["bare"] + names["ours"])
        names.update({name: fresh(count) for name in names})

    title = f"payloads of {size} over TCP: ours ÷ Mooncake's client, speed"
    try:
        ratio, samples = alternately(bare_put, our_put, renew)
        rows = [Row(f"Mooncake put, {title}", ratio, None, samples)]
        bare_put(0)
        our_put(0)
        ratio, samples = alternately(bare_get, our_get, lambda: None)
        rows.append(Row(f"Mooncake get, {title}", ratio, None, samples))
        if [bytes(view) for (view,) in taken] != [bytes(view) for (view,) in given]:
            raise RuntimeError("what was read is not what was written")
        renew()
    finally:
        plane.close()
        bare.store.close()
    return rows


def run() -> None:
    if (why := mooncakes.missing()) is not None:
        save("mooncake", "Mooncake Store as a data plane", [Row("Mooncake put and get", None, note=why)])
        return
    with mooncakes.master() as master:
        lender = MooncakePlane(master.address, segment_bytes=SEGMENT, timeout=30)
        rows = [row for size, layers in SIZES.items() for row in plane_rows(master.address, size, layout_of(layers))]
        lender.close()
    save("mooncake", "Mooncake Store as a data plane", rows)
