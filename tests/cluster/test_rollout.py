"""Versions change under load: every answer is of one version, nobody is left on the old one, and nothing of it stays."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tenure import ConfigError, Identity, IdentityError, RecordError, StateError, TierError, content_digest
from tenure.cluster.epochs import family
from tenure.cluster.member import BOARD, Member
from tenure.cluster.rollout import Board, Phase, Rollout
from tenure.cluster.rollouts import Rollouts
from tenure.cluster.warm import Prefix, hottest, warm
from tenure.node import Node
from tests.cluster.memory import MemoryPool
from tests.cluster.rolling import A1, A2, BASE, NEW, OLD, W1, W2, W3, Fleet, Request, amount, ask
from tests.node.making import LAYOUT, SIZE, ArrayDevice, WrongBytesError, prompt

LONG = prompt(0, 6)


def versions(kv: Node, model: str = "m", sessions: int = 64) -> list[Any]:
    return [kv.version(model, f"s{number}")["weights"] for number in range(sessions)]


# -- who gets what


def test_sessions_move_over_as_the_share_grows_and_stay() -> None:
    rollout = Rollout("m", OLD, NEW, begun=7)
    before: set[str] = set()
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        moved = rollout.to_shift(share)
        now = {f"s{i}" for i in range(2000) if moved.version(f"s{i}") == NEW}
        assert before <= now
        assert abs(len(now) / 2000 - share) < 0.04
        before = now
    assert len(before) == 2000
    other = Rollout("m", OLD, NEW, begun=8).to_shift(0.5)
    half = rollout.to_shift(0.5)
    assert any(half.version(f"s{i}") != other.version(f"s{i}") for i in range(50))  # not the same sessions in every rollout


def test_every_node_gives_a_session_the_same() -> None:
    with Fleet(3) as fleet:
        fleet.operator.announce("m", OLD, NEW)
        fleet.operator.shift("m", 0.5)
        fleet.poll()
        first, second, third = (versions(kv) for kv in fleet.nodes)
        assert first == second == third
        assert {W1, W2} == set(first)


def test_a_node_that_has_just_started_asks_first() -> None:
    with Fleet(0) as fleet, fleet.node("late") as kv:
        assert kv.version("m", "s") == {}
        fleet.operator.announce("m", OLD, NEW)
        assert kv.version("m", "s") == {}  # it has heard, and polls
        kv.refresh()
        assert kv.version("m", "s") == OLD
        assert kv.version("another", "s") == {}
        with fleet.node("later") as later:
            assert later.version("m", "s") == OLD


def test_a_node_without_a_pool_serves_what_it_has() -> None:
    with Node(ArrayDevice(4), [], SIZE, background=False) as kv:
        assert kv.version("m", "s") == {}
        assert kv.refresh()
        with pytest.raises(ConfigError, match="no pool"):
            warm(kv, "m", BASE, lambda prefix, who: None)


def test_a_session_is_text() -> None:
    with Fleet(1) as fleet:
        fleet.operator.announce("m", OLD, NEW)
        with pytest.raises(ConfigError, match="session"):
            fleet.nodes[0].version("m", 5)  # type: ignore[arg-type]
        assert fleet.nodes[0].version("m", "\ud800") == OLD


# -- a rollout


def begun(fleet: Fleet, phase: Phase) -> None:
    """A rollout in this phase, of which all nodes have heard, each with something of both versions as far as that can be."""
    operator = fleet.operator
    steps: dict[Phase, Callable[[], object]] = {
        Phase.ANNOUNCED: lambda: operator.announce("m", OLD, NEW),
        Phase.WARMING: lambda: operator.warm("m", 4),
        Phase.SHIFTING: lambda: operator.shift("m", 0.5),
        Phase.DRAINING: lambda: operator.drain("m"),
        Phase.RECLAIMING: lambda: operator.reclaim("m"),
    }
    for each, step in steps.items():
        step()
        fleet.poll()
        for kv in fleet.nodes:
            for session in range(6):
                ask(kv, f"s{session}", [*LONG, *prompt(session + 1, 1)])
            kv.flush()
        if each is phase:
            return


def test_a_whole_rollout() -> None:
    with Fleet(2) as fleet:
        operator = fleet.operator
        begun(fleet, Phase.SHIFTING)
        a, b = fleet.nodes
        running = [Request(kv, session, LONG) for kv in fleet.nodes for session in ("s0", "s1", "s2", "s3", "s4", "s5")]
        assert {request.who.weights for request in running} == {W1, W2}
        for request in running:
            request.step([7] * 3)
        operator.drain("m")
        with pytest.raises(StateError, match="n0, n1 may still give out"):
            operator.reclaim("m")
        fleet.poll(a)
        with pytest.raises(StateError, match=r"^n1 may"):
            operator.reclaim("m")
        fleet.poll()
        assert set(versions(a) + versions(b)) == {W2}
        assert operator.reclaim("m").phase is Phase.RECLAIMING
        fleet.poll()
        progress = operator.progress("m")
        assert progress.holding == ["n0", "n1"]  # what runs
        old = [request for request in running if request.who.weights == W1]
        assert sum(progress.left(node).sequences for node in progress.nodes) == len(old)
        for request in old:
            request.step([8] * 6)
            assert request.finish().weights == W1
        assert amount(a, weights=W1) == amount(b, weights=W1) == (0, 0)  # they went straight to Free
        assert operator.reclaim("m").phase is Phase.RECLAIMING
        fleet.reclaim()
        for request in running:
            if request not in old:
                request.finish()
        assert operator.reclaim("m").phase is Phase.DONE
        assert [rollout.phase for rollout in operator.all()] == [Phase.DONE]
        for kv in fleet.nodes:
            kv.check()
            assert {one.who.weights for one in kv.held()} == {W2}
            assert kv.counts().cached + kv.counts().free == kv.frames
        assert ask(a, "s0", LONG).hit == len(LONG)


def test_the_engine_notices_bytes_of_another_version() -> None:
    """The control: an engine that computes with the new weights and says the old ones."""
    with Fleet(1) as fleet:
        (kv,) = fleet.nodes
        ask(kv, "s", LONG)
        fleet.operator.announce("m", OLD, NEW)
        fleet.operator.shift("m", 1.0)
        fleet.poll()
        request = Request(kv, "s", LONG)
        request.who = request.who.with_(**OLD)
        with pytest.raises(WrongBytesError):
            request.finish()
        request.seq.release()


def test_nothing_ends_where_nodes_do_not_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    monkeypatch.setattr(Member, "_retire", lambda self, board: None)
    monkeypatch.setattr(MemoryPool, "bump", lambda self, families: self.read_families(families))
    with Fleet(2) as fleet:
        begun(fleet, Phase.RECLAIMING)
        with pytest.raises(AssertionError, match="not done"):
            fleet.reclaim()


@pytest.mark.parametrize("seed", range(8))
def test_under_load(seed: int) -> None:
    """Random requests on three nodes, each for several steps, while operators go through a rollout, one way or back."""
    r = random.Random(seed)
    back = r.choice((None, Phase.WARMING, Phase.SHIFTING, Phase.DRAINING, Phase.RECLAIMING))
    texts = [[r.randint(0, 1) for _ in range(40)] for _ in range(3)]
    seen: set[tuple[bool, Any]] = set()
    hits = 0
    with Fleet(3, frames=40, pool_frames=32) as fleet:
        operator = fleet.operator
        operator.announce("m", OLD, NEW)
        running: list[tuple[Node, Request]] = []
        for turn in range(900):
            fleet.clock.now += 0.05
            kv = r.choice(fleet.nodes)
            what = r.random()
            if what < 0.4 and len([1 for node, _ in running if node is kv]) < 3:
                who = BASE.with_(tenant=r.choice("ab"))
                request = Request(kv, f"s{r.randint(0, 9)}", r.choice(texts)[: r.randint(1, 16)], who)
                seen.add((operator.get("m").phase is Phase.DONE, request.who.weights))
                hits += request.hit
                running.append((kv, request))
            elif what < 0.75 and running:
                r.choice(running)[1].step([r.randint(0, 1)])
            elif what < 0.85 and running:
                running.pop(r.randrange(len(running)))[1].finish()
            elif what < 0.93:
                kv.refresh()
            elif what < 0.96:
                kv.flush()
            rollout = operator.get("m")
            if turn % 60 == 59:
                for node in fleet.nodes if r.random() < 0.5 else ():
                    node.refresh()
                move_on(operator, rollout, back if not rollout.back else None, r)
            kv.check()
        for _, request in running:
            request.finish()
        for _ in range(20):
            rollout = operator.get("m")
            if rollout.phase is Phase.DONE:
                break
            fleet.poll()
            move_on(operator, rollout, None, r)
        fleet.poll()
        assert rollout.phase is Phase.DONE
        assert rollout.back is (back is not None)
        for kv in fleet.nodes:
            assert {one.who.weights for one in kv.held()} <= {rollout.kept["weights"]}
            assert set(versions(kv)) == {rollout.kept["weights"]}
            counts = kv.check()
            assert counts.free + counts.cached == kv.frames
    assert hits > 200
    assert {weights for _, weights in seen} == ({W1, W2} if back is not Phase.WARMING else {W1})


def move_on(operator: Rollouts, rollout: Rollout, back: Phase | None, r: random.Random) -> None:
    """The next step; where nodes have not heard of the last one, the operator waits."""
    if rollout.phase is back:
        operator.roll_back("m")
    elif rollout.phase is Phase.ANNOUNCED:
        operator.warm("m")
    elif rollout.phase is Phase.WARMING:
        operator.shift("m", 0.3)
    elif rollout.phase is Phase.SHIFTING:
        operator.shift("m", rollout.share + 0.3) if rollout.share < 0.7 else operator.drain("m")
    elif rollout.phase is not Phase.DONE:
        try:
            operator.reclaim("m")
        except StateError as error:
            assert "may still give out" in str(error)  # noqa: PT017 - else it is raised


# -- those that are late


@pytest.mark.parametrize("phase", [Phase.RECLAIMING, Phase.DONE])
def test_a_request_that_asked_for_its_version_long_before_leaves_nothing(phase: Phase) -> None:
    with Fleet(1) as fleet:
        (kv,) = fleet.nodes
        begun(fleet, Phase.RECLAIMING)
        if phase is Phase.DONE:
            fleet.reclaim()
        with kv.sequence(LONG, BASE) as seq:  # of the old version
            seq.seal()
            fleet.poll()
            assert amount(kv, weights=W1) == (1, 6)
        assert amount(kv, weights=W1) == (0, 0)
        kv.sequence(LONG, BASE, written=True).release()
        assert amount(kv, weights=W1) == (0, 6)
        fleet.poll()
        assert amount(kv, weights=W1) == (0, 0)
        kv.check()


def test_a_node_that_dies_is_not_waited_for_and_lets_go_when_it_is_back() -> None:
    with Fleet(3, trust=5.0) as fleet:
        begun(fleet, Phase.SHIFTING)
        a, b, c = fleet.nodes
        fleet.operator.drain("m")
        for _ in range(4):
            fleet.poll(a, b)
        with pytest.raises(StateError, match=r"^n2 may"):
            fleet.operator.reclaim("m")
        fleet.nodes = [a, b]
        fleet.poll()
        fleet.reclaim()
        assert amount(c, weights=W1)[1] > 0
        assert set(versions(c)) == {W1, W2}  # it has heard of nothing
        fleet.poll(c)
        assert amount(c, weights=W1) == (0, 0)
        assert set(versions(c)) == {W2}
        c.close()


def test_without_the_pool_nodes_keep_to_what_they_know() -> None:
    with Fleet(2) as fleet:
        begun(fleet, Phase.SHIFTING)
        before = [versions(kv) for kv in fleet.nodes]
        request = Request(fleet.nodes[0], "s1", LONG)
        fleet.server.down = True
        fleet.poll()
        for call in (
            lambda: fleet.operator.drain("m"),
            lambda: fleet.operator.reclaim("m"),
            fleet.operator.all,
            lambda: fleet.operator.progress("m"),
        ):
            with pytest.raises(TierError):
                call()
        assert [versions(kv) for kv in fleet.nodes] == before
        request.step([1] * 5)
        request.finish()
        ask(fleet.nodes[1], "s2", LONG)
        fleet.server.down = False
        fleet.clock.now += 70  # the breaker tries again
        fleet.poll()
        fleet.operator.drain("m")
        fleet.poll()
        fleet.reclaim()


def test_an_outage_while_it_is_reclaimed() -> None:
    with Fleet(2) as fleet:
        begun(fleet, Phase.DRAINING)
        a, b = fleet.nodes
        fleet.operator.reclaim("m")
        fleet.poll(a)
        fleet.server.down = True
        fleet.poll()
        assert amount(a, weights=W1) == (0, 0)
        assert amount(b, weights=W1)[1] > 0
        fleet.server.down = False
        fleet.clock.now += 20
        fleet.reclaim()
        assert amount(b, weights=W1) == (0, 0)


def test_a_pool_that_has_lost_the_rollouts_is_told_again() -> None:
    with Fleet(2) as fleet:
        fleet.operator.announce("m", OLD, NEW)
        fleet.poll()
        stale = fleet.server.names[BOARD]
        fleet.operator.shift("m", 0.5)
        fleet.poll()
        shifted = fleet.operator.get("m")
        fleet.server.forget()
        fleet.poll()
        assert fleet.operator.get("m") == shifted
        fleet.server.names[BOARD] = stale  # a fail-over to a replica that was behind
        fleet.poll()
        assert fleet.operator.get("m") == shifted
        fleet.server.names[BOARD] = stale
        fleet.clock.now += 5
        fleet.operator.roll_back("m")  # of what was lost an operator knows nothing: his word is the newer one
        fleet.poll()
        assert fleet.operator.get("m").back
        assert set(versions(fleet.nodes[0])) == {W1}


def test_what_a_node_cannot_read_changes_nothing() -> None:
    with Fleet(1) as fleet:
        (kv,) = fleet.nodes
        begun(fleet, Phase.SHIFTING)
        before, good = versions(kv), fleet.server.names[BOARD]
        rollout = Board.decode(good).rollouts["m"]
        forged = [
            b"",
            b"nonsense",
            good[:-1],
            good.replace(b"weights", b"strange"),
            Board(1 << 60, {}).encode().replace(b"\x01", b"\x02", 1),
        ]
        for bad in forged:
            fleet.server.names[BOARD] = bad
            assert not kv.refresh()
            assert versions(kv) == before
            with pytest.raises(RecordError):
                fleet.operator.all()
            with pytest.raises(RecordError):
                fleet.operator.drain("m")
            assert fleet.server.names[BOARD] == bad
            with fleet.node("new") as new:
                for _ in range(20):
                    assert new.version("m", "s") == {}
                assert new.lane_stats("pool").opened == 0  # the pool is well
        fleet.server.names[BOARD] = good
        assert kv.refresh()
        assert fleet.operator.get("m") == rollout


# -- operators


class Racing(MemoryPool):
    """An operator's tier under which something happens before the next swaps."""

    first: Callable[[], object] | None = None

    def swap(self, name: str, old: bytes | None, new: bytes, ttl: float | None = None) -> bool:
        first, self.first = self.first, None
        if first is not None:
            first()
        return super().swap(name, old, new, ttl)


