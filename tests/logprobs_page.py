"""The examples of docs/logprobs.md: requests played on a scripted engine, answers compared where they are shown."""

import json
import re
from typing import Any

import msgspec

from engines.scripted.script import Script
from engines.scripted.values import ListedValues
from tests.cases.stage import Stage
from tests.markdown import ROOT

PAGE = ROOT / "docs" / "logprobs.md"
_PLAY = re.compile(r"^`POST (\S+)`\n\n```json\n(.*?)```\n\n```json\n(.*?)```$", re.DOTALL | re.MULTILINE)


class Played(msgspec.Struct, frozen=True):
    """One example: what is sent, and the part of the answer (or of the stream's events) that the page shows."""

    path: str
    body: dict[str, Any]
    shown: Any


def examples() -> list[Played]:
    """All examples of the page, in order."""
    return [Played(path, json.loads(body), json.loads(shown)) for path, body, shown in _PLAY.findall(PAGE.read_text())]


def script(stage: Stage) -> Script:
    """The engine says " Paris 🌟" to the prompt "The capital": values are made up, the tokens are the small model's."""
    paris, *star = stage.ids(" Paris🌟")
    the, a = stage.id_of("Ġthe"), stage.id_of("Ġa")
    of, capital = stage.id_of("Ġof"), stage.id_of("Ġcapital")
    output = [{paris: -0.25, the: -1.5, a: -3.0}, *({piece: -0.5, a: -2.0, the: -2.5} for piece in star)]
    return Script(
        token_ids=[paris, *star, stage.eos],
        values=ListedValues([*output, {stage.eos: -0.125, a: -4.0}], prompt=[{}, {of: -0.75, capital: -5.5}]),
    )


async def play(stage: Stage, example: Played) -> Any:
    """The answer; of a stream the list of its events."""
    async with stage.serve() as live:
        stage.say(script(stage))
        if example.body.get("stream"):
            return await live.client.events(example.path, example.body)
        return (await live.client.post(example.path, example.body)).json


def check_shown(shown: Any, answer: Any, place: str = "$") -> None:
    """Every member that the page shows stands in the answer, lists whole."""
    if isinstance(shown, dict):
        for name, value in shown.items():
            assert name in answer, f"{place}: no {name}"
            check_shown(value, answer[name], f"{place}.{name}")
    elif isinstance(shown, list):
        assert len(shown) == len(answer), f"{place}: {len(answer)} members"
        for number, (part, whole) in enumerate(zip(shown, answer, strict=True)):
            check_shown(part, whole, f"{place}[{number}]")
    else:
        assert shown == answer, f"{place}: {answer!r}"
