"""Checks of request arguments against their definitions, with ReqMgr2's words for what it refuses."""

import copy
from dataclasses import dataclass
from typing import Any, Literal

from deploy.simulators.reqmgr2.arguments import Arg, Args
from deploy.simulators.reqmgr2.kinds import LUMI_LIST, to_list
from deploy.simulators.reqmgr2.lexicon import LexiconError

Moment = Literal["create", "assign", "change"]

# arguments beyond the definition that a type takes by their first letters
_OPEN_PREFIX = {"ReReco": "Skim", "StepChain": "Step", "TaskChain": "Task"}


@dataclass(eq=False)
class InvalidSpec(Exception):
    """A refusal; ReqMgr2 puts "Invalid spec parameter value: " in front of the text."""

    text: str

    def as_printed_exception(self, class_name: str = "WMSpecFactoryException") -> "InvalidSpec":
        """The same refusal as ReqMgr2 prints it when it passed an outer check: with its exception's header around the text."""
        return InvalidSpec(
            f"<@========== WMException Start ==========@>\nException Class: {class_name}\nMessage: {self.text}\n"
            "\tClassName : None\n\tErrorNr : 0\n\nTraceback: \n\n<@---------- WMException End ----------@>"
        )


def refuse_unknown(arguments: dict[str, Any], definition: Args, *, request_type: str = "") -> None:
    """Only defined arguments may be sent.

    Raises:
        InvalidSpec: some are not defined.
    """
    prefix = _OPEN_PREFIX.get(request_type)
    unknown = [name for name in arguments if name not in definition and not (prefix and name.startswith(prefix))]
    if unknown:
        raise InvalidSpec(f"There are unknown/unsupported arguments in your request spec: {unknown}")


def check_arguments(arguments: dict[str, Any], definition: Args, moment: Moment) -> None:
    """Mandatory arguments are there; every one converts and passes its rule. Converted values replace what was sent.

    Raises:
        InvalidSpec: the first argument that does not.
    """
    for name, arg in definition.items():
        needed = (moment == "create" and not arg.optional) or (moment == "assign" and not arg.assign_optional)
        if name not in arguments:
            if needed:
                raise InvalidSpec(f"Argument '{name}' is mandatory and must be provided by the user. Its definition is: {arg}")
            continue
        arguments[name] = _checked(name, arguments[name], arg)


def _checked(name: str, value: Any, arg: Arg) -> Any:
    if value is None:
        if not arg.null:
            raise InvalidSpec(f"Argument '{name}' cannot be None")
        return None
    # a map by step or task is not converted, only its rule is applied
    if not isinstance(value, dict) or arg.kind is LUMI_LIST:
        value = _converted(name, value, arg)
    try:
        passed = arg.check is None or arg.check(value)
    except (LexiconError, TypeError, AttributeError) as error:
        raise InvalidSpec(str(error)) from error
    if not passed:
        raise InvalidSpec(
            f"Argument '{name}' with value {value!r}, doesn't pass the validate function.\nIt's definition is:\n{arg.rule}"
        )
    return value


def _converted(name: str, value: Any, arg: Arg) -> Any:
    try:
        return arg.kind.convert(value)
    except (ValueError, TypeError) as error:
        detail = f"Argument '{name}' with value {value} is not a string" if arg.kind.name == "str" else str(error)
        raise InvalidSpec(
            f"Argument '{name}' with value {value!r}, has an incorrect data type: {type(value)}."
            f" It must be convertible by {arg.kind.name} (Error: {detail})"
        ) from error


def check_site_lists(arguments: dict[str, Any]) -> None:
    """A site is either wanted or not; texts become lists.

    Raises:
        InvalidSpec: a site is in both lists.
    """
    white, black = to_list(arguments.get("SiteWhitelist", [])), to_list(arguments.get("SiteBlacklist", []))
    both = sorted(set(white) & set(black))
    if both:
        raise InvalidSpec(f"Validation failed: The same site cannot be white and blacklisted: {both}")
    arguments["SiteWhitelist"], arguments["SiteBlacklist"] = white, black


def check_priority(arguments: dict[str, Any]) -> None:
    """RequestPriority, where it is sent, is a whole number from 0 to 999999.

    Raises:
        InvalidSpec: it is not.
    """
    if "RequestPriority" not in arguments:
        return
    value = arguments["RequestPriority"]
    if not isinstance(value, int):
        raise InvalidSpec(f"RequestPriority must be of integer type, not: {type(value)}")
    if not 0 <= value < 1e6:
        raise InvalidSpec("RequestPriority must be an integer between 0 and 999999")


def set_defaults(arguments: dict[str, Any], definition: Args, *, skip_none: bool) -> None:
    """Fill in what was not sent; at assignment (``skip_none``) only defaults other than None."""
    for name, arg in definition.items():
        if name not in arguments and not (skip_none and arg.default is None):
            arguments[name] = copy.deepcopy(arg.default)
