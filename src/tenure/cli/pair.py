"""`tenure demo --pool`: two nodes, each a process of its own, answer recorded sessions in turns over a pool that they share, and
midway one is killed. demo.py calls it; it tells the nodes what to do and shows what they say. It runs no model."""

from __future__ import annotations

from contextlib import ExitStack
from time import monotonic

from rich.console import Console

from tenure.cli import turns
from tenure.cli.live import Growing
from tenure.cli.pair_node import TIERS, Done, Half, Ready, Setup
from tenure.cli.pair_process import GONE, Member, in_order, pool_at
from tenure.cli.recorded import Step
from tenure.cli.serving import TOLERANCE
from tenure.cli.turns import Turn, Verdict
from tenure.errors import TenureError
from tenure.starting import uninterrupted

__all__ = ["run"]


def run(screen: Console, pool: str, setup: Setup, limit: float) -> tuple[list[Turn], str]:
    """Shows all of it on the screen; returns the turns, and why it stopped before the last, if it did.

    pool: "embedded" or an address. limit: seconds after which no turn begins. Raises ConfigError for a pool that cannot be used,
    TenureError with what has failed in a node. No process is left behind, unless this one is killed (SIGKILL).
    """
    with ExitStack() as opened:
        opened.enter_context(in_order())
        with uninterrupted():  # Ctrl-C is for this process alone
            address = opened.enter_context(pool_at(pool))
            members = []
            for name in ("A", "B"):
                members.append(Member(name, address, setup))
                opened.callback(members[-1].kill)
        openings = [member.expect(Ready).opening for member in members]
        screen.rule("Session", align="left")
        for text in (*openings[0], _plan(pool)):
            screen.print(text)
        screen.print()
        pair = _Pair(members, setup.steps)
        with Growing(screen, turns.header(TIERS, nodes=True)) as table:
            stopped = pair.serve(table, limit)
        screen.print(turns.notes(TIERS))
        screen.rule("Summary", align="left")
        for text in ([stopped] if stopped else []) + pair.summary():
            screen.print(text)
        for member in pair.living:
            for text in member.end().closing:
                screen.print(f"Node {member.name}: {text}")
    return pair.done, stopped


class _Pair:
    """Who is there, and what has been answered. When half of the steps, or of the time for them, are over, the first node is
    killed in its next turn."""

    def __init__(self, members: list[Member], steps: list[Step]) -> None:
        self.living = list(members)
        self.done: list[Turn] = []
        self._members = members
        self._steps = steps
        self._ends: list[str] = []  # of nodes, as sentences
        self._alone = len(steps)  # the first step that was answered by the only node left

    def serve(self, table: Growing, limit: float) -> str:
        """Has each step answered, and adds it to the table; returns why it stopped before the last, if it did."""
        started = monotonic()
        try:
            for place, step in enumerate(self._steps):
                if monotonic() - started > limit:
                    return f"Stopped after {place} of {len(self._steps)} turns: {limit:g} s are over (--seconds)."
                while len(self.done) == place:
                    member = self.living[(step.turn - 1) % len(self.living)]
                    table.tell(f"turn {place + 1} of {len(self._steps)}: node {member.name}, cold and warm")
                    half = place >= max(1, len(self._steps) // 2) or monotonic() - started > limit / 2
                    if (found := self._asked(member, place, kill=half)) is None:
                        table.add(self._gone(member, step, place))
                        continue
                    member.done.append(found)
                    self.done.append(found.turn)
                    table.add(turns.line(found.turn, TIERS))
        except KeyboardInterrupt:
            return f"Interrupted after {len(self.done)} of {len(self._steps)} turns."
        return ""

    def summary(self) -> list[str]:
        """All turns in sentences, then each node's."""
        text = turns.summary(self.done, TOLERANCE, TIERS) if self.done else []
        text += [_share(member) for member in self._members]
        text += self._ends or ["No node was killed: the first had no turn in the second half."]
        if (after := self.done[self._alone :]) and len(self.living) == 1:
            (left,) = self.living
            right = sum(turn.answer.verdict is not Verdict.WRONG for turn in after)
            others = sum(done.others for done in left.done[-len(after) :])
            text.append(
                f"Then node {left.name} answered {len(after)} turns alone, {right} of them as cold; {others:,} of their tokens "
                "came from the pool, computed by others and new to it."
            )
        return text

    def _asked(self, member: Member, place: int, *, kill: bool) -> Done | None:
        """The step, answered; None when the node has ended before it was. kill: that is done to the first, if both are there."""
        try:
            member.tell(place)
            member.hear(Half)
            if kill and member is self._members[0] and len(self.living) > 1:
                member.kill()
                return None
            return member.hear(Done)
        except GONE:
            return None

    def _gone(self, member: Member, step: Step, place: int) -> str:
        """One node less. A line for the table. Raises TenureError when none is left."""
        how = member.kill()
        self.living.remove(member)
        if not self.living:
            raise TenureError(f"both nodes have ended, node {member.name} at turn {step.turn} of session {step.session}: {how}")
        self._alone = place
        self._ends.append(f"Node {member.name} ended in turn {step.turn} of session {step.session}: {how}.")
        return f"{member.name:4} {step.session} {step.turn}: {how}; node {self.living[0].name} goes on alone"


def _plan(pool: str) -> str:
    where = "an embedded server on this machine" if pool == "embedded" else "a server that was there"
    return (
        f"Two nodes, each a process with these tiers of its own, and a pool on {where}.\n"
        "A answers the odd turns of each session, B the even ones; midway A is killed."
    )


def _share(member: Member) -> str:
    """What a node had from the pool, and what it wrote."""
    answered = [done.turn for done in member.done]
    if not answered:
        return f"Node {member.name} answered no turn."
    claims = member.done[-1].claims
    return (
        f"Node {member.name} answered {len(answered)} turns: of {sum(turn.prompt for turn in answered):,} prompt tokens "
        f"{sum(turn.reused['pool'] for turn in answered):,} came from the pool, {sum(done.others for done in member.done):,} of "
        f"them new to it: others had computed them. It claimed and wrote {claims.won:,} blocks; {claims.already:,} it found "
        f"written already, {claims.refused:,} of its commits were refused."
    )
