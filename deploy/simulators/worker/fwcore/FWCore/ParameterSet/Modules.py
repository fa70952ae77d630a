"""Modules of a process: a C++ type with parameters; and how paths put them in order."""

from __future__ import annotations

from typing import Any

from .Types import Parameterizable


class Sequenceable:
    """Something that can stand in a path: ``a + b``, ``a * b``, ``~a``."""

    def __add__(self, other: Any) -> Chain:
        return Chain([self, other])

    def __mul__(self, other: Any) -> Chain:
        return Chain([self, other])

    def __invert__(self) -> Chain:
        return Chain([self])

    def __pos__(self) -> Chain:
        return Chain([self])


class Chain(Sequenceable):
    """Modules in the order they run."""

    def __init__(self, items: list[Any]) -> None:
        self.items: list[Any] = []
        for item in items:
            self.items += item.items if type(item) is Chain else [item]


class Module(Parameterizable, Sequenceable):
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


class EDAnalyzer(Module):
    """``cms.EDAnalyzer``."""


class EDAlias(Parameterizable):
    """``cms.EDAlias``."""


class OutputModule(Module):
    """``cms.OutputModule``."""


class Source(Module):
    """``cms.Source``."""


class SecSource(Module):
    """``cms.SecSource``."""


class ESSource(Module):
    """``cms.ESSource``."""


class ESProducer(Module):
    """``cms.ESProducer``."""


class ESPrefer(Module):
    """``cms.ESPrefer``."""


class Service(Module):
    """``cms.Service``."""


class Looper(Module):
    """``cms.Looper``."""


class Ordered(Sequenceable):
    """``cms.Sequence``, ``cms.Path``, ``cms.EndPath``, ``cms.Task``, ``cms.Schedule``: modules with a place in the process."""

    def __init__(self, *items: Any, **_options: Any) -> None:
        self.items: list[Any] = []
        for item in items:
            self.items += item.items if isinstance(item, (Chain, Ordered)) else [item]

    def associate(self, *_tasks: Any) -> None:
        """Tasks run when their products are asked for; the simulation asks for none."""

    def insert(self, index: int, item: Any) -> None:
        """Put an item at a place."""
        self.items.insert(index, item)

    def append(self, item: Any) -> None:
        """Put an item at the end."""
        self.items.append(item)

    def extend(self, items: Any) -> None:
        """Put items at the end."""
        self.items.extend(items)


class Sequence(Ordered):
    """``cms.Sequence``."""


class Path(Ordered):
    """``cms.Path``."""


class EndPath(Ordered):
    """``cms.EndPath``."""


class FinalPath(Ordered):
    """``cms.FinalPath``."""


class Task(Ordered):
    """``cms.Task``."""


class ConditionalTask(Ordered):
    """``cms.ConditionalTask``."""


class Schedule(Ordered):
    """``cms.Schedule``."""


def ignore(item: Any) -> Any:
    """``cms.ignore``: a filter whose decision does not count."""
    return item


def wait(item: Any) -> Any:
    """``cms.wait``."""
    return item
