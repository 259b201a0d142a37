"""What an operator does: invalidation, sweeping, quotas, another policy. Each operation does the same on the manager and on the
reference, compares what the two return, and tells in a line what it did."""

from __future__ import annotations

from typing import Any

from tenure import Quota
from tenure.errors import ConfigError

from .comparison import same
from .program import TENANTS, Choices
from .registry import BUILT_IN
from .subject import Subject, params_of, policy_of


def invalidate(subject: Subject, pick: Choices) -> str | None:
    fields: dict[str, Any] = {}
    if pick.below(2):
        fields["weights"] = ("old", "new")[pick.below(2)]
    if not fields or pick.below(2):
        fields["tenant"] = TENANTS[pick.below(3)]

    def mine() -> int:
        count = 0
        for space, who in enumerate(subject.identities):
            if all(getattr(who, field) == value for field, value in fields.items()):
                subject.mine.invalidate(space)
                count += 1
        return count

    done = subject.both(lambda: subject.kv.invalidate(**fields), mine)
    assert done is not None
    same("namespaces invalidated", *done)
    return f"invalidate {fields} -> {done[0]}"


def sweep(subject: Subject, pick: Choices) -> str | None:
    before = len(subject.mine.nodes)
    done = subject.both(subject.kv.sweep, subject.mine.sweep)
    assert done is not None
    same("blocks swept, and expired in the same step", done[0], before - len(subject.mine.nodes))
    return f"sweep -> {done[0]}"


def clear(subject: Subject, pick: Choices) -> str | None:
    before = len(subject.mine.nodes)
    done = subject.both(subject.kv.clear, subject.mine.clear)
    assert done is not None
    same("blocks cleared, and expired in the same step", done[0], before - len(subject.mine.nodes))
    return f"clear -> {done[0]}"


def set_quota(subject: Subject, pick: Choices) -> str | None:
    """Floors that cannot be promised are refused, and so is what lies outside them later."""
    subject.both(subject.kv.leases, lambda: None)  # quotas look at no clock
    tenant = TENANTS[pick.below(subject.setting.identities // 2)]
    cap, floor = (1.0, 0.75, 0.5, 1.0)[pick.below(4)], (0.0, 0.25, 0.125, 0.5)[pick.below(4)]
    quota = Quota(min(floor, cap), cap, (1.0, 2.0, 0.5)[pick.below(3)], (1.0, 0.5, 0.25, 0.0)[pick.below(4)])
    number = subject.tenant(tenant)

    def theirs() -> None:
        subject.kv.tenants[tenant] = quota

    done = subject.both(theirs, lambda: subject.mine.set_quota(number, quota.floor, quota.cap, quota.weight, quota.pins))
    return f"quota of {tenant}: {quota}{'' if done else ' -> refused'}"


def set_params(subject: Subject, pick: Choices) -> str | None:
    params = params_of(subject.mine.policy_name, pick.below(3))
    if not params:
        wrong = ({"newest_first": 2.0}, {"nonsense": 0.0})[pick.below(2)]
        subject.both(lambda: subject.kv.set_params(**wrong), refuse_setting)
        return f"parameters {wrong} -> refused"
    subject.both(lambda: subject.kv.set_params(**params), lambda: subject.mine.set_params(params))
    return f"parameters {params}"


def set_policy(subject: Subject, pick: Choices) -> str | None:
    """Another policy takes over the live pool."""
    names = (*BUILT_IN, "custom")
    chosen = names[pick.below(len(names))]
    params, policy = params_of(chosen, pick.below(3)), policy_of(chosen)
    kv = subject.kv
    if pick.below(8) == 7:
        subject.both(lambda: kv.set_policy(policy, nonsense=1.0), refuse_setting)
        return f"policy {chosen} with a parameter it has not -> refused"
    subject.both(lambda: kv.set_policy(policy, **params), lambda: subject.mine.set_policy(policy, kv.params))
    return f"policy {chosen} {params}"


def refuse_setting() -> None:
    raise ConfigError("no such thing")
