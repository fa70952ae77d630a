"""Whose the names of output datasets are; a foreign key over (dataset, family) keeps other families out (ADR 0037).

Where requests of several families write into one dataset already, they become one family: nothing is taken from anybody.
"""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Max, Q

_ENDED = ("archived", "failed", "aborted", "cleaned")
FAMILY_KEY = """
    ALTER TABLE dataset_owners ADD CONSTRAINT dataset_owner_of_the_family
    FOREIGN KEY (dataset_id, family) REFERENCES owned_datasets (id, family)
"""


def owners(apps, schema_editor):
    Request = apps.get_model("requests_app", "Request")
    OutputDataset = apps.get_model("outputs_app", "OutputDataset")
    OwnedDataset = apps.get_model("outputs_app", "OwnedDataset")
    DatasetOwner = apps.get_model("outputs_app", "DatasetOwner")
    rows = OutputDataset.objects.filter(~Q(workflow__request__status__in=_ENDED) | Q(files__validity="valid"))
    pairs = list(rows.distinct().order_by("id").values_list("name", "workflow__request__pk"))
    first = {}
    for name, request in pairs:
        family = Request.objects.values_list("family", flat=True).get(pk=request)
        if first.setdefault(name, family) != family:
            Request.objects.filter(family=family).update(family=first[name])
            first = {other: first[name] if held == family else held for other, held in first.items()}
    for name, request in pairs:
        lumi = OutputDataset.objects.filter(name=name).aggregate(most=Max("workflow__next_first_lumi"))["most"] or 1
        dataset, _ = OwnedDataset.objects.get_or_create(name=name, defaults={"family": first[name], "next_lumi": lumi})
        DatasetOwner.objects.get_or_create(dataset=dataset, request_id=request, defaults={"family": first[name]})


class Migration(migrations.Migration):
    dependencies = [
        ("outputs_app", "0003_dataset_state_and_invalidation"),
        ("requests_app", "0009_dataset_families"),
    ]
    operations = [
        migrations.CreateModel(
            name="OwnedDataset",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=500)),
                ("family", models.UUIDField(help_text="Request.family of all its owners")),
                ("next_lumi", models.BigIntegerField(default=1)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={"db_table": "owned_datasets", "ordering": ("name",)},
        ),
        migrations.CreateModel(
            name="DatasetOwner",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("family", models.UUIDField()),
                ("since", models.DateTimeField(auto_now_add=True)),
                (
                    "dataset",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="owners", to="outputs_app.owneddataset"
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="owned_datasets", to="requests_app.request"
                    ),
                ),
            ],
            options={"db_table": "dataset_owners", "ordering": ("dataset", "id")},
        ),
        migrations.AddConstraint("owneddataset", models.UniqueConstraint(fields=("name",), name="owned_dataset_once")),
        migrations.AddConstraint("owneddataset", models.UniqueConstraint(fields=("id", "family"), name="owned_dataset_family")),
        migrations.AddConstraint(
            "owneddataset", models.CheckConstraint(condition=Q(next_lumi__gte=1), name="owned_dataset_lumi_positive")
        ),
        migrations.AddConstraint(
            "datasetowner", models.UniqueConstraint(fields=("dataset", "request"), name="dataset_owner_once")
        ),
        migrations.RunSQL(FAMILY_KEY, "ALTER TABLE dataset_owners DROP CONSTRAINT dataset_owner_of_the_family"),
        migrations.RunPython(owners, migrations.RunPython.noop),
    ]
