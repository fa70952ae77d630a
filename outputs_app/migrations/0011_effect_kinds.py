"""Kinds of effect that take back single files (ADR 0079) and tell ReqMgr2 (ADR 0080)."""

from django.db import migrations, models
from django.db.models import Q

KINDS = [
    ("rucio_block", "Create container and block in Rucio"),
    ("rucio_files", "Register replicas and attach to the block"),
    ("rucio_protect", "Protect files at their RSE"),
    ("rucio_block_close", "Close block in Rucio"),
    ("dbs_block", "Register block in DBS"),
    ("rucio_tape", "Tape rule for the block"),
    ("dbs_valid", "Make a whole dataset VALID in DBS"),
    ("invalidation_manifest", "Write the list of what is to be invalidated"),
    ("rucio_release", "Delete the rules of a dataset"),
    ("dbs_invalidate", "Invalidate a dataset in DBS"),
    ("rucio_source_block", "One source rule for a block at one RSE instead of its files'"),
    ("rucio_disk", "Rule on disk for the container"),
    ("rucio_unprotect", "Delete the source rules of a block"),
    ("files_invalidate", "Take back single files of a block"),
    ("reqmgr2_status", "Tell ReqMgr2 the status"),
    ("reqmgr2_totals", "Tell ReqMgr2 how much work a round has"),
    ("reqmgr2_clone", "Clone the request in ReqMgr2"),
]


class Migration(migrations.Migration):
    dependencies = [("outputs_app", "0010_drift")]

    operations = [
        migrations.AlterField(model_name="effect", name="kind", field=models.CharField(choices=KINDS, max_length=40)),
        migrations.RemoveConstraint(model_name="effect", name="effect_kind_known"),
        migrations.AddConstraint(
            model_name="effect",
            constraint=models.CheckConstraint(condition=Q(kind__in=[kind for kind, _ in KINDS]), name="effect_kind_known"),
        ),
    ]
