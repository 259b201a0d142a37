"""When an answer has ended, and what it says: the same for everything that generates one. It generates nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenure.scbench.session import Session

if TYPE_CHECKING:
    from tenure.scbench.model import Subject

__all__ = ["ended", "kept", "prediction"]


def ended(subject: Subject, session: Session, ids: Sequence[int]) -> bool:
    """Whether the last of these ids ends the answer: it ends texts, or completes the session's stop."""
    return ids[-1] in subject.stop or (session.stop != "" and session.stop in subject.decode(ids))


def prediction(subject: Subject, session: Session, ids: Sequence[int]) -> str:
    """What an answer says, up to the session's stop."""
    said = subject.decode(one for one in ids if one not in subject.stop)
    return said.split(session.stop)[0] if session.stop else said


def kept(subject: Subject, session: Session, ids: Sequence[int]) -> list[int]:
    """What of an answer stays in a conversation: without the token that ended it, since the session's `close` follows."""
    return list(ids[:-1] if ended(subject, session, ids) else ids)
