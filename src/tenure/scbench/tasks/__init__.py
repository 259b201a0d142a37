"""The tasks by name. A new one is a file beside this and a line here."""

from tenure.scbench.tasks.base import Task
from tenure.scbench.tasks.code_search import CodeSearch
from tenure.scbench.tasks.icl_many_shot import ManyShot
from tenure.scbench.tasks.kv_needle import KVNeedle
from tenure.scbench.tasks.math_find import MathFind
from tenure.scbench.tasks.multi_hop import MultiHop
from tenure.scbench.tasks.prefix_suffix import PrefixSuffix
from tenure.scbench.tasks.retr_kv import RetrKV

__all__ = ["TASKS", "Task"]

TASKS: dict[str, Task] = {
    task.name: task for task in (RetrKV(), PrefixSuffix(), MultiHop(), MathFind(), ManyShot(), KVNeedle(), CodeSearch())
}
