"""A request field is used, refused by name, or reported as ignored; here the last two are told apart."""

import logging
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from engines.errors import InvalidValue, UnsupportedFeature

log = logging.getLogger("tailrace.request")

_MOST_WARNINGS = 1024

_warned: set[str] = set()


class IgnoredFields(BaseModel):
    """Base of requests that take any field.

    UNSUPPORTED: known fields that are refused by name unless they hold one of the listed neutral values.
    INFORMATIVE: known fields without an effect on the answer here; they are reported as ignored.
    """

    model_config = ConfigDict(strict=True, extra="allow")

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = {}
    INFORMATIVE: ClassVar[frozenset[str]] = frozenset()

    def ignored(self, *, strict: bool, prefix: str = "") -> list[str]:
        """Names of the sent fields that have no effect, with those of the request's parts.

        UnsupportedFeature for one that asks for what is not done, InvalidValue in strict mode for an unknown one.
        """
        extra = self.model_extra or {}
        for name, neutral in self.UNSUPPORTED.items():
            if extra.get(name) is not None and extra[name] not in neutral:
                raise UnsupportedFeature(f"{name} is not supported with this value.", param=prefix + name)
        unknown = [name for name in extra if name not in self.UNSUPPORTED]
        if strict:
            for name in unknown:
                if name not in self.INFORMATIVE:
                    raise InvalidValue(f"Unknown field {name[:64]!r}.", param=prefix + name[:64])
        names = [prefix + name for name in unknown]
        _warn_once(names)
        for field in type(self).model_fields:
            part = getattr(self, field)
            if isinstance(part, IgnoredFields):
                names += part.ignored(strict=strict, prefix=f"{prefix}{field}.")
        return names


def _warn_once(names: list[str]) -> None:
    for name in names:
        if name not in _warned and len(_warned) < _MOST_WARNINGS:
            _warned.add(name)
            log.warning("request field %.64r has no effect", name)
