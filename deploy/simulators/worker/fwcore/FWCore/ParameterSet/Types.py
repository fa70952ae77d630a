"""Typed parameters of the configuration language: int32, vstring, PSet, InputTag and their relatives, tracked or not.

A plain value that is assigned to a typed parameter keeps the parameter's type, as in CMSSW. Ranges of the integer types
are checked, so that a number that real cmsRun would refuse is refused here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any


class Parameter:
    """A value with a type and a tracked flag."""

    def __init__(self, value: Any) -> None:
        self._tracked = True
        self._value = self._converted(value)

    def _converted(self, value: Any) -> Any:
        return value

    def value(self) -> Any:
        """The plain value."""
        return self._value

    def setValue(self, value: Any) -> None:
        """Change the value; the type stays."""
        self._value = self._converted(value)

    def isTracked(self) -> bool:
        """Whether the parameter counts for provenance."""
        return self._tracked

    def configTypeName(self) -> str:
        """Name as in a configuration."""
        return ("" if self._tracked else "untracked ") + type(self).__name__

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return bool(self._value == (other._value if isinstance(other, Parameter) else other))

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"cms.{'' if self._tracked else 'untracked.'}{type(self).__name__}({self._value!r})"


def _integer(name: str, low: int, high: int) -> type[Parameter]:
    def converted(self: Parameter, value: Any) -> int:
        if isinstance(value, Parameter):
            value = value.value()
        number = int(value, 0) if isinstance(value, str) else int(value)
        if not low <= number <= high:
            raise ValueError(f"{number} does not fit into {name}")
        return number

    return type(
        name, (Parameter,), {"_converted": converted, "__int__": lambda self: self._value, "__index__": lambda self: self._value}
    )


int32 = _integer("int32", -(2**31), 2**31 - 1)
uint32 = _integer("uint32", 0, 2**32 - 1)
int64 = _integer("int64", -(2**63), 2**63 - 1)
uint64 = _integer("uint64", 0, 2**64 - 1)


class bool_(Parameter):
    """``cms.bool``."""

    def _converted(self, value: Any) -> bool:
        if isinstance(value, Parameter):
            value = value.value()
        if isinstance(value, str):
            return value.lower() in ("true", "t", "on", "yes", "1")
        return bool(value)


bool_.__name__ = "bool"


class double(Parameter):
    """``cms.double``."""

    def _converted(self, value: Any) -> float:
        return float(value.value() if isinstance(value, Parameter) else value)

    def __float__(self) -> float:
        return float(self._value)


class string(Parameter):
    """``cms.string``."""

    def _converted(self, value: Any) -> str:
        if isinstance(value, Parameter):
            value = value.value()
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a string")
        return value


class FileInPath(string):
    """``cms.FileInPath``: a file below the release."""


class _Tag(Parameter):
    """Types that are written as colon-separated parts."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(":".join(str(p.value() if isinstance(p, Parameter) else p) for p in parts))


class InputTag(_Tag):
    """``cms.InputTag``."""


class ESInputTag(_Tag):
    """``cms.ESInputTag``."""


class EventID(_Tag):
    """``cms.EventID``."""


class LuminosityBlockID(_Tag):
    """``cms.LuminosityBlockID``."""


class EventRange(_Tag):
    """``cms.EventRange``."""


class LuminosityBlockRange(_Tag):
    """``cms.LuminosityBlockRange``."""


class Vector(Parameter):
    """A list of one type; ``element`` is the type."""

    element: type[Parameter] = string

    def __init__(self, *values: Any) -> None:
        if len(values) == 1 and isinstance(values[0], (list, tuple, Vector, Iterator)):
            values = tuple(values[0])
        super().__init__(values)

    def _converted(self, value: Any) -> list[Any]:
        return [(item if isinstance(item, self.element) else self.element(item)).value() for item in value]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._value)

    def __len__(self) -> int:
        return len(self._value)

    def __getitem__(self, index: int) -> Any:
        return self._value[index]

    def append(self, value: Any) -> None:
        """Add a value at the end."""
        self._value += self._converted([value])

    def extend(self, values: Any) -> None:
        """Add values at the end."""
        self._value += self._converted(values)


def _vector(name: str, kind: type[Parameter]) -> type[Vector]:
    return type(name, (Vector,), {"element": kind})