def racing(fleet: Fleet) -> tuple[Racing, Rollouts]:
    pool = Racing(fleet.server, LAYOUT)
    return pool, Rollouts(pool, wall=fleet.clock)


def test_of_two_operators_one_wins() -> None:
    with Fleet(1) as fleet:
        pool, one = racing(fleet)
        two = fleet.another_operator()
        pool.first = lambda: two.announce("m", OLD, {"weights": W3})
        with pytest.raises(StateError, match="somebody else"):
            one.announce("m", OLD, NEW)
        assert two.get("m").new == {"weights": W3}
        pool.first = lambda: two.shift("m", 0.2)
        with pytest.raises(StateError, match=r"somebody else .* shifting, at a share of 0.2"):
            one.roll_back("m")
        one.shift("m", 0.5)
        fleet.poll()
        pool.first = lambda: two.roll_back("m")
        with pytest.raises(StateError, match="going back"):
            one.drain("m")
        fleet.poll()
        pool.first = lambda: two.reclaim("m")
        with pytest.raises(StateError, match="somebody else"):
            one.reclaim("m")
        fleet.reclaim()
        assert one.get("m").kept == OLD


def test_operators_of_different_models_do_not_disturb_each_other() -> None:
    with Fleet(1) as fleet:
        pool, one = racing(fleet)
        two = fleet.another_operator()
        pool.first = lambda: two.announce("other", OLD, NEW)
        one.announce("m", OLD, NEW)
        pool.first = lambda: two.shift("other", 0.1)
        one.shift("m", 0.9)
        assert [(rollout.model, rollout.share) for rollout in two.all()] == [("m", 0.9), ("other", 0.1)]
        generations = [rollout.generation for rollout in two.all()]
        assert len(set(generations)) == 2


