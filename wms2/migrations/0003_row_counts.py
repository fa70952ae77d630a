from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("wms2", "0002_wakes")]

    operations = [
        migrations.CreateModel(
            name="RowCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("counted", models.CharField(help_text="the table", max_length=50)),
                ("kind", models.CharField(max_length=100)),
                ("number", models.BigIntegerField()),
            ],
            options={"db_table": "row_counts"},
        ),
    ]
