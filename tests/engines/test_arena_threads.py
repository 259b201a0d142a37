"""The device tier where its bytes only come and go by copies, used by several threads and streams at once, as on a GPU. The GPU
here is made of streams that do what compute has queued only when somebody waits for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")

from tenure import Layout
from tenure.tiers.device import DeviceArena

LAYOUT = Layout(layers=2, heads=1, head_size=4)
SIZE = 4
PER_THREAD = 40  # frames: more than cross at a time, and not a multiple


_GPU = threading.RLock()


class Stream:
    """Work that has been queued and not been done."""

    def __init__(self, device: Any = None) -> None:
        self.queue: list[Callable[[], None]] = []
        self.cuda_stream = id(self)

    def synchronize(self) -> None:
        time.sleep(0.0002)  # others have their turn
        self.do(len(self.queue))

    def wait_stream(self, other: Stream) -> None:
        self.queue.append(lambda: other.do(len(other.queue)))

    def do(self, count: int) -> None:
        with _GPU:
            done, self.queue[:count] = self.queue[:count], []
            for job in done:
                job()


class Event:
    """A place in a stream."""

    def __init__(self, **_: Any) -> None:
        self.stream = Stream()
        self.reached = threading.Event()

    def record(self, stream: Stream) -> None:
        self.stream = stream
        stream.queue.append(self.reached.set)

    def synchronize(self) -> None:
        with _GPU:
            if not self.reached.is_set():
                self.stream.do(self.stream.queue.index(self.reached.set) + 1)


class Queued:
    """Memory of the GPU: what is written to it is queued on this thread's stream; what is read, is read when that is done."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __getitem__(self, place: Any) -> Queued:
        return Queued(self.tensor[place])

    def __setitem__(self, place: Any, value: Any) -> None:
        source = value.tensor if isinstance(value, Queued) else value
        torch.cuda.current_stream().queue.append(lambda: self.tensor.__setitem__(place, source))


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every thread's current stream, to be set by the test; a thread that has set none has one of its own."""
    current = threading.local()
    empty = torch.empty

    def now(_: Any = None) -> Stream:
        if not hasattr(current, "stream"):
            current.stream = Stream()
        return current.stream  # type: ignore[no-any-return]

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", now)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch, "empty", lambda *given, pin_memory=False, **named: empty(*given, **named))
    return current


def gpu(frames: int) -> DeviceArena:
    arena = DeviceArena(frames, LAYOUT, SIZE, dtype="fp32")
    arena.tensor.zero_()
    arena._bytes = None
    arena._blocks = Queued(arena.tensor)
    return arena


def needs_cuda() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def number(frame: int, turn: int = 0) -> int:
    return (frame * 7 + turn * 31) % 251 + 1


def elsewhere(job: Callable[[], None]) -> None:
    """Runs it in another thread, to its end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            job()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


@pytest.mark.parametrize("device", ["made up", "cuda"])
def test_threads_that_read_and_write_at_the_same_time_have_each_their_own_bytes(
    device: str, request: pytest.FixtureRequest
) -> None:
    if device == "cuda":
        needs_cuda()
        arena = DeviceArena(3 * PER_THREAD, LAYOUT, SIZE, dtype="fp32", device=device)
    else:
        request.getfixturevalue("streams")
        arena = gpu(3 * PER_THREAD)
    flat = arena.tensor.view(arena.frames, -1).view(torch.uint8)
    for frame in range(2 * PER_THREAD):
        flat[frame] = number(frame)
    wrong: list[str] = []
    begin = threading.Barrier(3)

    def read(first: int) -> None:
        frames = list(range(first, first + PER_THREAD))
        begin.wait(30)
        for _ in range(20):
            buffers = [bytearray(arena.block_bytes) for _ in frames]
            arena.read(frames, buffers)
            wrong.extend(f"read {f}" for f, b in zip(frames, buffers, strict=True) if b != bytes([number(f)]) * len(b))

    def write() -> None:
        frames = list(range(2 * PER_THREAD, 3 * PER_THREAD))
        begin.wait(30)
        for turn in range(20):
            arena.write(frames, [bytes([number(frame, turn)]) * arena.block_bytes for frame in frames])
            wrong.extend(f"write {frame}" for frame in frames if not (flat[frame] == number(frame, turn)).all())

    threads = [threading.Thread(target=read, args=(first,)) for first in (0, PER_THREAD)] + [threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong
    assert all((flat[frame] == number(frame)).all() for frame in range(2 * PER_THREAD))


def block(value: float) -> torch.Tensor:
    return torch.full((LAYOUT.layers, 2, LAYOUT.heads, SIZE, LAYOUT.head_size), value)


def read_elsewhere(arena: DeviceArena, frame: int) -> torch.Tensor:
    buffer = bytearray(arena.block_bytes)
    elsewhere(lambda: arena.read([frame], [buffer]))
    return torch.frombuffer(buffer, dtype=torch.float32)


def test_a_read_waits_for_what_engines_have_queued_on_any_stream(streams: Any) -> None:
    arena = gpu(4)
    one, other = Stream(), Stream()
    streams.stream = one
    arena.scatter([0], block(5))
    arena.copy(0, 1, SIZE)
    streams.stream = other  # a second engine
    arena.scatter([2], block(6))
    assert not arena.tensor.any()  # nothing has been done so far: else this test could not fail
    assert (read_elsewhere(arena, 2) == 6).all()
    assert (read_elsewhere(arena, 1) == 5).all()
    assert (read_elsewhere(arena, 0) == 5).all()


def test_on_a_gpu_a_read_waits_for_another_stream() -> None:
    needs_cuda()
    arena = DeviceArena(1, LAYOUT, SIZE, dtype="fp32", device="cuda")
    arena.tensor.zero_()
    source = block(5).to("cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(200_000_000)  # clock cycles: about 0.1 s in which nothing has been written
        arena.scatter([0], source)
    assert (read_elsewhere(arena, 0) == 5).all()


def test_a_read_waits_for_what_an_engine_wrote_itself_and_said_so(streams: Any) -> None:
    arena = gpu(2)
    arena._blocks[0] = block(5)  # a kernel of the engine's own
    assert (read_elsewhere(arena, 0) == 0).all()  # the control: nobody said so
    arena.used()
    assert (read_elsewhere(arena, 0) == 5).all()


def test_a_write_leaves_a_frame_alone_until_what_compute_takes_from_it_is_taken(streams: Any) -> None:
    arena = gpu(2)
    arena.tensor.fill_(5)
    taken = torch.zeros(LAYOUT.layers, 2, LAYOUT.heads, SIZE, LAYOUT.head_size)
    arena.gather([0], Queued(taken))
    assert not taken.any()
    new = bytes(torch.full((arena.block_bytes // 4,), 7.0).view(torch.uint8).tolist())
    elsewhere(lambda: arena.write([0], [new]))  # the frame is somebody else's now
    torch.cuda.current_stream().synchronize()
    assert (taken == 5).all()
    assert (arena.tensor[0] == 7).all()


def test_what_is_remembered_of_streams_has_a_bound(streams: Any) -> None:
    arena = gpu(1)
    kept = [Stream(), Stream()]
    for turn in range(10):
        streams.stream = kept[turn % 2]
        arena.scatter([0], block(turn))
    assert len(arena._events) == 2
