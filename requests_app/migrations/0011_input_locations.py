"""Input files: when they were located, since when they wait for a site, why they are excluded in kind, when that was lifted."""

import django.utils.timezone
from django.db import migrations, models
from django.db.models import Case, Q, Value, When

KINDS = [
    ("unwanted", "Not wanted by the request"),
    ("late", "Came too late"),
    ("unusable", "Cannot be split as asked"),
    ("lost", "Could not be read"),
    ("operator", "Left out by an operator"),
    ("accepted", "Accepted by an operator"),
]
HOLD_CODES = [
    ("refused", "Request or input refused"),
    ("operator", "Held by an operator"),
    ("timeout", "Too long in an internal step"),
    ("ledger", "Ledger violation"),
    ("submission", "Submission refused by the schedd"),
    ("threshold", "Too many failed work units"),
    ("rescues", "Rescue attempts used up"),
    ("abort_code", "DAG aborted itself (code 43)"),
    ("removed", "DAG removed from outside"),
    ("queue_lost", "Schedd queue lost"),
    ("effect_refused", "Registration refused"),
    ("short", "Fewer events than asked after all rounds"),
    ("excluded", "Input files were left out"),
    ("outcome_unknown", "DAG ended, outcome not provable"),
]


def tell_kinds(apps, schema_editor):
    """What is excluded already: by whom and why say which kind it is."""
    kind = Case(
        When(excluded_reason__startswith="no lumi of the file survives", then=Value("unwanted")),
        When(excluded_reason__contains="that lumi is done, from other files", then=Value("late")),
        When(~Q(excluded_by__in=("", "import", "planner")), then=Value("operator")),
        default=Value("lost"),
    )
    apps.get_model("requests_app", "InputFile").objects.filter(excluded_at__isnull=False).update(excluded_kind=kind)


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0010_lease_process")]

    operations = [
        migrations.AlterField(
            "request", "hold_code", models.CharField(blank=True, choices=HOLD_CODES, max_length=30)
        ),
        migrations.RemoveConstraint("request", "request_hold_code_known"),
        migrations.AddConstraint(
            "request",
            models.CheckConstraint(
                condition=Q(hold_code="") | Q(hold_code__in=[code for code, _ in HOLD_CODES]), name="request_hold_code_known"
            ),
        ),
        migrations.AddField(
            "inputfile", "excluded_kind", models.CharField(blank=True, choices=KINDS, default="", max_length=10), preserve_default=False
        ),
        migrations.AddField("inputfile", "restored_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("inputfile", "located_at", models.DateTimeField(default=django.utils.timezone.now)),
        migrations.AddField("inputfile", "waiting_since", models.DateTimeField(blank=True, null=True)),
        migrations.AddField(
            "inputfile", "waiting_reason", models.TextField(blank=True, default=""), preserve_default=False
        ),
        migrations.RunPython(tell_kinds, migrations.RunPython.noop),
        migrations.AddConstraint(
            "inputfile",
            models.CheckConstraint(
                condition=Q(excluded_at__isnull=True, excluded_kind="")
                | Q(excluded_at__isnull=False, excluded_kind__in=[kind for kind, _ in KINDS], waiting_since__isnull=True),
                name="input_file_exclusion_has_kind",
            ),
        ),
        migrations.AddIndex(
            "inputfile",
            models.Index(fields=["workflow"], name="input_files_waiting", condition=Q(waiting_since__isnull=False)),
        ),
    ]
