"""Input files of which a mask or run lists want a part: how many events that is expected to be."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("requests_app", "0011_input_locations")]

    operations = [
        migrations.AddField("inputfile", "wanted_events", models.BigIntegerField(blank=True, null=True)),
    ]
