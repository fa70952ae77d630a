"""A hold code: others have set a request to failed in ReqMgr2."""

from django.db import migrations, models

CODES = [
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
    ("run_elsewhere", "Somebody else may run it"),
    ("failed_elsewhere", "Set to failed in ReqMgr2"),
    ("parent", "A request that it depends on gives it no input"),
]


class Migration(migrations.Migration):
    dependencies = [
        ("requests_app", "0048_sites_wake_admission"),
    ]

    operations = [
        migrations.RemoveConstraint(model_name="request", name="request_hold_code_known"),
        migrations.AlterField(
            model_name="request", name="hold_code", field=models.CharField(blank=True, choices=CODES, max_length=30)
        ),
        migrations.AddConstraint(
            model_name="request",
            constraint=models.CheckConstraint(
                condition=models.Q(("hold_code", ""), ("hold_code__in", [code for code, _ in CODES]), _connector="OR"),
                name="request_hold_code_known",
            ),
        ),
    ]
