"""Cases of files that go with others; when each was last reminded of."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('outputs_app', '0012_validation'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='integritycase',
            name='case_prognosis_known',
        ),
        migrations.AddField(
            model_name='integritycase',
            name='reminded_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name='integritycase',
            name='cut',
            field=models.JSONField(blank=True, default=dict, help_text="what its removal takes back of units' claims, or the case with which it is removed"),
        ),
        migrations.AlterField(
            model_name='integritycase',
            name='prognosis',
            field=models.CharField(choices=[('missing_replica', 'Missing at its storage'), ('size_mismatch', 'Size differs'), ('checksum_mismatch', 'Checksum differs'), ('not_in_catalogue', 'Not in a catalogue'), ('catalogue_differs', 'Catalogue says something else'), ('duplicate_lumi', 'Lumi in two valid files'), ('parent_missing', 'Made from a file that is gone'), ('zero_events', 'No events'), ('unknown_file', 'File of nobody known'), ('unprotected', 'No rule keeps it'), ('drawn_in', 'Removed with another file')], max_length=30),
        ),
        migrations.AddConstraint(
            model_name='integritycase',
            constraint=models.CheckConstraint(condition=models.Q(('prognosis__in', ['missing_replica', 'size_mismatch', 'checksum_mismatch', 'not_in_catalogue', 'catalogue_differs', 'duplicate_lumi', 'parent_missing', 'zero_events', 'unknown_file', 'unprotected', 'drawn_in'])), name='case_prognosis_known'),
        ),
    ]
