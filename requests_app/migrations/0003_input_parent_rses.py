"""Where the parents of input files are."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0002_input_lumis")]

    operations = [
        migrations.AddField("inputfile", "parent_rses", models.JSONField(blank=True, default=list)),
    ]
