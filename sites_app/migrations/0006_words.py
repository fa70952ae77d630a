from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sites_app", "0005_unwritten_columns"),
    ]

    operations = [
        migrations.AlterField(
            model_name="site",
            name="status_actor",
            field=models.CharField(
                blank=True,
                help_text="who set the status; empty: CRIC's sync, which never undoes an operator's decision",
                max_length=100,
            ),
        ),
    ]
