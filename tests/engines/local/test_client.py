"""The client and its worker process, over a tiny random model."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import zmq
from transformers import LlamaConfig, LlamaForCausalLM

from engines.errors import EngineUnavailable
from engines.local import worker_process, worker_session
from engines.local.client import LocalEngine
from engines.local.options import LocalEngineOptions
from engines.local.wire import Hello, Submit, decode_to_gateway, encode
from engines.protocol import BatchTokenOut, Finish, FinishKind
from tests.engines.local.listeners import GUARD_SECONDS, Recorder
from tests.engines.local.requests import greedy

ROOT = Path(__file__).parents[3]
PARENT = """
import asyncio, sys
from engines.local.client import LocalEngine
from engines.local.options import LocalEngineOptions
from tests.engines.local.listeners import Recorder

async def main():
    engine = LocalEngine(LocalEngineOptions(model=sys.argv[1], dtype="float32", threads=1))
    await engine.start(Recorder())
    print(engine.pid, engine.address, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        eos_token_id=2,
        initializer_range=0.3,
    )
    built = LlamaForCausalLM(config)
    built.train(False)
    return built


@pytest.fixture(scope="module")
def options(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> LocalEngineOptions:
    folder = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(folder)
    return LocalEngineOptions(model=str(folder), dtype="float32", threads=1, slots=2, queue_limit=1, prefill_tokens=64)


def generated(model: Any, prompt: list[int], count: int) -> list[int]:
    result = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, eos_token_id=None)
    ids: list[int] = result[0, len(prompt) :].tolist()
    return ids


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_it_serves_dies_comes_back_and_leaves_nothing(
    model: LlamaForCausalLM, options: LocalEngineOptions
) -> None:
    before, lines, heard = descriptors(), list[str](), Recorder()
    engine = LocalEngine(options, engine_id="mine", on_progress=lines.append)
    with pytest.raises(EngineUnavailable):
        engine.submit(greedy("early", [5], 1))
    await engine.start(heard)
    assert engine.state == "ready"
    assert heard.ups == [engine.info]
    assert (engine.info.engine_id, engine.info.vocab_size, engine.info.eos_token_ids) == ("mine", 300, (2,))
    assert (engine.info.max_model_len, engine.info.dtype, engine.info.device) == (4096, "float32", "cpu")
    assert any("loaded" in line for line in lines)
    folder = Path(engine.address.removeprefix("ipc://")).parent
    assert folder.stat().st_mode & 0o777 == 0o700

    engine.submit(greedy("x", [5, 6, 7], 20))
    await heard.until(lambda: heard.finishes)
    assert heard.tokens["x"] == generated(model, [5, 6, 7], 20)
    assert heard.finishes["x"] == Finish(FinishKind.LENGTH)
    assert all(frame.engine_id == "mine" for frame in heard.frames)

    engine.submit(greedy("lost", [5], 4000))
    await heard.until(lambda: heard.tokens["lost"])
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    await heard.until(lambda: heard.downs)
    with pytest.raises(EngineUnavailable):
        engine.submit(greedy("late", [5], 1))
    engine.abort(["lost"])
    frames = len(heard.frames)
    await heard.until(lambda: len(heard.ups) == 2)
    assert len(heard.frames) == frames
    assert len(heard.downs) == 1
    assert heard.downs[0][0] == "mine"
    assert "SIGKILL" in heard.downs[0][1]
    engine.submit(greedy("y", [9, 8], 5))
    await heard.until(lambda: "y" in heard.finishes)
    assert heard.tokens["y"] == generated(model, [9, 8], 5)

    await engine.close()
    await engine.close()
    assert engine.state == "down"
    assert len(heard.downs) == 1
    assert not workers()
    assert not folder.exists()
    assert descriptors() <= before


def workers() -> list[psutil.Process]:
    """Engine processes started from here; servers of other tests have theirs below them."""
    return [child for child in psutil.Process().children() if "engines.local.worker" in " ".join(child.cmdline())]


