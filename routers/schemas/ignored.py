"""A request field is used, refused by name, or reported as ignored; here the last two are told apart."""

import logging
from typing import Any, ClassVar

from pydantic import BaseModel

from engines.errors import InvalidValue, UnsupportedFeature

log = logging.getLogger("tailrace.request")

_MOST_WARNINGS = 1024

_warned: set[str] = set()


class IgnoredFields(BaseModel):
    """Base of requests that take any field.

    UNSUPPORTED: known fields that are refused by name unless they hold one of the listed neutral values.
    INFORMATIVE: known fields without an effect on the answer here; they are reported as ignored.
    """

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = {}
    INFORMATIVE: ClassVar[frozenset[str]] = frozenset()

    def ignored(self, *, strict: bool) -> list[str]:
        """Names of the sent fields that have no effect. UnsupportedFeature for one that asks for what is not done.

        InvalidValue in strict mode for an unknown field.
        """
        extra = self.model_extra or {}
        for name, neutral in self.UNSUPPORTED.items():
            if extra.get(name) is not None and extra[name] not in neutral:
                raise UnsupportedFeature(f"{name} is not supported with this value.", param=name)
        unknown = [name for name in extra if name not in self.UNSUPPORTED]
        if strict:
            for name in unknown:
                if name not in self.INFORMATIVE:
                    raise InvalidValue(f"Unknown field {name[:64]!r}.", param=name[:64])
        for name in unknown:
            if name not in _warned and len(_warned) < _MOST_WARNINGS:
                _warned.add(name)
                log.warning("request field %.64r has no effect", name)
        return unknown
