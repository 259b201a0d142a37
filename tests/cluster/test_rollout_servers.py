"""A rollout on real servers, one or a cluster: nodes poll by themselves, three threads ask all the while."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from tenure.cluster.rollout import Phase
from tenure.cluster.rollouts import Rollouts
from tenure.errors import StateError
from tenure.node import Level, Node
from tests.cluster.rolling import NEW, OLD, W1, W2, Request
from tests.node.making import LAYOUT, SIZE, ArrayDevice, host
from tests.pool.servers import cluster, needed, server, until

valkey = pytest.importorskip("tenure.tiers.valkey", reason="needs tenure[valkey]", exc_type=ImportError)
needed()


class Load(threading.Thread):
    """Asks one node until it is told to stop."""

    def __init__(self, kv: Node, seed: int) -> None:
        super().__init__()
        self.kv = kv
        self.seed = seed
        self.stop = threading.Event()
        self.served: Counter[object] = Counter()
        self.error: Exception | None = None

    def run(self) -> None:
        r = random.Random(self.seed)
        try:
            while not self.stop.wait(0.01):
                request = Request(self.kv, f"s{r.randint(0, 9)}", [r.randint(0, 1) for _ in range(r.randint(1, 24))])
                for _ in range(3):
                    time.sleep(0.005)
                    request.step([r.randint(0, 1)])
                self.served[request.finish().weights] += 1
        except Exception as error:
            self.error = error


@pytest.mark.slow
@pytest.mark.parametrize("where", [server, partial(cluster, cluster_node_timeout=60_000)], ids=["server", "cluster"])
def test_under_load(where: Callable[..., object]) -> None:
    with where() as found:  # type: ignore[attr-defined]
        nodes = [
            Node(
                ArrayDevice(64),
                [Level(host(64)), Level(valkey.ValkeyTier(LAYOUT, found.url, frames=256, timeout=60.0), deadline=120.0)],
                SIZE,
                poll=0.1,
                name=f"n{number}",
            )
            for number in range(3)
        ]
        pool = valkey.ValkeyTier(LAYOUT, found.url, timeout=60.0)
        operator = Rollouts(pool)
        load = [Load(kv, seed) for seed, kv in enumerate(nodes)]
        for thread in load:
            thread.start()
        try:
            operator.announce("m", OLD, NEW)
            until(
                "every node has heard of it", lambda: len(operator.progress("m").nodes) == 3 and not operator.progress("m").behind
            )
            operator.shift("m", 0.5)
            until("both versions are served", lambda: all({W1, W2} <= set(thread.served) for thread in load))
            operator.drain("m")

            def done() -> bool:
                try:
                    return operator.reclaim("m").phase is Phase.DONE
                except StateError:
                    return False  # not all have heard of it

            until("it is done", done)
            before = [thread.served[W1] for thread in load]
            served = [thread.served[W2] for thread in load]
            until("they go on", lambda: all(thread.served[W2] > count + 3 for thread, count in zip(load, served, strict=True)))
            assert [thread.served[W1] for thread in load] == before
        finally:
            for thread in load:
                thread.stop.set()
                thread.join()
        for thread, kv in zip(load, nodes, strict=True):
            assert thread.error is None
            kv.check()
            assert {one.who.weights for one in kv.held()} == {W2}
            kv.close()
        assert operator.progress("m").nodes == ()
        pool.close()
