"""A user's policy that misbehaves: it is the policy that fails, once and aloud; the manager goes on in LRU order."""

from __future__ import annotations

import gc
import math
import warnings
import weakref
from typing import Any

import pytest
from conftest import Build
from helpers import Clock, admit, hit_blocks, in_another_process, prompt, put, resident, unchanged, victims

from tenure import BlockManager, Identity, Quota
from tenure.errors import ReentrancyError


class Policy:
    """Answers with a value, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    def priority(self, block: object) -> Any:
        self.asked += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Unspeakable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise ValueError("not even that")


@pytest.mark.parametrize(
    "answer",
    [ValueError("broken"), math.nan, "high", None, [1], 10**400, 1j, Unspeakable(), StopIteration(), MemoryError()],
    ids=lambda answer: type(answer).__name__ + str(answer)[:5] if not isinstance(answer, Unspeakable) else "Unspeakable",
)
@pytest.mark.parametrize("strict", [False, True])
def test_a_policy_that_fails_is_said_once_and_its_blocks_go_in_lru_order(
    build: Build, who: Identity, answer: Any, strict: bool
) -> None:
    policy = Policy(answer)
    kv = build(3, policy=policy)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("error" if strict else "always")  # a warning that is an error stays the policy's affair too
        for name in (1, 2, 3, 1, 4):
            put(kv, who, name)
    assert policy.asked >= 5
    assert strict or [(w.category, "priority" in str(w.message)) for w in said] == [(RuntimeWarning, True)]
    assert resident(kv) == {1, 3, 4}
    assert victims(kv, who) == [3, 1, 4]
    with admit(kv, who, 7, 8, 9):
        kv.check()


@pytest.mark.parametrize("answer", [True, 3, -math.inf, math.inf, 1e308])
def test_any_number_will_do(build: Build, who: Identity, answer: Any) -> None:
    kv = build(2, policy=Policy(answer))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in (1, 2, 3):
            put(kv, who, name)
    assert resident(kv) == {2, 3}


class CallingBack:
    """Calls everything the manager has, from inside of it."""

    def __init__(self) -> None:
        self.kv: BlockManager | None = None
        self.handles: list[Any] = []
        self.refused: list[type] = []

    def priority(self, block: object) -> float:
        kv = self.kv
        if kv is None:
            return 0
        who = Identity("model", weights="digest", tenant="acme")
        seq, lease = self.handles
        for call in (
            lambda: kv.sequence(prompt(1), who),
            lambda: kv.sequence(prompt(1), who.with_(tenant="new")),
            lambda: kv.match(prompt(1), who),
            lambda: kv.pin(prompt(1), who, owner="o"),
            lambda: kv.lookup(prompt(1), who, owner="o", ttl=1),
            lambda: kv.set_policy("lru"),
            lambda: kv.invalidate(model="model"),
            lambda: kv.tenants.__setitem__("acme", Quota(cap=0.5)),
            lambda: kv.tenants.__setitem__("newer", Quota()),
            lambda: kv.stats(),
            lambda: kv.block(0),
            lambda: seq.append([1]),
            lambda: seq.block_table,
            lambda: seq.release(),
            lambda: lease.release(),
            kv.leases,
            kv.clear,
            kv.sweep,
            kv.check,
            kv.counts,
            kv.events,
        ):
            try:
                call()
                self.refused.append(type(None))
            except Exception as error:
                self.refused.append(type(error))
        return 0


def test_a_policy_that_calls_back_is_refused_every_time(build: Build, who: Identity) -> None:
    policy = CallingBack()
    kv = build(4, policy=policy)
    seq = admit(kv, who, 9)
    policy.handles = [seq, kv.pin(prompt(9), who, owner="ops")]
    policy.kv = kv
    put(kv, who, 1)
    policy.kv = None
    assert set(policy.refused) == {ReentrancyError}
    assert len(policy.refused) == 21
    assert list(kv.tenants) == ["acme"]
    assert [lease.owner for lease in kv.leases()] == ["ops"]
    assert hit_blocks(kv, who, 1) == 1
    seq.release()


def test_a_policy_that_lets_the_refusal_out_has_failed(build: Build, who: Identity) -> None:
    class Careless:
        def priority(self, block: object) -> float:
            return float(kv.counts().free)

    kv = build(2, policy=Careless())
    with pytest.warns(RuntimeWarning, match="called back"):
        put(kv, who, 1)
    put(kv, who, 2)
    put(kv, who, 3)
    assert resident(kv) == {2, 3}


def test_a_dropped_sequence_is_not_lost_to_a_policy_that_calls_back(build: Build, who: Identity) -> None:
    class Meddling:
        def priority(self, block: object) -> float:
            with pytest.raises(ReentrancyError):
                kv.sequence(prompt(1), who)
            return 0

    kv = build(4, policy=Meddling())
    done = admit(kv, who, 1)
    with pytest.warns(ResourceWarning):
        admit(kv, who, 2, 3)
    done.release()  # the policy asks for a sequence in here, and the dropped one is waiting to be released
    put(kv, who, 4)
    assert kv.counts() == (4, 0, 0, 0, 4)


OPENING = """
import faulthandler, threading
faulthandler.dump_traceback_later(20, exit=True)
from tenure import BlockManager, Identity
from tenure.errors import TenureError

inside, opening = threading.Event(), threading.Event()

class Slow:
    def priority(self, block):
        inside.set()
        opening.wait(1)
        threading.Event().wait(0.2)  # the other thread has got as far as it can
        try:
            kv.sequence([1, 2, 3, 4], Identity("m", tenant="mine"))
        except TenureError as error:
            print(type(error).__name__)
        return 0.0

kv = BlockManager(8, 4, policy=Slow())

def other():
    inside.wait()
    opening.set()
    kv.sequence([1, 2, 3, 4], Identity("m", tenant="theirs")).release()

thread = threading.Thread(target=other)
thread.start()
kv.sequence([1, 2, 3, 4], Identity("m"), written=True).release()
thread.join()
kv.check()
"""


def test_calling_back_while_another_thread_opens_a_namespace_is_no_deadlock() -> None:
    assert set(in_another_process(OPENING).split()) == {"ReentrancyError"}


def test_a_policy_that_fails_while_it_takes_over_leaves_a_working_pool(build: Build, who: Identity) -> None:
    kv = build(4)
    for name in (1, 2, 3):
        put(kv, who, name)
    with pytest.warns(RuntimeWarning):
        kv.set_policy(Policy(ValueError("broken")))
    assert victims(kv, who) == [1, 2, 3]
    kv.set_policy("lfu")
    put(kv, who, 4, 5)
    kv.check()


def test_a_policy_that_holds_its_manager_is_collected_with_it(clock: Clock, who: Identity) -> None:
    policy = Policy(0)
    kv = BlockManager(4, 4, policy=policy, clock=clock)
    policy.manager = kv  # type: ignore[attr-defined]
    put(kv, who, 1)
    gone = weakref.ref(policy)
    del kv, policy
    gc.collect()
    assert gone() is None


def test_looking_asks_a_users_policy_nothing(build: Build, who: Identity) -> None:
    policy = Policy(0)
    kv = build(4, policy=policy)
    put(kv, who, 1, 2)
    asked = policy.asked
    with unchanged(kv):
        kv.match(prompt(1, 2), who)
    assert policy.asked == asked
