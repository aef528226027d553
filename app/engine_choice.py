"""From the name or URL of `--engine` to an engine."""

from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import urlsplit

from app.settings import InvalidSettings, Settings, flag_of
from engines.protocol import EngineClient

EngineMaker = Callable[[Settings], EngineClient]

ENGINES: Mapping[str, EngineMaker] = {}


def choose_engine(settings: Settings) -> Callable[[], EngineClient]:
    """Find the maker of the engine that the settings name.

    InvalidSettings for one that doesn't exist, and for more than one.
    """
    flag = flag_of("engine")
    if len(settings.engine) > 1:
        raise InvalidSettings(f"{flag}: several engines at once ({', '.join(settings.engine)}) don't work yet")
    name = settings.engine[0]
    if name in ENGINES:
        return partial(ENGINES[name], settings)
    scheme = urlsplit(name).scheme
    what = f"no engine is reached by {scheme}:// yet" if scheme else f"there is no engine {name!r}"
    raise InvalidSettings(f"{flag}: {what}; there is: {', '.join(ENGINES)}")
