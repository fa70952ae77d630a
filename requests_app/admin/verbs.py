"""Which verbs the rows have. Each calls the service that the REST interface calls; ``wms2.admin.verbs`` asks and shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django import forms

from outputs_app.models import Effect, EffectState
from requests_app import services
from requests_app.limits import limit_set
from requests_app.models import CleanupPolicy, InputFile, Limit, Request
from requests_app.pages import preview
from requests_app.selectors.admission import admission_standing
from requests_app.services.effects import effect_retry_now
from requests_app.services.input_files import restore_refused
from requests_app.services.release import Changes, ReleaseMode
from requests_app.services.restart import restart_refused
from requests_app.work.overrides import Overrides, overrides_read
from wms2.admin import ReasonForm, Verb, register_verbs
from wms2.conf import Conf, conf
from wms2.words import counted

Data = Mapping[str, Any]


class PriorityForm(ReasonForm):
    """A reason and the new priority."""

    priority = forms.IntegerField(min_value=0, max_value=999_999, help_text="Higher starts earlier; 0 to 999999.")
    field_order = ("priority", "reason")


class StopForm(ReasonForm):
    """A reason and how."""

    mode = forms.ChoiceField(
        choices=[
            ("now", "Now: the DAG is removed, jobs that run are lost"),
            ("drain", "Drain: work units that run finish first"),
        ],
    )
    field_order = ("mode", "reason")


class ReleaseForm(ReasonForm):
    """A reason, how to go on, and changes for this request alone."""

    mode = forms.ChoiceField(
        required=False,
        choices=[("", "As described above"), ("rescue", "Rescue the DAG"), ("next_round", "Plan what is left anew")],
    )
    site_bans = forms.CharField(required=False, help_text="Sites it avoids from now on, separated by spaces.")
    excluded_files = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 80}),
        help_text="Input files nobody reads any more, one a line.",
    )
    accept_excluded = forms.BooleanField(
        required=False, help_text="It may complete without the input files that could not be read or not be split."
    )
    max_excluded_fraction = forms.FloatField(
        required=False, min_value=0, max_value=1, help_text="Share of its wanted input files that it may complete without."
    )
    error_hold_threshold = forms.FloatField(required=False, help_text="Share of failed work units that holds it, above 0 to 1.")
    retry_processing = forms.IntegerField(required=False, min_value=0, max_value=20, help_text="Retries of a processing job.")
    error_max_rescue_attempts = forms.IntegerField(
        required=False, min_value=0, max_value=100, help_text="Rescues after failures before it is held."
    )
    retry_merge = forms.IntegerField(required=False, min_value=0, max_value=20, help_text="Retries of a merge job.")
    memory_mb = forms.IntegerField(required=False, min_value=1, help_text="Of a processing job, all its cores together.")
    field_order = ("mode", "site_bans", "excluded_files", "accept_excluded", *Overrides.model_fields, "reason")


class RestartForm(ReasonForm):
    """The new version's name, what becomes of the old outputs, and a reason."""

    request_name = forms.CharField(
        required=False, max_length=150, help_text="Of ReqMgr2's clone, whose document is taken; without it <name>_v<N>."
    )
    cleanup_policy = forms.ChoiceField(
        required=False, choices=[("", "As the request's own policy"), *CleanupPolicy.choices], help_text="Of the old outputs."
    )
    field_order = ("request_name", "cleanup_policy", "reason")


class LimitForm(ReasonForm):
    """A reason and the new value; ``limit_set`` judges it."""

    value = forms.FloatField(help_text="Holds from the next cycle on, and over restarts.")
    field_order = ("value", "reason")


def _status(request: Request) -> tuple[str, str]:
    return request.status, request.get_status_display()


def _verb(service: Callable[..., object]) -> Callable[[Request, str, Data], object]:
    return lambda row, actor, data: service(request=row, actor=actor, reason=data["reason"])


def _stop(row: Request, actor: str, data: Data) -> None:
    services.request_stop(request=row, actor=actor, reason=data["reason"], mode=services.StopMode(data["mode"]))


def _release(row: Request, actor: str, data: Data) -> None:
    changes = Changes(
        overrides=overrides_read({name: data[name] for name in Overrides.model_fields if data.get(name) is not None}),
        site_bans=tuple(data.get("site_bans", "").split()),
        excluded_files=tuple(data.get("excluded_files", "").split()),
        accept_excluded=bool(data.get("accept_excluded")),
    )
    mode = ReleaseMode(data["mode"]) if data.get("mode") else None
    services.request_release(request=row, actor=actor, reason=data["reason"], mode=mode, changes=changes)


