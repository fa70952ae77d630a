from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("requests_app", "0045_words_for_people"),
    ]

    operations = [
        migrations.AddField(
            model_name="inputfile",
            name="odd_lumis",
            field=models.JSONField(
                blank=True,
                db_default=[],
                default=list,
                help_text="[run, first, last, events of each]: without events, or with many more",
            ),
        ),
    ]
