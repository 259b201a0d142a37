"""A real cluster whose every connection passes through proxies: clients and replicas by one, the nodes' bus by another.
Used by runs against faults, which cut nodes off from clients, from each other, or from both."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.pool.proxies import PASS, Proxy, Way
from tests.pool.servers import Cluster, Server, _join, free_port, needed, until


class Behind(Server):
    """A node of a cluster that everybody else knows by the ports of its proxies; what the tests say to it goes past them. On
    Linux it connects to others from a loopback address of its own, by which their proxies know it."""

    def __init__(self, folder: Path, number: int, **options: str | int) -> None:
        self.clients, self.bus = Proxy(), Proxy()
        self.source = f"127.0.1.{number + 1}" if sys.platform == "linux" else None
        announced: dict[str, str | int] = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": 2000,
            "cluster_port": free_port(),
            "cluster_announce_ip": "127.0.0.1",
            "cluster_announce_port": self.clients.port,
            "cluster_announce_bus_port": self.bus.port,
        }
        if self.source is not None:
            announced["bind_source_addr"] = self.source
        super().__init__(folder, **{**announced, **options})
        self.clients.target = ("127.0.0.1", self.port)
        self.bus.target = ("127.0.0.1", int(self.options["cluster_port"]))

    def close(self) -> None:
        """Ends it and its proxies."""
        self.kill()
        self.clients.close()
        self.bus.close()


class ProxiedCluster(Cluster):
    """As a Cluster; `url` leads through the proxies, and so do the addresses to which the nodes send clients."""

    def __init__(self, servers: list[Behind]) -> None:
        super().__init__(list(servers))
        self.behind = servers

    @property
    def url(self) -> str:
        return "valkey+cluster://" + ",".join(f"127.0.0.1:{each.clients.port}" for each in self.behind)

    def replica_of(self, primary: Server) -> Server:
        """A replica of this primary, as it says itself."""
        assert isinstance(primary, Behind)
        for server in self.alive():
            role = server.command("ROLE")
            if role[0] == b"slave" and role[2] == primary.clients.port:
                return server
        raise AssertionError(f"the primary behind port {primary.clients.port} has no replica")

    def shut_out(self, server: Behind, way: Way) -> None:
        """Treats a node's clients so, and what replicates from it; the nodes still see each other."""
        server.clients.set(way)

    def isolate(self, server: Behind, way: Way) -> None:
        """Treats all between a node and the other nodes so; clients still reach it. Undone with PASS.

        Replicas and clients come by the same port: they are told apart by the nodes' own addresses, so this needs Linux."""
        if server.source is None:
            raise NotImplementedError("the nodes have one address here: there is no telling whose a connection is")
        server.bus.set(way)
        for other in self.behind:
            if other is not server:
                assert other.source is not None
                server.clients.set(way, source=other.source)
                other.bus.set(way, source=server.source)
                other.clients.set(way, source=server.source)

    def heal(self) -> None:
        """Every proxy passes everything, every node runs and none is paused; returns when the cluster is whole."""
        for each in self.behind:
            self.shut_out(each, PASS)
            if each.source is not None:
                self.isolate(each, PASS)
            each.resume()
            if each.process is None:
                each.start()
        self.settle()
        until("every node sees every other", self._all_see_all)

    def _all_see_all(self) -> bool:
        lines = [line for each in self.behind for line in each.command("CLUSTER", "NODES").decode().splitlines()]
        return len(lines) == len(self.behind) ** 2 and not any("fail" in line.split()[2] for line in lines)


@contextlib.contextmanager
def proxied_cluster(**options: str | int) -> Iterator[ProxiedCluster]:
    """A running cluster behind proxies, every slot served and every replica in step; ended at the end."""
    needed()
    folder = Path(tempfile.mkdtemp(prefix="tenure-proxied-"))
    servers: list[Behind] = []
    try:
        for number in range(6):
            own = folder / str(number)
            own.mkdir()
            servers.append(Behind(own, number, **options))
            servers[-1].start()
        made = ProxiedCluster(servers)
        _join(made)
        until("every node is known by its proxies", lambda: all(_announced(each, servers) for each in servers))
        made.heal()
        yield made
    finally:
        for each in servers:
            each.close()
        shutil.rmtree(folder, ignore_errors=True)


def _announced(server: Behind, servers: list[Behind]) -> bool:
    """Whether a node knows all by their proxies only."""
    known = {line.split()[1].split(",")[0] for line in server.command("CLUSTER", "NODES").decode().splitlines()}
    return known == {f"127.0.0.1:{each.clients.port}@{each.bus.port}" for each in servers}