def test_a_change_that_never_gets_through_is_given_up() -> None:
    with Fleet(0) as fleet:
        pool, one = racing(fleet)
        two = fleet.another_operator()
        two.announce("other", OLD, NEW)
        number = 0

        def again() -> None:
            nonlocal number
            number += 1
            two.shift("other", number / 100)
            pool.first = again

        pool.first = again
        with pytest.raises(TierError, match="try again"):
            one.announce("m", OLD, NEW)


class Forgetful(MemoryPool):
    """Does what it is told, and its answer is lost."""

    def swap(self, name: str, old: bytes | None, new: bytes, ttl: float | None = None) -> bool:
        super().swap(name, old, new, ttl)
        raise TierError("io", "the answer was lost")


def test_a_step_whose_answer_was_lost_can_be_made_again() -> None:
    with Fleet(1) as fleet:
        lossy, good = Rollouts(Forgetful(fleet.server, LAYOUT), wall=fleet.clock), fleet.operator
        steps: list[Callable[[Rollouts], object]] = [
            lambda operator: operator.announce("m", OLD, NEW),
            lambda operator: operator.warm("m", 3),
            lambda operator: operator.shift("m", 0.5),
            lambda operator: operator.drain("m"),
            lambda operator: operator.reclaim("m"),
        ]
        for step in steps:
            with pytest.raises(TierError, match="lost"):
                step(lossy)
            assert step(good) == good.get("m")
            fleet.poll()
        fleet.reclaim()
        assert good.get("m").kept == NEW


