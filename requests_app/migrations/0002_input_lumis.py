"""The input of requests split by lumi, as lumis."""

import django.contrib.postgres.fields.ranges
import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="InputLumis",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("run", models.BigIntegerField()),
                ("span", django.contrib.postgres.fields.ranges.BigIntegerRangeField()),
                (
                    "fate",
                    models.CharField(
                        choices=[("wanted", "Wanted"), ("excluded", "Excluded"), ("refused", "Refused")],
                        default="wanted",
                        max_length=10,
                    ),
                ),
                ("reason", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "workflow",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="input_lumis", to="requests_app.workflow"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "input lumis",
                "db_table": "input_lumis",
                "indexes": [models.Index(fields=["workflow", "run"], name="input_lumis_by_run")],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(fate__in=["wanted", "excluded", "refused"]), name="input_lumis_fate_known"
                    ),
                    models.CheckConstraint(condition=~Q(span__isempty=True), name="input_lumis_not_empty"),
                    models.CheckConstraint(
                        condition=~Q(fate="refused") | ~Q(reason=""), name="input_lumis_refusal_has_reason"
                    ),
                ],
            },
        ),
    ]
