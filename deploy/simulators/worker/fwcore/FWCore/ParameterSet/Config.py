"""``import FWCore.ParameterSet.Config as cms``: the process and everything a configuration names.

A plain value that is assigned to a typed parameter keeps the parameter's type, as in CMSSW. Ranges of the integer types
are checked, so that a number that real cmsRun would refuse is refused here. The simulation runs no module and keeps no
provenance: what stands in a path, or whether a parameter is tracked, is never read.
"""

from __future__ import annotations

import builtins
import copy
from collections.abc import Iterator
from typing import Any


class Parameter:
    """A value with a type."""

    def __init__(self, value: Any) -> None:
        self.setValue(value)

    def _converted(self, value: Any) -> Any:
        return value

    def value(self) -> Any:
        """The plain value."""
        return self._value

    def setValue(self, value: Any) -> None:
        """Change the value; the type stays."""
        self._value = self._converted(value.value() if isinstance(value, Parameter) else value)


class Integer(Parameter):
    """``cms.int32`` and its relatives, each with its range."""

    low, high = 0, 0

    def _converted(self, value: Any) -> int:
        number = int(value, 0) if isinstance(value, str) else int(value)
        if not self.low <= number <= self.high:
            raise ValueError(f"{number} does not fit into {type(self).__name__}")
        return number


class Bool(Parameter):
    """``cms.bool``."""

    def _converted(self, value: Any) -> builtins.bool:
        return value.lower() in ("true", "t", "on", "yes", "1") if isinstance(value, str) else builtins.bool(value)


class Double(Parameter):
    """``cms.double``."""

    def _converted(self, value: Any) -> float:
        return float(value)


class String(Parameter):
    """``cms.string``, and ``cms.FileInPath``: a file below the release."""

    def _converted(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a string")
        return value


class Tag(Parameter):
    """Types that are written as colon-separated parts."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(":".join(str(part.value() if isinstance(part, Parameter) else part) for part in parts))


class Vector(Parameter):
    """A list of one type; ``element`` is the type."""

    element: type[Parameter] = String

    def __init__(self, *values: Any) -> None:
        several = len(values) == 1 and isinstance(values[0], (list, tuple, Vector, Iterator))
        super().__init__(values[0] if several else values)

    def _converted(self, value: Any) -> list[Any]:
        return [self.element(item).value() for item in value]

    def __len__(self) -> int:
        return len(self._value)

    def append(self, value: Any) -> None:
        """Add a value at the end."""
        self.extend([value])

    def extend(self, values: Any) -> None:
        """Add values at the end."""
        self._value += self._converted(values)


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


class PSet(Parameterizable):
    """``cms.PSet``: named parameters."""


class VPSet(Vector):
    """``cms.VPSet``: a list of parameter sets."""

    def _converted(self, value: Any) -> list[Any]:
        return list(value)


class Ordered:
    """``cms.Path`` and whatever else puts modules in order: ``a + b``, ``a * b``, ``~a``."""

    def __init__(self, *_items: Any, **_options: Any) -> None:
        pass

    def __add__(self, _other: Any) -> Ordered:
        return Ordered()

    __mul__ = __add__

    def __invert__(self) -> Ordered:
        return Ordered()

    def associate(self, *_items: Any) -> None:
        """Put items into it."""

    append = insert = extend = associate


class Module(Parameterizable, Ordered):
    """A module: ``cms.EDProducer("Type", parameter=...)``."""

    def __init__(self, type_name: str, *positional: Any, **parameters: Any) -> None:
        object.__setattr__(self, "_type", type_name)
        super().__init__(*positional, **parameters)

    def type_(self) -> str:
        """Name of the C++ type."""
        return str(self._type)


class EDProducer(Module):
    """``cms.EDProducer``."""


class EDFilter(Module):
    """``cms.EDFilter``."""


class OutputModule(Module):
    """``cms.OutputModule``."""


def _kinds(base: type, *names: str) -> dict[str, Any]:
    return {name: type(name, (base,), {}) for name in names}


def _integer(name: str, low: int, high: int) -> dict[str, Any]:
    return {name: type(name, (Integer,), {"low": low, "high": high})}


TYPES: dict[str, Any] = {
    **_integer("int32", -(2**31), 2**31 - 1),
    **_integer("uint32", 0, 2**32 - 1),
    **_integer("int64", -(2**63), 2**63 - 1),
    **_integer("uint64", 0, 2**64 - 1),
    "bool": Bool,
    "double": Double,
    "string": String,
    **_kinds(Tag, "InputTag", "ESInputTag", "EventID", "LuminosityBlockID", "EventRange", "LuminosityBlockRange"),
}
for _name, _kind in list(TYPES.items()):
    _vector = f"V{_name}" if issubclass(_kind, Tag) else f"v{_name}"
    TYPES[_vector] = type(_vector, (Vector,), {"element": _kind})
TYPES |= {"FileInPath": String, "PSet": PSet, "VPSet": VPSet}

globals().update(TYPES)
globals().update(_kinds(Parameterizable, "EDAlias"))
globals().update(_kinds(Module, "EDAnalyzer", "Source", "SecSource", "ESSource", "ESProducer", "ESPrefer", "Service", "Looper"))
globals().update(
    _kinds(Ordered, "Sequence", "Path", "EndPath", "FinalPath", "Task", "ConditionalTask", "Schedule", "ignore", "wait")
)


class _Untracked:
    """``cms.untracked.int32(1)`` or ``cms.untracked(cms.int32(1))``."""

    def __call__(self, parameter: Any) -> Any:
        return parameter

    def __getattr__(self, name: str) -> Any:
        if name not in TYPES:
            raise AttributeError(f"cms.untracked.{name}: no such type")
        return TYPES[name]


untracked = _Untracked()


class Process:
    """``cms.Process``: source, modules, services, paths and the job's options, by label."""

    def __init__(self, name: str, *_eras: Any) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_items", {})
        self.maxEvents = PSet(input=untracked.int32(-1))
        self.options = PSet()

    def name_(self) -> str:
        """Name of the process."""
        return str(self._name)

    def __setattr__(self, label: str, value: Any) -> None:
        if not isinstance(value, (Parameter, Parameterizable, Ordered)):
            raise TypeError(f"process.{label} cannot be a {type(value).__name__}")
        self._items[label] = value

    def __getattr__(self, label: str) -> Any:
        items = self.__dict__.get("_items", {})
        if label in items:
            return items[label]
        raise AttributeError(f"the process has no {label!r}")

    def add_(self, service: Any) -> None:
        """Add a service or a source of event set-up under the name of its type."""
        setattr(self, service.type_(), service)

    def _of(self, kind: type) -> dict[str, Any]:
        return {label: value for label, value in self._items.items() if isinstance(value, kind)}

    def outputModules_(self) -> dict[str, Any]:
        """Output modules by label."""
        return self._of(OutputModule)

    def producers_(self) -> dict[str, Any]:
        """Producers by label."""
        return self._of(EDProducer)

    def filters_(self) -> dict[str, Any]:
        """Filters by label."""
        return self._of(EDFilter)
