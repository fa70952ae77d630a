from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("dags_app", "0024_words_for_people"),
    ]

    operations = [
        migrations.AddField(
            model_name="unreadableinput",
            name="not_sure",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="the file's own storage did not say it: counts only with the same hours later",
            ),
        ),
    ]
