"""The real cluster as something to harm: kills, pauses, fail-overs, lines cut, held, delayed and half cut, nodes isolated.
Used by runs against faults, next to the harm done to the nodes of the product."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from tests.pool.nemesis import Harm, Target
from tests.pool.proxied import Behind, ProxiedCluster
from tests.pool.proxies import CUT, DROP, NO_ANSWERS, PASS, Way, delayed
from tests.pool.servers import ReplyError, until

WAYS: Mapping[str, Way] = {"cut": CUT, "drop": DROP, "no answers": NO_ANSWERS, "delay": delayed(0.02)}


class ClusterWorld:
    """One server at a time is harmed by itself, one line at a time; fail-overs come in between."""

    def __init__(self, cluster: ProxiedCluster) -> None:
        self.cluster = cluster

    def targets(self) -> list[Target]:
        """Servers are named by their numbers: which of them are primaries changes."""
        made = [Target("roles", "roles", {"fail over": Harm(self._fail_over, weight=0.25)})]
        for number, server in enumerate(self.cluster.behind):
            harms = {"kill": Harm(server.kill, server.start), "pause": Harm(server.pause, server.resume)}
            if server.source is not None:
                harms["isolate"] = self._isolated(server)
            made.append(Target(f"server {number}", "server", harms))
            made.append(Target(f"line of server {number}", "line", {name: self._line(server, way) for name, way in WAYS.items()}))
        return made

    def healed(self) -> None:
        """Waits until the cluster is whole, with a replica in step behind every primary."""
        self.cluster.heal()
        until("every primary has a replica in step", self._in_step)

    def _line(self, server: Behind, way: Way) -> Harm:
        return Harm(lambda: self.cluster.shut_out(server, way), lambda: self.cluster.shut_out(server, PASS))

    def _isolated(self, server: Behind) -> Harm:
        return Harm(lambda: self.cluster.isolate(server, DROP), lambda: self.cluster.isolate(server, PASS))

    def _fail_over(self) -> None:
        """A replica takes over, without loss; which one is nobody's choice. Raises RuntimeError when none can."""
        for server in self.cluster.alive():
            with contextlib.suppress(OSError, ReplyError):  # one that is harmed just now
                role = server.command("ROLE")
                if role[0] == b"slave" and role[3] == b"connected":
                    server.command("CLUSTER", "FAILOVER")
                    return
        raise RuntimeError("no replica is in step")

    def _in_step(self) -> bool:
        roles = [server.command("ROLE") for server in self.cluster.behind]
        replicas = [role for role in roles if role[0] == b"slave"]
        return len(replicas) == 3 and len({role[2] for role in replicas}) == 3 and all(r[3] == b"connected" for r in replicas)
