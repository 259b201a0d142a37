"""The lab: read or generate traffic, replay it through the pool that serves, and compare with what is possible."""

from tenure.lab.advice import Need, advise, frames_needed
from tenure.lab.bounds import ceiling, next_use
from tenure.lab.generate import Generated, generate
from tenure.lab.readers import FORMATS, Timing, read
from tenure.lab.replay import Row, replay, report, sweep
from tenure.lab.settings import PolicyChoice, capacities, policies
from tenure.lab.trace import Trace
from tenure.lab.workloads import Agent, Chat, Rag, Scan

__all__ = [
    "FORMATS",
    "Agent",
    "Chat",
    "Generated",
    "Need",
    "PolicyChoice",
    "Rag",
    "Row",
    "Scan",
    "Timing",
    "Trace",
    "advise",
    "capacities",
    "ceiling",
    "frames_needed",
    "generate",
    "next_use",
    "policies",
    "read",
    "replay",
    "report",
    "sweep",
]