STEPS: dict[str, Callable[[Rollouts], Rollout]] = {
    "announce": lambda operator: operator.announce("m", {"weights": W1}, {"weights": W3}),
    "warm": lambda operator: operator.warm("m", 5),
    "shift": lambda operator: operator.shift("m", 0.25),
    "drain": lambda operator: operator.drain("m"),
    "reclaim": lambda operator: operator.reclaim("m"),
    "back": lambda operator: operator.roll_back("m"),
}
FOLLOWS = {
    Phase.ANNOUNCED: {"warm", "shift", "back"},
    Phase.WARMING: {"warm", "shift", "back"},
    Phase.SHIFTING: {"shift", "drain", "back"},
    Phase.DRAINING: {"drain", "reclaim", "back"},
    Phase.RECLAIMING: {"reclaim", "back"},
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("phase", FOLLOWS)
def test_what_may_follow(phase: Phase, step: str) -> None:
    with Fleet(1) as fleet:
        begun(fleet, phase)
        before = fleet.server.names[BOARD]
        if step in FOLLOWS[phase]:
            STEPS[step](fleet.operator)
            return
        with pytest.raises(StateError, match="'m' is " + phase.value):
            STEPS[step](fleet.operator)
        assert fleet.server.names[BOARD] == before


@pytest.mark.parametrize("phase", FOLLOWS)
def test_rolling_back(phase: Phase) -> None:
    with Fleet(2) as fleet:
        begun(fleet, phase)
        running = [Request(fleet.nodes[0], f"s{i}", LONG) for i in range(6)]
        rollout = fleet.operator.roll_back("m")
        assert fleet.operator.roll_back("m") == rollout
        for step in ("announce", "warm", "shift", "drain"):
            with pytest.raises(StateError, match="'m' is draining"):
                STEPS[step](fleet.operator)
        fleet.poll()
        assert set(versions(fleet.nodes[0]) + versions(fleet.nodes[1])) == {W1}
        ask(fleet.nodes[1], "s1", LONG)
        for request in running:
            request.step([3] * 5)
            request.finish()
        before = fleet.server.families.get(family("weights", W2), 0)
        fleet.reclaim()
        assert fleet.server.families[family("weights", W2)] > before
        for kv in fleet.nodes:
            assert amount(kv, weights=W2) == (0, 0)
            assert ask(kv, "s1", LONG).hit == (24 if kv is fleet.nodes[1] or phase is not Phase.RECLAIMING else 0)
            kv.check()
        with pytest.raises(StateError, match="is done"):
            fleet.operator.roll_back("m")
        assert fleet.operator.announce("m", OLD, NEW).phase is Phase.ANNOUNCED  # another try


def test_an_a_b_test_stays() -> None:
    with Fleet(2) as fleet:
        begun(fleet, Phase.SHIFTING)
        first = versions(fleet.nodes[0])
        for _ in range(50):
            fleet.poll()
        assert versions(fleet.nodes[0]) == versions(fleet.nodes[1]) == first
        for session in ("s0", "s1", "s2", "s3"):
            assert ask(fleet.nodes[0], session, LONG).hit == len(LONG)  # each of its own version
        fleet.operator.shift("m", 0.25)
        fleet.poll()
        fewer = versions(fleet.nodes[0])
        assert all(now in (before, W1) for now, before in zip(fewer, first, strict=True))
        assert fewer.count(W2) < first.count(W2)


# -- what changes


SWITCHES: list[tuple[dict[str, Any], dict[str, Any], Identity]] = [
    ({"weights": W1}, {"weights": W2}, BASE),
    ({"adapter": A1}, {"adapter": A2}, BASE.with_(adapter=A1)),
    ({"adapter": ""}, {"adapter": A2}, BASE),
    ({"quantisation": "none"}, {"quantisation": "int8"}, BASE),
    ({"tokenizer": W1}, {"tokenizer": W2}, BASE.with_(tokenizer=W1)),
    ({"weights": W1, "adapter": A1}, {"weights": W2, "adapter": A2}, BASE.with_(adapter=A1)),
    ({"weights": bytes(32)}, {"weights": bytes(31) + b"\1"}, BASE.with_(weights=bytes(32))),
    ({"model": "m"}, {"model": "m-2"}, BASE),
]


@pytest.mark.parametrize(("old", "new", "who"), SWITCHES, ids=lambda value: "-".join(value) if isinstance(value, dict) else "")
def test_a_switch_of_any_kind(old: dict[str, Any], new: dict[str, Any], who: Identity) -> None:
    """What has another model, or another version, is left alone, as far as it does not share a digest that goes."""
    stranger = Identity(model="another", weights=W3, tenant="a")
    sibling = who.with_(adapter=content_digest(b"of somebody else"), weights=W3, tokenizer=W3, model="m-3")
    with Fleet(2) as fleet:
        a, b = fleet.nodes
        for kv in fleet.nodes:
            for other in (stranger, sibling):
                ask(kv, "s", LONG, other, "another")
            ask(kv, "s", LONG, who)
            kv.flush()
        fleet.operator.announce("m", old, new)
        fleet.poll()
        assert ask(a, "s", LONG, who).hit == len(LONG)
        fleet.operator.shift("m", 1.0)
        fleet.poll()
        moved = ask(a, "s", LONG, who)
        assert moved.hit == 0
        assert all(getattr(moved.who, name) == value for name, value in new.items())
        fleet.operator.drain("m")
        fleet.poll()
        fleet.reclaim()
        for kv in fleet.nodes:
            assert not [one for one in kv.held() if one.who.with_(epoch=0) == who]
            for other in (stranger, sibling):
                assert ask(kv, "s", LONG, other, "another").hit == len(LONG)
            kv.check()
        assert ask(a, "s", LONG, who).hit == len(LONG)
        with b.sequence(LONG, who) as seq:
            assert seq.hit_tokens == 0  # neither here nor in the pool


def test_no_more_is_raised_than_must_be() -> None:
    """Where the adapter changes too, other adapters on the old weights stay."""
    mine, others = BASE.with_(adapter=A1), BASE.with_(adapter=content_digest(b"of another"))
    with Fleet(1) as fleet:
        (kv,) = fleet.nodes
        ask(kv, "s", LONG, mine)
        ask(kv, "s", LONG, others, "other")
        fleet.operator.announce("bot", {"model": "m", "weights": W1, "adapter": A1}, {"model": "m", "weights": W2, "adapter": A2})
        fleet.operator.shift("bot", 1.0)
        fleet.operator.drain("bot")
        fleet.poll()
        fleet.reclaim("bot")
        assert kv.version("bot", "s") == {"model": "m", "weights": W2, "adapter": A2}
        assert ask(kv, "s", LONG, others, "other").hit == len(LONG)
        with kv.sequence(LONG, mine) as seq:
            assert seq.hit_tokens == 0


def test_it_is_not_done_before_all_nodes_have_heard_that_it_ends() -> None:
    with Fleet(2) as fleet:
        fleet.operator.announce("m", OLD, NEW)
        fleet.operator.shift("m", 1.0)
        fleet.operator.drain("m")
        fleet.poll()
        for _ in range(3):
            assert fleet.operator.reclaim("m").phase is Phase.RECLAIMING
            fleet.poll(fleet.nodes[0])
        fleet.poll()
        assert fleet.operator.reclaim("m").phase is Phase.DONE


def test_what_one_rollout_has_settled_holds_in_the_next() -> None:
    with Fleet(1) as fleet:
        (kv,) = fleet.nodes
        begun(fleet, Phase.RECLAIMING)
        fleet.reclaim()
        with pytest.raises(StateError, match="is served as"):
            fleet.operator.announce("m", OLD, {"weights": W3})
        fleet.operator.announce("m", {"adapter": A1}, {"adapter": A2})
        fleet.operator.shift("m", 1.0)
        fleet.poll()
        assert kv.version("m", "s") == {"weights": W2, "adapter": A2}
        fleet.operator.roll_back("m")
        fleet.poll()
        assert kv.version("m", "s") == {"weights": W2, "adapter": A1}


BAD: list[tuple[Any, Any, Any, type[Exception], str]] = [
    ("m", OLD, OLD, ConfigError, "other values"),
    ("m", OLD, {"adapter": A1}, ConfigError, "same fields"),
    ("m", OLD, OLD | {"adapter": A1}, ConfigError, "same fields"),
    ("m", {"weights": "llama-v1"}, NEW, IdentityError, "content digest"),
    ("m", OLD, {"weights": "x" * 64}, IdentityError, "content digest"),
    ("m", OLD, {"weights": b"short"}, IdentityError, "content digest"),
    ("m", OLD, {"weights": ""}, IdentityError, "content digest"),
    ("m", OLD, {"weights": 5}, IdentityError, "weights"),
    ("m", {"adapter": "support-bot"}, {"adapter": A1}, IdentityError, "content digest"),
    ("m", {"tokenizer": "t"}, {"tokenizer": W1}, IdentityError, "content digest"),
    ("m", {"tenant": "a"}, {"tenant": "b"}, IdentityError, "fields"),
    ("m", {}, {}, IdentityError, "fields"),
    ("m", None, NEW, IdentityError, "fields"),
    ("m", {"quantisation": ""}, {"quantisation": "int8"}, IdentityError, "quantisation"),
    ("", OLD, NEW, ConfigError, "model"),
    (None, OLD, NEW, ConfigError, "model"),
]


@pytest.mark.parametrize(("model", "old", "new", "kind", "text"), BAD)
def test_what_is_no_rollout(model: Any, old: Any, new: Any, kind: type[Exception], text: str) -> None:
    with Fleet(0) as fleet:
        with pytest.raises(kind, match=text):
            fleet.operator.announce(model, old, new)
        assert BOARD not in fleet.server.names


def test_bad_steps() -> None:
    with Fleet(1) as fleet:
        with pytest.raises(ConfigError, match="there is no rollout of 'm'"):
            fleet.operator.shift("m", 0.5)
        with pytest.raises(ConfigError, match="there are none"):
            fleet.operator.reclaim("m")
        fleet.operator.announce("m", OLD, NEW)
        before = fleet.server.names[BOARD]
        for share in (-0.1, 1.1, "half", None, True, float("nan")):
            with pytest.raises(ConfigError, match="share"):
                fleet.operator.shift("m", share)  # type: ignore[arg-type]
        for prefixes in (0, 1.5, "all"):
            with pytest.raises(ConfigError, match="prefixes"):
                fleet.operator.warm("m", prefixes)  # type: ignore[arg-type]
        assert fleet.server.names[BOARD] == before


# -- warming


def test_the_hottest_prefixes_come_first() -> None:
    with Fleet(1) as fleet:
        (kv,) = fleet.nodes
        shared = prompt(0, 2)
        for branch, uses in ((1, 3), (2, 1), (3, 2)):
            for _ in range(uses):
                ask(kv, "s", shared + prompt(branch, 1))
        for _ in range(4):
            ask(kv, "s", prompt(9, 1))
        ask(kv, "s", prompt(8, 3), BASE.with_(tenant="another"))
        found = hottest(kv, BASE, 10)
        assert [(prefix.tokens.tolist(), prefix.uses) for prefix in found] == [
            (shared, 6),
            (prompt(9, 1), 4),
            (shared + prompt(1, 1), 3),
            (shared + prompt(3, 1), 2),
            (shared + prompt(2, 1), 1),
        ]
        assert [prefix.uses for prefix in hottest(kv, BASE, 2)] == [6, 4]
        assert hottest(kv, BASE, 0) == []
        kv.invalidate(weights=W1)
        assert hottest(kv, BASE, 10) == []


def test_what_belongs_to_a_prefix_comes_with_it() -> None:
    with Fleet(1) as fleet:
        (kv,) = fleet.nodes
        kv.sequence(prompt(0, 3), BASE, written=True, extra_keys={1: b"an image"}).release()
        (prefix,) = hottest(kv, BASE, 4)
        assert prefix.extra_keys == {1: b"an image"}


def test_bad_questions_for_the_hottest() -> None:
    with Fleet(1) as fleet:
        with pytest.raises(ConfigError, match="n is"):
            hottest(fleet.nodes[0], BASE, -1)
        with pytest.raises(IdentityError, match="Identity"):
            hottest(fleet.nodes[0], "me", 1)  # type: ignore[arg-type]


def test_warming_makes_the_first_requests_hits() -> None:
    with Fleet(2) as fleet:
        a, b = fleet.nodes
        for kv in fleet.nodes:
            for name in range(3):
                ask(kv, "s", prompt(name, 3))
        fleet.operator.announce("m", OLD, NEW)
        fleet.poll()
        assert warm(a, "m", BASE, lambda prefix, who: None) == 0  # not yet
        assert warm(a, "unheard of", BASE, lambda prefix, who: None) == 0
        fleet.operator.warm("m", 2)
        fleet.poll()
        computed: list[Identity] = []

        def prefill(prefix: Prefix, who: Identity) -> None:
            computed.append(who)
            ask(a, "s", prefix.tokens.tolist(), who, "nobody's")

        assert warm(a, "m", BASE, prefill) == 2
        assert warm(a, "m", BASE, prefill) == 0  # they are there
        assert computed == [BASE.with_(weights=W2)] * 2
        fleet.poll()
        progress = fleet.operator.progress("m")
        assert [progress.part(node).warmed for node in progress.nodes] == [2, 0]
        a.flush()
        assert warm(b, "m", BASE, prefill) <= 2  # what the pool has need not be computed again
        fleet.operator.shift("m", 1.0)
        fleet.poll()
        assert sum(ask(a, "s", prompt(name, 3)).hit for name in range(3)) == 24
