"""A block's attempts are failed ones, and its labels say so."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('outputs_app', '0015_single_indexes'),
    ]

    operations = [
        migrations.AlterField(
            model_name='processingblock',
            name='last_rucio_attempt',
            field=models.DateTimeField(blank=True, null=True, verbose_name='last failed attempt at DBS or Rucio'),
        ),
        migrations.AlterField(
            model_name='processingblock',
            name='rucio_attempt_count',
            field=models.PositiveIntegerField(default=0, verbose_name='failed attempts at DBS or Rucio'),
        ),
    ]
