"""lm-evaluation-harness in a process of its own: `python -m tests.lm_eval_run PLAN`, results on standard output.

It imports much that warns, and sets environment variables and logging for the whole process.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec


class Client(msgspec.Struct, frozen=True):
    """One of its API clients: `kind` is its name there, args its model_args."""

    kind: str
    args: dict[str, str | int | bool]


class Plan(msgspec.Struct, frozen=True):
    """What to run: a file of documents with `context` and `endings`, and each client that scores them."""

    documents: str
    clients: dict[str, Client]


class Scored(msgspec.Struct, frozen=True):
    """What a client made of one ending."""

    context: str
    ending: str
    logprob: float
    greedy: bool


def task_of(plan: Plan) -> dict[str, Any]:
    """Multiple choice: each ending is scored after its context, none is written by the model."""
    return {
        "task": "endings",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": plan.documents}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{context}}",
        "doc_to_choice": "{{endings}}",
        "doc_to_target": 0,
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
        "num_fewshot": 0,
    }


def run(plan: Plan) -> dict[str, list[Scored]]:
    """What each client says of every ending, in order."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_defaults=False)
    told: dict[str, list[Scored]] = {}
    for name, client in plan.clients.items():
        results = simple_evaluate(
            client.kind, client.args, [task_of(plan)], task_manager=manager, bootstrap_iters=0, log_samples=True
        )
        assert results is not None
        told[name] = [
            Scored(*arguments, *response)
            for sample in results["samples"]["endings"]
            for arguments, ((response,),) in zip(sample["arguments"], zip(sample["resps"]), strict=True)
        ]
    return told


if __name__ == "__main__":
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    sys.stdout.buffer.write(msgspec.json.encode(run(plan)))
