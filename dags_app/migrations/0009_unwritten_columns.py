"""Columns of a DAG that nothing has ever written."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("dags_app", "0008_merge_groups")]

    operations = [migrations.RemoveField("dag", name) for name in ("swept_at", "units_failed")]
