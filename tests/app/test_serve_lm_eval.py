"""lm-evaluation-harness, offline, through its own API clients against `tailrace serve`: each score is transformers'."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.lm_eval_run import Client, Plan, Scored
from tests.reference_model import TOLERANCE, ReferenceModel
from tests.serve_process import ROOT, ServeProcess

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.timeout(600)]

DOCUMENTS: list[dict[str, Any]] = [
    {"context": "The capital of France is", "endings": [" Paris", " Berlin and then some", "."]},
    {"context": "A", "endings": [" man", " 🙂漢字 é"]},
    {"context": "I like 🙂 and 漢", "endings": ["字", "字 🐈🐈"]},
    {"context": "1, 2, 3,", "endings": [" 4, 5, 6, 7", " 4, 5, 7"]},
    {"context": "word " * 200 + "word", "endings": [" word word word"]},
    # What comes next is the end of the answer: the token that is generated has no text.
    {"context": "<|im_start|>user\nSay yes.<|im_end|>", "endings": ["\n<|im_start|>assistant\nYes."]},
]
OFFLINE = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
GENERATE = "sglang-generate"


def plan_of(url: str, model: str, model_dir: Path, documents: Path) -> Plan:
    """Requests of ids and of texts, one by one, in batches and several at once; and its client for SGLang's route."""
    remote: dict[str, str | int | bool] = {"model": model, "base_url": f"{url}/v1/completions"}
    own = remote | {"tokenizer_backend": "huggingface", "tokenizer": str(model_dir)}
    texts = own | {"tokenized_requests": False}
    return Plan(
        str(documents),
        {
            "ids": Client("local-completions", own | {"batch_size": 1}),
            "ids in batches": Client("local-completions", own | {"batch_size": 4}),
            "texts": Client("local-completions", texts | {"batch_size": 1}),
            "texts in batches": Client("local-completions", texts | {"batch_size": 4}),
            "several at once": Client("local-completions", own | {"num_concurrent": 4}),
            # Asks the server for its tokenizer: /tokenizer_info, /tokenize, /detokenize.
            "the server's tokenizer": Client("local-completions", remote),
            GENERATE: Client(GENERATE, own | {"base_url": f"{url}/generate"}),
        },
    )


async def run(plan: Plan, folder: Path) -> dict[str, list[Scored]]:
    """Run the harness; what each client made of every ending."""
    written = folder / "plan.json"
    written.write_bytes(msgspec.json.encode(plan))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.lm_eval_run", str(written)),
        cwd=ROOT,
        env=os.environ | OFFLINE | {"HF_HOME": str(folder / "hub"), "OPENAI_API_KEY": "none", "NO_PROXY": "127.0.0.1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, log = await process.communicate()
    assert process.returncode == 0, log.decode()
    return msgspec.json.decode(told, type=dict[str, list[Scored]])


def truth(reference: ReferenceModel) -> list[Scored]:
    """What a plain forward pass says of every ending."""
    scored: list[Scored] = []
    for document in DOCUMENTS:
        context = document["context"]
        for ending in document["endings"]:
            prompt, whole = reference.ids(context), reference.ids(context + ending)
            output = whole[len(prompt) :]
            assert whole == prompt + output
            logprobs = reference.logprobs(prompt, output)
            total = sum(float(here[token_id]) for here, token_id in zip(logprobs, output, strict=True))
            scored.append(Scored(context, ending, total, logprobs.argmax(-1).tolist() == output))
    return scored


async def test_every_score_is_that_of_transformers(
    served: ServeProcess, reference: ReferenceModel, small_model_dir: Path, tmp_path: Path
) -> None:
    documents = tmp_path / "documents.jsonl"
    documents.write_bytes(b"\n".join(map(msgspec.json.encode, DOCUMENTS)))
    async with served.client() as client:
        model = (await client.get("/v1/models")).json["data"][0]["id"]
    told = await run(plan_of(served.url, model, small_model_dir, documents), tmp_path)
    expected = truth(reference)
    assert {score.greedy for score in expected} == {True, False}
    assert len(told) == 7
    for name, scores in told.items():
        assert [(score.context, score.ending) for score in scores] == [
            (score.context, score.ending) for score in expected
        ], name
        for score, true in zip(scores, expected, strict=True):
            assert score.logprob == pytest.approx(true.logprob, rel=0, abs=TOLERANCE), (name, score)
            # Its client of SGLang's route tells the opposite: a fault of the harness (version 0.4.13).
            assert name == GENERATE or score.greedy is true.greedy, (name, score)