vint32, vuint32 = _vector("vint32", int32), _vector("vuint32", uint32)
vint64, vuint64 = _vector("vint64", int64), _vector("vuint64", uint64)
vbool, vdouble, vstring = _vector("vbool", bool_), _vector("vdouble", double), _vector("vstring", string)
VInputTag, VESInputTag = _vector("VInputTag", InputTag), _vector("VESInputTag", ESInputTag)
VEventID, VEventRange = _vector("VEventID", EventID), _vector("VEventRange", EventRange)
VLuminosityBlockID = _vector("VLuminosityBlockID", LuminosityBlockID)
VLuminosityBlockRange = _vector("VLuminosityBlockRange", LuminosityBlockRange)


class Parameterizable:
    """Anything that has named parameters: parameter sets and modules."""

    def __init__(self, *positional: Any, **parameters: Any) -> None:
        object.__setattr__(self, "_parameters", {})
        for block in positional:
            for name in block.parameterNames_():
                self._parameters[name] = copy.deepcopy(getattr(block, name))
        for name, value in parameters.items():
            setattr(self, name, value)

    def parameterNames_(self) -> list[str]:
        """Names in the order they were set."""
        return list(self._parameters)

    def parameters_(self) -> dict[str, Any]:
        """A copy of the parameters."""
        return dict(self._parameters)

    def hasParameter(self, name: str) -> bool:
        """Whether a parameter is set."""
        return name in self._parameters

    def getParameter(self, name: str) -> Any:
        """A parameter."""
        return self._parameters[name]

    def clone(self, **changes: Any) -> Any:
        """A copy with some parameters changed."""
        other = copy.deepcopy(self)
        for name, value in changes.items():
            setattr(other, name, value)
        return other

    def __getattr__(self, name: str) -> Any:
        parameters = self.__dict__.get("_parameters", {})
        if name in parameters:
            return parameters[name]
        raise AttributeError(f"{type(self).__name__} has no parameter {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif isinstance(value, (Parameter, Parameterizable)):
            self._parameters[name] = value
        elif name in self._parameters:
            self._parameters[name].setValue(value)
        else:
            raise TypeError(f"{name} is new here and needs a type, such as cms.int32({value!r})")

    def __delattr__(self, name: str) -> None:
        if name not in self._parameters:
            raise AttributeError(name)
        del self._parameters[name]


class PSet(Parameterizable):
    """``cms.PSet``: named parameters."""

    _tracked = True

    def isTracked(self) -> bool:
        """Whether the set counts for provenance."""
        return self._tracked

    def value(self) -> PSet:
        """Itself: the element of a VPSet."""
        return self


class VPSet(Vector):
    """``cms.VPSet``: a list of parameter sets."""

    def _converted(self, value: Any) -> list[Any]:
        return list(value)


class _Untracked:
    """``cms.untracked``: makes any type untracked, as ``cms.untracked.int32(1)`` or ``cms.untracked(cms.int32(1))``."""

    def __call__(self, parameter: Any) -> Any:
        parameter._tracked = False
        return parameter

    def __getattr__(self, name: str) -> Any:
        kind = TYPES.get(name)
        if kind is None:
            raise AttributeError(f"cms.untracked.{name}: no such type")
        return lambda *values, **parameters: self(kind(*values, **parameters))


TYPES: dict[str, Any] = {
    "bool": bool_,
    "int32": int32,
    "uint32": uint32,
    "int64": int64,
    "uint64": uint64,
    "double": double,
    "string": string,
    "FileInPath": FileInPath,
    "InputTag": InputTag,
    "ESInputTag": ESInputTag,
    "EventID": EventID,
    "EventRange": EventRange,
    "LuminosityBlockID": LuminosityBlockID,
    "LuminosityBlockRange": LuminosityBlockRange,
    "vbool": vbool,
    "vint32": vint32,
    "vuint32": vuint32,
    "vint64": vint64,
    "vuint64": vuint64,
    "vdouble": vdouble,
    "vstring": vstring,
    "VInputTag": VInputTag,
    "VESInputTag": VESInputTag,
    "VEventID": VEventID,
    "VEventRange": VEventRange,
    "VLuminosityBlockID": VLuminosityBlockID,
    "VLuminosityBlockRange": VLuminosityBlockRange,
    "PSet": PSet,
    "VPSet": VPSet,
}

untracked = _Untracked()
