"""What foreign keys have an index for already."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("dags_app", "0022_passed_priority")]

    operations = [
        migrations.RemoveIndex("dag", "idx_dags_workflow"),
        migrations.RemoveIndex("daghistory", "idx_dag_history_dag"),
    ]
