"""DAGs and jobs are found by their cluster ids."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Collate


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("dags_app", "0002_samples")]

    operations = [
        AddIndexConcurrently(
            "dag", models.Index(fields=["dagman_cluster_id"], condition=~Q(dagman_cluster_id=""), name="idx_dags_cluster")
        ),
        AddIndexConcurrently("failuresample", models.Index(Collate("job_id", "C"), name="idx_failure_samples_job")),
        AddIndexConcurrently("sitejob", models.Index(fields=["cluster"], condition=~Q(cluster=""), name="site_jobs_cluster")),
    ]
