from django.db import migrations, models


class Migration(migrations.Migration):
    """The audit moves here from requests_app; its table stays as it is."""

    initial = True
    dependencies = [("requests_app", "0013_reserved_slots")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="AuditEntry",
                    fields=[
                        ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                        ("at", models.DateTimeField(auto_now_add=True)),
                        ("actor", models.CharField(max_length=100)),
                        ("action", models.CharField(max_length=100)),
                        ("target_type", models.CharField(blank=True, max_length=50)),
                        ("target", models.CharField(blank=True, max_length=300)),
                        ("outcome", models.CharField(default="done", help_text="done or refused", max_length=20)),
                        ("reason", models.TextField(blank=True)),
                        ("evidence", models.JSONField(blank=True, default=dict)),
                    ],
                    options={
                        "verbose_name_plural": "audit entries",
                        "db_table": "audit_entries",
                        "ordering": ("-id",),
                        "indexes": [models.Index(fields=["target_type", "target", "id"], name="audit_by_target")],
                    },
                )
            ]
        )
    ]
