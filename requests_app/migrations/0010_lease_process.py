"""A lease names the process that acts, and the database session in which it does."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0009_dataset_families")]

    operations = [
        migrations.AddField("lease", "process", models.CharField(blank=True, default="", max_length=200), preserve_default=False),
        migrations.AddField("lease", "backend_pid", models.IntegerField(blank=True, null=True)),
        migrations.AddField("lease", "backend_started_at", models.DateTimeField(blank=True, null=True)),
    ]
