"""``import FWCore.ParameterSet.Config as cms``: the process and everything a configuration names."""

from __future__ import annotations

import importlib
from typing import Any

from . import Modules, Types
from .Modules import *  # noqa: F403  (a configuration says cms.EDProducer)
from .Types import TYPES, Parameterizable, untracked

for _name, _kind in TYPES.items():
    globals()[_name] = _kind


class Process:
    """``cms.Process``: source, modules, services, paths and the job's options, by label."""

    def __init__(self, name: str, *_eras: Any) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_items", {})
        self.maxEvents = untracked(Types.PSet(input=untracked.int32(-1)))
        self.options = untracked(Types.PSet())

    def name_(self) -> str:
        """Name of the process."""
        return str(self._name)

    def __setattr__(self, label: str, value: Any) -> None:
        if label.startswith("_"):
            object.__setattr__(self, label, value)
            return
        if not isinstance(value, (Types.Parameter, Parameterizable, Modules.Ordered, Modules.Chain)):
            raise TypeError(f"process.{label} cannot be a {type(value).__name__}")
        self._items[label] = value

    def __getattr__(self, label: str) -> Any:
        items = self.__dict__.get("_items", {})
        if label in items:
            return items[label]
        raise AttributeError(f"the process has no {label!r}")

    def __delattr__(self, label: str) -> None:
        if label not in self._items:
            raise AttributeError(label)
        del self._items[label]

    def add_(self, service: Any) -> None:
        """Add a service or a source of event set-up under the name of its type."""
        setattr(self, service.type_(), service)

    def load(self, module: str) -> None:
        """Load a fragment: every configuration object of a Python module."""
        self.extend(importlib.import_module(module.replace("/", ".")))

    def extend(self, fragment: Any) -> None:
        """Take over every configuration object of a fragment."""
        for label, value in vars(fragment).items():
            if not label.startswith("_") and isinstance(value, (Modules.Module, Types.PSet, Modules.Ordered)):
                setattr(self, label, value)

    def setName_(self, name: str) -> None:
        """Rename the process."""
        object.__setattr__(self, "_name", name)

    def prefer(self, *_sources: Any) -> None:
        """Which event set-up wins; the simulation has none."""

    def _of(self, kind: type) -> dict[str, Any]:
        return {label: value for label, value in self._items.items() if isinstance(value, kind)}

    def outputModules_(self) -> dict[str, Any]:
        """Output modules by label."""
        return self._of(Modules.OutputModule)

    def producers_(self) -> dict[str, Any]:
        """Producers by label."""
        return self._of(Modules.EDProducer)

    def filters_(self) -> dict[str, Any]:
        """Filters by label."""
        return self._of(Modules.EDFilter)

    def services_(self) -> dict[str, Any]:
        """Services by label."""
        return self._of(Modules.Service)

    def paths_(self) -> dict[str, Any]:
        """Paths by label."""
        return self._of(Modules.Path)
