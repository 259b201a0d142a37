"""What is written is read back; a line that a kill cut off is left out, and nothing else that is wrong is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import Clock
from tests.pool.content import HEAD, Space, kv, links, look, looks_like, read_stamp
from tests.pool.history import Call, Done, Life, Over, Recorder, Request, read

SPACE = Space("acme", "m", "w")


def test_records_come_back_in_their_order(tmp_path: Path) -> None:
    request = Request("a", 1, 0.5, 1.0, SPACE, [1, 2], (0, 3, 0), [("pool", "stamp", "digest")])
    first, second = Recorder(tmp_path / "a-1.jsonl"), Recorder(tmp_path / "b-1.jsonl")
    for record in (Life("a", 1, 0.25), request, Over("a", 1, 2.0)):
        first.write(record)
    second.write(Life("b", 1, 0.5))
    lines = read(tmp_path)
    assert [line.record for line in lines] == [Life("a", 1, 0.25), request, Over("a", 1, 2.0), Life("b", 1, 0.5)]
    assert [line.where for line in lines] == ["a-1.jsonl:1", "a-1.jsonl:2", "a-1.jsonl:3", "b-1.jsonl:1"]
    assert isinstance(request.space, Space)
    assert str(lines[1]).startswith('a-1.jsonl:2: {"type":"request"')


def test_a_last_line_that_was_cut_off_is_left_out_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "a-1.jsonl"
    recorder = Recorder(file)
    recorder.write(Life("a", 1, 0.25))
    recorder.write(Over("a", 1, 2.0))
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert len(read(tmp_path)) == whole[:length].count(b"\n")
    file.write_bytes(whole.replace(b"life", b"death"))
    with pytest.raises(ValueError, match=r"a-1\.jsonl:1 is no record"):
        read(tmp_path)


def test_a_call_has_its_begin_and_its_end_and_what_it_raised(tmp_path: Path) -> None:
    clock = Clock(1.0)
    recorder = Recorder(tmp_path / "a-1.jsonl", "a", 1, clock)
    with recorder.call("admit", 0.5):
        clock.advance(0.25)
    with pytest.raises(OSError, match="expected"), recorder.call("bump", 0.5, OSError):
        raise OSError("expected")
    with pytest.raises(ValueError, match="other"), recorder.call("bump", 0.5, OSError):
        raise ValueError("other")
    *others, last = (line.record for line in read(tmp_path))
    assert others == [
        Call("a", 1, 1, "admit", 1.0, 0.5),
        Done("a", 1, 1, 1.25),
        Call("a", 1, 2, "bump", 1.25, 0.5),
        Done("a", 1, 2, 1.25),
        Call("a", 1, 3, "bump", 1.25, 0.5),
    ]
    assert isinstance(last, Done)
    assert last.error is not None
    assert last.error.startswith("ValueError('other') in test_history.py:")


def test_bytes_tell_whose_they_are_and_every_one_of_them_counts() -> None:
    link = links(SPACE, [1, 2, 3, 4], 2)[1]
    data = kv(SPACE, (1, 2, 3), 1, link, 200)
    said, digest = look(data)
    assert (said, digest) == looks_like(SPACE, (1, 2, 3), 1, link, 200)
    stamp = read_stamp(said)
    assert stamp is not None
    assert stamp[:3] == (SPACE, (1, 2, 3), 1)
    assert str(stamp) == said
    for at in range(200):
        wrong = look(data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1 :])
        assert wrong != (said, digest)
        if at >= HEAD:
            assert wrong[0] == said


def test_bytes_differ_by_everything_that_they_depend_on() -> None:
    spaces = [SPACE, SPACE._replace(tenant="umbrella"), SPACE._replace(model="n"), SPACE._replace(weights="v")]
    prompts = [[1, 2, 3, 4], [1, 2, 3, 5], [0, 2, 3, 4]]
    labels = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    made = [kv(space, label, 1, links(space, prompt, 2)[1], 200) for space in spaces for prompt in prompts for label in labels]
    assert len({data[HEAD:] for data in made}) == len(made)


@pytest.mark.parametrize("text", ["", "a", "a|b|c|1.2.3|0", "a|b|c|1.2|0|d", "a|b|c|1.x.3|0|d", "a|b|c|1.2.3|x|d", "\0" * 64])
def test_what_is_no_stamp_is_none(text: str) -> None:
    assert read_stamp(text) is None
