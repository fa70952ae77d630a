from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('requests_app', '0028_reqmgr2'),
    ]

    operations = [
        migrations.AddField(
            model_name='workflow',
            name='inputs_removed_at',
            field=models.DateTimeField(blank=True, help_text='when nothing of its unmerged files was left that had not been removed', null=True),
        ),
    ]
