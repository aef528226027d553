from engines.scripted.engine import ScriptedEngine
from engines.scripted.options import ScriptedOptions
from engines.scripted.script import Script
from tests.engines.contract import EngineContract


class TestFloodingEngine(EngineContract):
    def make_engine(self) -> ScriptedEngine:
        return ScriptedEngine(ScriptedOptions(tokenizer="none", vocab_size=5000, eos_token_ids=(2,), step_ms=0))

    def make_small_engine(self) -> ScriptedEngine:
        options = ScriptedOptions(tokenizer="none", vocab_size=5000, step_ms=0, max_running=1, queue_limit=1)
        return ScriptedEngine(options)


class TestPacedEngineWithGroups(EngineContract):
    def make_engine(self) -> ScriptedEngine:
        return self._engine(4096, 4096)

    def make_small_engine(self) -> ScriptedEngine:
        return self._engine(1, 1)

    def _engine(self, max_running: int, queue_limit: int) -> ScriptedEngine:
        options = ScriptedOptions(
            tokenizer="none",
            vocab_size=300,
            eos_token_ids=(2, 3),
            step_ms=0.5,
            first_token_ms=0.5,
            max_running=max_running,
            queue_limit=queue_limit,
        )
        script = Script(token_ids=[5, 6, 5, 2, 299, 7, 8, 3], cycle=True, grouping=[0, 3, 1, 0, 0, 4], speculative=True)
        return ScriptedEngine(options, script_for=lambda _: script)
