from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sites_app', '0003_alerts_by_pool'),
    ]

    operations = [
        migrations.AddField(
            model_name='pool',
            name='spreads',
            field=models.BooleanField(blank=True, help_text='whether its negotiator spreads jobs of one moment over sites, by the last canary', null=True),
        ),
    ]
