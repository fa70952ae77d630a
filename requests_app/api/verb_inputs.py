"""What the verbs on a request take, and what those answer that do not answer with the request."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from dags_app.services.stop import StopMode
from requests_app.models import CleanupPolicy
from requests_app.services.release import MAX_FILES, Changes, ReleaseMode
from requests_app.work.overrides import Overrides
from wms2.api.serializers import NameField, ReasonSerializer, ShareField, TextField

_MAX_SITES, _MAX_LFN = 200, 500


class StopInputSerializer(ReasonSerializer):
    """How to stop."""

    mode = serializers.ChoiceField(
        choices=[mode.value for mode in StopMode], default=StopMode.NOW.value,
        help_text="now: the DAG is removed, jobs that run are lost; drain: work units that run finish first",
    )  # fmt: skip


class StoppedSerializer(serializers.Serializer):
    """What a stop began (spec 7.2)."""

    request_name = serializers.CharField()
    status = serializers.CharField()
    previous_status = serializers.CharField()
    stop_reason = serializers.CharField()
    mode = serializers.CharField()
    message = serializers.CharField()


class ReleaseInputSerializer(ReasonSerializer):
    """How to go on, and what to change for this request alone (error-handling 8.3)."""

    mode = serializers.ChoiceField(
        choices=[mode.value for mode in ReleaseMode], required=False,
        help_text="rescue: the same DAG, what failed again; next_round: what is done counts, the rest is planned anew."
        " Without it: rescue where one is possible",
    )  # fmt: skip
    site_bans = serializers.ListField(
        child=TextField(max_length=100), required=False, max_length=_MAX_SITES, help_text="sites this request avoids from now on"
    )
    excluded_files = serializers.ListField(
        child=TextField(max_length=_MAX_LFN), required=False, max_length=MAX_FILES, help_text="input files nobody reads any more"
    )
    accept_excluded = serializers.BooleanField(
        default=False, help_text="the request may complete without the input files that could not be read or not be split"
    )
    max_excluded_fraction = ShareField(
        required=False, min_value=0, max_value=1, help_text="share of its wanted input files that it may complete without"
    )
    error_hold_threshold = ShareField(required=False, min_value=0.000001, max_value=1)
    error_max_rescue_attempts = serializers.IntegerField(required=False, min_value=0, max_value=100)
    retry_processing = serializers.IntegerField(required=False, min_value=0, max_value=20)
    retry_merge = serializers.IntegerField(required=False, min_value=0, max_value=20)
    memory_mb = serializers.IntegerField(
        required=False, min_value=1, max_value=10**7, help_text="of a processing job, all its cores together"
    )

    def changes(self) -> Changes:
        """As the service wants them."""
        data: dict[str, Any] = self.validated_data
        return Changes(
            overrides=Overrides(**{name: data[name] for name in Overrides.model_fields if name in data}),
            site_bans=tuple(data.get("site_bans", ())),
            excluded_files=tuple(data.get("excluded_files", ())),
            accept_excluded=data["accept_excluded"],
        )


class ReleasePlanSerializer(serializers.Serializer):
    """What a release would do."""

    mode = serializers.CharField(allow_null=True, help_text="rescue, next_round; null: no round is open")
    why = serializers.CharField()
    units_done = serializers.IntegerField(help_text="work units of the open round that count")
    units_again = serializers.IntegerField(help_text="work units of the open round that run again, or are planned anew")


class RestartInputSerializer(ReasonSerializer):
    """The new version's name and what becomes of the old outputs."""

    request_name = NameField(required=False, help_text="of ReqMgr2's clone, whose document is taken; without it <name>_v<N>")
    cleanup_policy = serializers.ChoiceField(
        choices=CleanupPolicy.choices, required=False, help_text="of the old outputs, once the new version is complete"
    )


class _RuleSerializer(serializers.Serializer):
    id = serializers.CharField()
    kind = serializers.CharField(help_text="source or tape")
    did = serializers.CharField(help_text="file or block that it protects")
    rse = serializers.CharField()


class _BlockSerializer(serializers.Serializer):
    name = serializers.CharField()
    status = serializers.CharField()
    open_in_dbs = serializers.BooleanField()
    files = serializers.IntegerField()
    bytes = serializers.IntegerField()
    rules = _RuleSerializer(many=True)


class _DatasetSerializer(serializers.Serializer):
    name = serializers.CharField()
    state = serializers.CharField()
    blocks = _BlockSerializer(many=True)


class _TotalsSerializer(serializers.Serializer):
    datasets = serializers.IntegerField()
    blocks = serializers.IntegerField()
    rules = serializers.IntegerField()


class InvalidationManifestSerializer(serializers.Serializer):
    """Everything that is registered or protected outside."""

    schema = serializers.CharField()
    request_name = serializers.CharField()
    written_at = serializers.DateTimeField()
    datasets = _DatasetSerializer(many=True)
    totals = _TotalsSerializer()
