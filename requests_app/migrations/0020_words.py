from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("requests_app", "0019_unwritten"),
    ]

    operations = [
        migrations.AlterField(
            model_name="request",
            name="overrides",
            field=models.JSONField(
                blank=True, default=dict, help_text="typed changes of settings for this request (requests_app.work.overrides)"
            ),
        ),
    ]