async def test_gateways_share_a_worker_and_only_that(model: LlamaForCausalLM, options: LocalEngineOptions) -> None:
    heard, other_heard = Recorder(), Recorder()
    engine = LocalEngine(options)
    await engine.start(heard)
    other = LocalEngine(LocalEngineOptions(address=engine.address), engine_id="theirs")
    try:
        await other.start(other_heard)
        assert other.info.engine_id == "theirs"
        assert other.pid is None
        engine.submit(greedy("x", [5, 6, 7], 30))
        other.submit(greedy("x", [9, 8], 30))
        await heard.until(lambda: heard.finishes)
        await other_heard.until(lambda: other_heard.finishes)
        assert heard.tokens == {"x": generated(model, [5, 6, 7], 30)}
        assert other_heard.tokens == {"x": generated(model, [9, 8], 30)}

        for name in ("one", "two", "three", "four"):
            engine.submit(greedy(name, [5], 4000))
        await heard.until(lambda: "four" in heard.finishes)
        assert heard.finishes["four"].code == "overloaded"
        engine.abort(["one", "two", "three"])
        await heard.until(lambda: heard.frames[-1].running == 0)
        await other_heard.until(lambda: other_heard.frames[-1].running == 0)
        assert set(heard.finishes) == {"x", "four"}

        await engine.close()
        await other_heard.until(lambda: other_heard.downs)
        assert other_heard.downs[0][0] == "theirs"
        assert other.state == "down"
    finally:
        await other.close()
        await engine.close()


async def test_a_gateway_that_vanishes_takes_its_requests_along(options: LocalEngineOptions) -> None:
    heard = Recorder()
    engine = LocalEngine(options)
    await engine.start(heard)
    try:
        with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
            stranger.linger = 0
            stranger.connect(engine.address)
            for message in (Hello("x"), Submit(greedy("x", [5], 4000)), Submit(greedy("y", [5], 4000))):
                stranger.send(encode(message))
            async with asyncio.timeout(GUARD_SECONDS):
                while not isinstance(decode_to_gateway(await asyncio.to_thread(stranger.recv)), BatchTokenOut):
                    pass
        await heard.until(lambda: heard.frames and heard.frames[-1].running == 0)
        assert max(frame.running for frame in heard.frames) >= 1
        engine.submit(greedy("x", [5], 3))
        await heard.until(lambda: heard.finishes)
    finally:
        await engine.close()


async def test_a_worker_that_hangs_is_replaced(options: LocalEngineOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_session, "PING_SECONDS", 0.2)
    monkeypatch.setattr(worker_session, "SILENCE_SECONDS", 3.0)
    monkeypatch.setattr(worker_process, "STOP_SECONDS", 0.2)
    heard = Recorder()
    engine = LocalEngine(options)
    await engine.start(heard)
    try:
        hanging = engine.pid
        assert hanging is not None
        os.kill(hanging, signal.SIGSTOP)
        await heard.until(lambda: len(heard.ups) == 2)
        assert [reason for _, reason in heard.downs] == ["the engine does not answer"]
        assert not psutil.pid_exists(hanging)
    finally:
        await engine.close()


async def test_a_model_that_cannot_be_loaded_is_a_reason(tmp_path: Path) -> None:
    heard = Recorder()
    engine = LocalEngine(LocalEngineOptions(model=str(tmp_path / "missing")))
    with pytest.raises(EngineUnavailable, match="there is no directory"):
        await engine.start(heard)
    assert engine.state == "down"
    assert (heard.downs, heard.ups) == ([], [])
    assert not workers()


async def test_an_address_that_is_none_is_a_reason() -> None:
    engine = LocalEngine(LocalEngineOptions(address="nonsense"))
    with pytest.raises(EngineUnavailable, match="could not be started"):
        await engine.start(Recorder())


async def test_closing_while_it_starts_stops_it(options: LocalEngineOptions) -> None:
    lines: asyncio.Queue[str] = asyncio.Queue()
    engine = LocalEngine(options, on_progress=lines.put_nowait)
    starting = asyncio.create_task(engine.start(Recorder()))
    async with asyncio.timeout(GUARD_SECONDS):
        await lines.get()
        await engine.close()
        with pytest.raises(EngineUnavailable, match="closed"):
            await starting
    assert not workers()


def test_the_worker_does_not_outlive_its_parent(options: LocalEngineOptions) -> None:
    assert options.model is not None
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, options.model], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        pid, address = parent.stdout.readline().split()
        worker = psutil.Process(int(pid))
        parent.kill()
    worker.wait(GUARD_SECONDS)
    assert not Path(address.removeprefix("ipc://")).parent.exists()
