"""Columns of workflows and rounds that nothing has ever written, and codes that no request was ever given."""

from django.db import migrations, models
from django.db.models import Q

OF_WORKFLOWS = (
    "category_throttles", "input_fileset_id", "nodes_done", "nodes_failed", "nodes_queued", "nodes_running",
    "output_fileset_id", "sandbox_url", "step_metrics",
)  # fmt: skip
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
    ("short", "Fewer events than asked after all rounds"),
    ("excluded", "Input files were left out"),
    ("outcome_unknown", "DAG ended, outcome not provable"),
]
STOP_INTENTS = [
    ("resume", "Stop, then resume"),
    ("step", "Production step"),
    ("hold", "Stop, then hold"),
    ("restart", "Kill and clone"),
    ("fail", "Stop, then fail"),
    ("abort", "Abort"),
]


def known(field, choices):
    return Q(**{field: ""}) | Q(**{f"{field}__in": [code for code, _ in choices]})


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0014_audit_moved")]

    operations = [
        migrations.RemoveField("round", "metrics"),
        *(migrations.RemoveField("workflow", name) for name in OF_WORKFLOWS),
        migrations.RemoveConstraint("request", "request_stop_intent_known"),
        migrations.RemoveConstraint("request", "request_hold_code_known"),
        migrations.AlterField("request", "hold_code", models.CharField(blank=True, choices=HOLD_CODES, max_length=30)),
        migrations.AlterField("request", "stop_intent", models.CharField(blank=True, choices=STOP_INTENTS, max_length=20)),
        migrations.AddConstraint(
            "request", models.CheckConstraint(condition=known("stop_intent", STOP_INTENTS), name="request_stop_intent_known")
        ),
        migrations.AddConstraint(
            "request", models.CheckConstraint(condition=known("hold_code", HOLD_CODES), name="request_hold_code_known")
        ),
    ]
