"""Runs the benchmarks named on the command line (all when none is) and rewrites docs/benchmarks.md."""

from __future__ import annotations

import sys

from benchmarks import contexts, growth, handover, model, mooncake, node, policies, pool, report, request, tiers, warm

ALL = {
    "request": request.run,
    "growth": growth.run,
    "policies": policies.run,
    "tiers": tiers.run,
    "pool": pool.run,
    "node": node.run,
    "model": model.run,
    "warm": warm.run,
    "handover": handover.run,
    "mooncake": mooncake.run,
    "contexts": contexts.run,
}


def main(names: list[str]) -> int:
    unknown = set(names) - set(ALL)
    if unknown:
        print(f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    for name in names or ALL:
        ALL[name]()
    report.write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