def _restart(row: Request, actor: str, data: Data) -> Request:
    policy = CleanupPolicy(data["cleanup_policy"]) if data.get("cleanup_policy") else None
    name = data.get("request_name") or None
    document = services.request_fetch(request_name=name) if name else None
    return services.request_restart(
        request=row, actor=actor, reason=data["reason"], request_name=name, document=document, cleanup_policy=policy
    )


def _set_priority(row: Request, actor: str, data: Data) -> None:
    services.request_set_priority(request=row, priority=data["priority"], actor=actor, reason=data["reason"])


register_verbs(
    Request,
    Verb("submit", "Submit", preview.submit, preview.why_not_submit, _verb(services.request_submit), _status),
    Verb("release", "Release", preview.release, preview.why_not_release, _release, _status, ReleaseForm),
    Verb("stop", "Stop", preview.stop, preview.why_not_stop, _stop, _status, StopForm),
    Verb("hold", "Hold", preview.hold, preview.why_not_hold, _verb(services.request_hold), _status),
    Verb("priority", "Change priority", preview.priority, preview.why_not_priority, _set_priority, _status, PriorityForm),
    Verb("restart", "Restart", preview.restart, restart_refused, _restart, _status, RestartForm, dangerous=True),
    Verb("fail", "Fail", preview.fail, preview.why_not_fail, _verb(services.request_fail), _status, dangerous=True),
    Verb(
        "invalidate",
        "Invalidate outputs",
        preview.invalidate,
        preview.why_not_invalidate,
        _verb(services.request_invalidate),
        _status,
        dangerous=True,
    ),
    Verb("abort", "Abort", preview.abort, preview.why_not_abort, _verb(services.request_abort), _status, dangerous=True),
)


def _retry_foretold(effects: Sequence[Effect]) -> dict[int, list[str]]:
    return {effect.pk: _retry(effect) for effect in effects}


def _retry(effect: Effect) -> list[str]:
    last = [f"Last error: {effect.last_error}"] if effect.last_error else []
    if effect.state == EffectState.CLAIMED:
        return ["It runs just now and goes on.", *last]
    tried = f"after {counted(effect.attempts, 'attempt')}" if effect.attempts else "for the first time"
    return [f"{effect.get_kind_display()}: tried again at once, {tried}; its time for retries starts anew.", *last]


def _retry_refused(effect: Effect) -> str:
    return "It is done; there is nothing to retry." if effect.state == EffectState.DONE else ""


def _retry_now(effect: Effect, actor: str, data: Data) -> None:
    effect_retry_now(effect=effect, actor=actor, reason=data["reason"])


register_verbs(
    Effect,
    Verb("retry", "Retry now", _retry_foretold, _retry_refused, _retry_now, lambda row: (row.state, row.get_state_display())),
)


def _restore_foretold(files: Sequence[InputFile]) -> dict[int, list[str]]:
    return {file.pk: ["It is read after all, in a further round.", f"Left out because: {file.excluded_reason}"] for file in files}


def _restore(file: InputFile, actor: str, data: Data) -> None:
    services.input_files_restore(request=file.workflow.request, lfns=[file.lfn], actor=actor, reason=data["reason"])


register_verbs(
    InputFile,
    Verb("restore", "Let in again", _restore_foretold, restore_refused, _restore, lambda row: (row.excluded_kind, row.lfn)),
)


def _limit_foretold(limits: Sequence[Limit]) -> dict[str, list[str]]:
    return {row.name: _limit(row) for row in limits}


def _limit(row: Limit) -> list[str]:
    told = [f"It is {row.value} now; its default is {getattr(conf(), row.name)}."]
    if description := Conf.model_fields[row.name].description:
        told.append(f"It means: {description}.")
    if row.name == "max_active_dags":
        told.append(f"{admission_standing().active_dags} slots are in use. A lower limit stops none of them.")
    return told


def _limit_set(row: Limit, actor: str, data: Data) -> None:
    changed = limit_set(name=row.name, value=data["value"], actor=actor, reason=data["reason"])
    row.value = changed.value


register_verbs(
    Limit,
    Verb("change", "Change", _limit_foretold, lambda _: "", _limit_set, lambda row: (str(row.value), str(row.value)), LimitForm),
)
