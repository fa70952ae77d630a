from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sites_app', '0012_jobs_ended'),
    ]

    operations = [
        migrations.AddField(
            model_name='schedd',
            name='owner',
            field=models.CharField(blank=True, db_default='', default='', help_text="whose our jobs are there; others' are never ours", max_length=255),
        ),
    ]
